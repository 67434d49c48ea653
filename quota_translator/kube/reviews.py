"""Who may scrape: a bearer token, judged by the API server, with answers kept for a moment.

A TokenReview says who bears it, a SubjectAccessReview whether that one may get the path. A scrape
every few seconds must not be two requests each time, and a right that was taken away must not last.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from quota_translator.errors import ApiError
from quota_translator.kube.client import Client
from quota_translator.kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS

KNOWN_SECONDS: Final = 60.0  # who bears a token
ALLOWED_SECONDS: Final = 300.0
DENIED_SECONDS: Final = 30.0
REMEMBERED: Final = 1024
_AT_ONCE: Final = 4  # reviews; the others wait
_SECONDS: Final = 5.0
_LONGEST: Final = 16384  # of a token; those of Kubernetes have about 1,000 characters

Verdict = Literal["allowed", "unknown", "denied"]


class Unreviewed(Exception):
    """The API server could not be asked; the text says why, and holds nothing of the token."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _TokenReview(msgspec.Struct):
    status: _TokenStatus | None = None


class _AccessReview(msgspec.Struct):
    status: _AccessStatus | None = None


class _Kept(msgspec.Struct, frozen=True):
    answer: Any
    until: float


class Reviewer:
    """Judges bearer tokens for one path of this program's own server. `now`: steady seconds."""

    def __init__(self, client: Client, path: str, now: Callable[[], float]) -> None:
        self._client, self._path, self._now = client, path, now
        self._users: OrderedDict[bytes, _Kept] = OrderedDict()
        self._rights: OrderedDict[bytes, _Kept] = OrderedDict()
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def judge(self, token: str) -> Verdict:
        """`unknown`: nobody bears it; `denied`: whoever does may not. Raises Unreviewed."""
        if not 0 < len(token) <= _LONGEST:
            return "unknown"
        user = await self._user(token)
        if user is None:
            return "unknown"
        return "allowed" if await self._may(user) else "denied"

    async def _user(self, token: str) -> _User | None:
        key = hashlib.sha256(token.encode(errors="replace")).digest()
        kept = self._fresh(self._users, key)
        if kept is None:
            body = {"spec": {"token": token}}
            found = await self._ask(TOKEN_REVIEWS, "TokenReview", body, _TokenReview)
            status = found.status or _TokenStatus()
            user = status.user if status.authenticated else None
            keep = KNOWN_SECONDS if user is not None else DENIED_SECONDS
            kept = self._keep(self._users, key, user, keep)
        answer: _User | None = kept.answer
        return answer

    async def _may(self, user: _User) -> bool:
        key = hashlib.sha256(msgspec.json.encode(user)).digest()
        kept = self._fresh(self._rights, key)
        if kept is None:
            spec = {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups or [],
                "extra": user.extra or {},
                "nonResourceAttributes": {"path": self._path, "verb": "get"},
            }
            body = {"spec": spec}
            found = await self._ask(ACCESS_REVIEWS, "SubjectAccessReview", body, _AccessReview)
            allowed = found.status is not None and found.status.allowed
            keep = ALLOWED_SECONDS if allowed else DENIED_SECONDS
            kept = self._keep(self._rights, key, allowed, keep)
        return bool(kept.answer)

    async def _ask(self, resource: Any, kind: str, body: Mapping[str, Any], answer: Any) -> Any:
        version = f"{resource.group}/{resource.version}"
        whole = {"apiVersion": version, "kind": kind, "metadata": {}, **body}
        try:
            async with self._turn:
                found = await self._client.create(resource, whole, seconds=_SECONDS)
            return msgspec.json.decode(found, type=answer)
        except ApiError as error:
            raise Unreviewed(f"{kind}: {error.message}") from None
        except msgspec.DecodeError:
            raise Unreviewed(f"{kind}: the answer cannot be read") from None

    def _fresh(self, kept: OrderedDict[bytes, _Kept], key: bytes) -> _Kept | None:
        found = kept.get(key)
        return found if found is not None and self._now() < found.until else None

    def _keep(
        self, kept: OrderedDict[bytes, _Kept], key: bytes, answer: Any, seconds: float
    ) -> _Kept:
        found = kept[key] = _Kept(answer, self._now() + seconds)
        kept.move_to_end(key)
        while len(kept) > REMEMBERED:
            kept.popitem(last=False)
        return found
