"""Requests to the API server: bytes in, bytes out, one session.

Every call has a timeout of its purpose; what may be sent twice without harm (GETs) is sent again a
few times when the server does not answer; every failure becomes an error of `errors.py`. What the
bytes mean is not known here.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
import orjson

from quota_translator.errors import Malformed, Throttled, Unavailable
from quota_translator.kube.config import Connection
from quota_translator.kube.fence import Fence
from quota_translator.kube.resources import Resource
from quota_translator.kube.stream import WatchStream
from quota_translator.kube.transport import CONNECT_SECONDS, JSON, Count, Transport, as_api_errors

PAGE: Final = 500
MERGE_PATCH: Final = "application/merge-patch+json"
# Finds the items of a list by their names; for the built-in kinds only.
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


_T = TypeVar("_T")


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds a call may take, by purpose."""

    get: float = 10.0
    write: float = 10.0
    page: float = 60.0  # one page of a list
    watch_open: float = 30.0  # until the status line of a watch
    watch_slack: float = 30.0  # beyond the time for which the server was asked to watch


class Retries(msgspec.Struct, frozen=True):
    """How often a GET is sent at most, and the pauses between (full jitter)."""

    attempts: int = 3
    base: float = 0.2
    longest: float = 10.0  # a server that asks for a longer pause is left to the caller


class _Served(msgspec.Struct):
    name: str = ""
    kind: str = ""
    verbs: list[str] | None = None


class _ServedList(msgspec.Struct):
    resources: list[_Served] | None = None


class _GroupVersion(msgspec.Struct):
    version: str = ""


class _ServedGroup(msgspec.Struct):
    versions: list[_GroupVersion] | None = None


class Client:
    """One connection to one API server. Use as `async with Client(...)`, or call `close`."""

    def __init__(
        self,
        connection: Connection,
        *,
        count: Count | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
        connections: int = 64,
        trust_env: bool = False,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_write` is asked before each write: a leader whose time is up sends none."""
        self.fence = Fence(may_write)
        self._transport = Transport(
            connection,
            count=count,
            connections=connections,
            trust_env=trust_env,
            fence=self.fence,
        )
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._sleep = sleep
        self._rand = rand

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # --- reading --------------------------------------------------------------------------

    async def get(
        self, resource: Resource, name: str, namespace: str = "", seconds: float | None = None
    ) -> bytes:
        """`seconds`: how long one try may take, in place of the usual."""
        path = resource.path(name, namespace)
        return await self._read("get", resource.kind, path, {}, seconds or self._timeouts.get)

    async def list_page(
        self,
        resource: Resource,
        token: str = "",
        limit: int = PAGE,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """One page of a list; `token` is the metadata.continue of the page before.

        No resourceVersion is sent: with one, the watch cache ignores the limit and answers with
        everything at once. Raises Gone when the token has expired: no page counts then. `query`
        holds more parameters, such as a labelSelector.
        """
        query = {"limit": str(limit), **(query or {})} | ({"continue": token} if token else {})
        return await self._read("list", resource.kind, resource.path(), query, self._timeouts.page)

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        version: str,
        *,
        seconds: float,
        silence: float,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[WatchStream]:
        """A watch from `version` on, open once the context is entered (the server said 200).

        The server is asked to end it after `seconds`; `silence` is the longest wait for a byte.
        `query` holds more parameters, such as a fieldSelector.
        """
        query = dict(query or {}) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(seconds))),
            "resourceVersion": version,
        }
        timeout = aiohttp.ClientTimeout(
            total=seconds + self._timeouts.watch_slack, sock_connect=CONNECT_SECONDS
        )
        with as_api_errors(outcome_unknown=False):
            async with asyncio.timeout(self._timeouts.watch_open):
                response = await self._transport.send(
                    "watch", resource.kind, "GET", resource.path(), query, timeout=timeout
                )
            try:
                yield WatchStream(response.content, silence)
            finally:
                response.close()  # not release: the rest of the stream is not wanted

    async def served_versions(self, group: str) -> tuple[str, ...]:
        """The versions in which a group is served, the preferred first. Raises NotFound."""
        body = await self._read("get", "APIGroup", f"/apis/{group}", {}, self._timeouts.get)
        found = _decoded(body, _ServedGroup).versions or []
        return tuple(version.version for version in found)

    async def served_kinds(self, group: str, version: str, verb: str = "") -> frozenset[str]:
        """The kinds that one version of a group serves (with `verb`, if given). Raises NotFound."""
        path = f"/apis/{group}/{version}"
        body = await self._read("get", "APIResourceList", path, {}, self._timeouts.get)
        found = _decoded(body, _ServedList).resources or []
        return frozenset(
            served.kind
            for served in found
            if "/" not in served.name and (not verb or verb in (served.verbs or ()))
        )

    # --- writing --------------------------------------------------------------------------

    async def create(
        self, resource: Resource, body: Mapping[str, Any], seconds: float | None = None
    ) -> bytes:
        """POST. Raises AlreadyExists; Unavailable with `outcome_unknown` when nobody knows."""
        path = resource.path(namespace=body["metadata"].get("namespace", ""))
        return await self._write("create", resource.kind, "POST", path, body, JSON, seconds)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        subresource: str = "",
        seconds: float | None = None,
        media: str = MERGE_PATCH,
    ) -> bytes:
        """A merge patch. Preconditions (uid, resourceVersion) stand in the patch's metadata."""
        path = resource.path(name, namespace, subresource)
        return await self._write("patch", resource.kind, "PATCH", path, patch, media, seconds)

    async def patch_status(self, resource: Resource, name: str, patch: Mapping[str, Any]) -> bytes:
        return await self.merge_patch(resource, name, patch, subresource="status")

    async def delete(self, resource: Resource, name: str, uid: str, namespace: str = "") -> bytes:
        """Delete this very object: another one of the same name (another uid) is a Conflict."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        path = resource.path(name, namespace)
        return await self._write("delete", resource.kind, "DELETE", path, body, JSON)

    async def schema(self, group: str, version: str) -> bytes:
        """The OpenAPI document of a group's version, which every account may read. It is large."""
        path = f"/openapi/v3/apis/{group}/{version}"
        return await self._read("get", "OpenAPI", path, {}, self._timeouts.page)

    # --- sending --------------------------------------------------------------------------

    async def _read(
        self, verb: str, kind: str, path: str, query: Mapping[str, str], seconds: float
    ) -> bytes:
        for attempt in range(self._retries.attempts):
            try:
                return await self._transport.exchange(verb, kind, "GET", path, query, seconds)
            except Unavailable as error:
                pause = self._pause(error, attempt)
                if pause is None:
                    raise
                await self._sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, error: Unavailable, attempt: int) -> float | None:
        """Seconds until the next attempt; None: there is none."""
        asked = error.retry_after or 0.0
        if attempt + 1 >= self._retries.attempts or asked > self._retries.longest:
            return None
        if isinstance(error, Throttled) and not asked:
            asked = 1.0
        return asked + self._rand() * self._retries.base * 2.0**attempt

    async def _write(
        self,
        verb: str,
        kind: str,
        method: str,
        path: str,
        body: Mapping[str, Any],
        media: str,
        seconds: float | None = None,
    ) -> bytes:
        seconds = seconds or self._timeouts.write
        async with self.fence.passing(f"{verb} {kind}"):
            return await self._transport.exchange(
                verb, kind, method, path, {}, seconds, data=orjson.dumps(body), media=media
            )


def _decoded(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Malformed(f"unreadable discovery answer: {error}") from error
