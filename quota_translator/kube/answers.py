"""What an answer of the API server means for the caller: HTTP status and body → an error.

The status alone is not enough. A 403 is a missing permission or a denial by a webhook; a 500 is a
typing error that no retry cures, or a webhook that is down. The texts were seen on running servers.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from quota_translator.errors import (
    BODY_LIMIT,
    MESSAGE_LIMIT,
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    KueueUnavailable,
    NotFound,
    Refused,
    Throttled,
    Unauthorized,
    Unavailable,
)

# Such as: User "u" cannot create resource "cohorts" in API group "kueue.x-k8s.io" at the cluster
# scope; or: User "u" cannot get path "/apis".
_RBAC: Final = re.compile(
    r'cannot (?P<verb>[\w-]+) (?:resource|path) "(?P<what>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?'
)


class Cause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class Details(msgspec.Struct, rename="camel"):
    causes: list[Cause] | None = None
    retry_after_seconds: float | None = None


class Status(msgspec.Struct):
    """The API server's own error object; every field may be missing."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: Details | None = None


class Answer(msgspec.Struct, frozen=True):
    """One failed answer, read once: what the rules below look at."""

    code: int
    status: Status | None  # None: the body was not the API server's own
    message: str
    retry_after: float | None

    @property
    def reason(self) -> str:
        return (self.status.reason if self.status else None) or ""

    @property
    def causes(self) -> list[Cause]:
        details = self.status.details if self.status else None
        return (details.causes if details else None) or []


_decode_status: Final = msgspec.json.Decoder(Status).decode


def failure(code: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """The error for an HTTP answer that is not a success."""
    status = _status_of(body)
    return _classify(
        Answer(code, status, _message(code, status, body), _retry_after(status, headers or {}))
    )


def event_failure(body: bytes) -> ApiError:
    """The error for the object of an ERROR event, whose fields may all be missing."""
    status = _status_of(body) or Status()
    code = status.code or 0
    if not code:
        code = 410 if status.reason in {"Expired", "Gone"} else 500
    return _classify(Answer(code, status, _message(code, status, body), _retry_after(status, {})))


def _classify(answer: Answer) -> ApiError:
    for applies, make in _RULES:
        if applies(answer):
            return make(answer)
    return _error(Refused, answer)


# --- the rules, in the order in which they are asked --------------------------------------------


def _has(*texts: str) -> Callable[[Answer], bool]:
    return lambda answer: answer.code >= 500 and any(text in answer.message for text in texts)


def _is(*codes: int) -> Callable[[Answer], bool]:
    return lambda answer: answer.code in codes


def _is_rbac(answer: Answer) -> bool:
    # Without a Status the 403 is some proxy's: a permission too, though not one of Kubernetes.
    return answer.code == 403 and (answer.status is None or bool(_RBAC.search(answer.message)))


def _is_terminating(answer: Answer) -> bool:
    named = any(cause.reason == "NamespaceTerminating" for cause in answer.causes)
    return answer.code == 403 and (named or "is being terminated" in answer.message)


def _is_other_uid(answer: Answer) -> bool:
    field = any(cause.field == "metadata.uid" for cause in answer.causes)
    return answer.code == 422 and (field or "metadata.uid:" in answer.message)


def _error(kind: type[ApiError], answer: Answer) -> ApiError:
    return kind(
        answer.message, status=answer.code, reason=answer.reason, retry_after=answer.retry_after
    )


def _of(kind: type[ApiError]) -> Callable[[Answer], ApiError]:
    return lambda answer: _error(kind, answer)


def _forbidden(answer: Answer) -> ApiError:
    found = _RBAC.search(answer.message)
    verb = found["verb"] if found else ""
    resource = ".".join(part for part in (found["what"], found["group"]) if part) if found else ""
    return Forbidden(
        answer.message, status=answer.code, reason=answer.reason, verb=verb, resource=resource
    )


def _conflict(answer: Answer) -> ApiError:
    return _error(AlreadyExists if answer.reason == "AlreadyExists" else Conflict, answer)


def _unavailable(answer: Answer) -> ApiError:
    # 503 is said before anything is done; after the others a write may stand.
    return Unavailable(
        answer.message,
        status=answer.code,
        reason=answer.reason,
        retry_after=answer.retry_after,
        outcome_unknown=answer.code != 503,
    )


_RULES: Final[tuple[tuple[Callable[[Answer], bool], Callable[[Answer], ApiError]], ...]] = (
    (_has("failed to create typed patch object"), _of(Refused)),
    (_has("failed calling webhook"), _of(KueueUnavailable)),
    # The server forgot versions that we saw (a restored backup): only a list can help.
    (_has("Too large resource version"), _of(Gone)),
    (lambda answer: answer.code >= 500, _unavailable),
    (_is(429), _of(Throttled)),
    (_is(401), _of(Unauthorized)),
    (_is_rbac, _forbidden),
    (_is_terminating, _of(NotFound)),
    (_is_other_uid, _of(Conflict)),
    (_is(404), _of(NotFound)),
    (_is(409), _conflict),
    (_is(410), _of(Gone)),
    # Redirects are not followed: they would carry the credentials to another place.
    (lambda answer: answer.code < 400, _unavailable),
)


# --- reading the body ---------------------------------------------------------------------------


def _status_of(body: bytes) -> Status | None:
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status if status.kind == "Status" else None


def _message(code: int, status: Status | None, body: bytes) -> str:
    if status is not None and status.message:
        return _cut(status.message, MESSAGE_LIMIT)
    if status is not None:
        return f"HTTP {code} {status.reason or 'without a reason'}"
    shown = " ".join(body[: 4 * BODY_LIMIT].decode(errors="replace").split())
    return f"HTTP {code}: {_cut(shown, BODY_LIMIT)}" if shown else f"HTTP {code} without a body"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _retry_after(status: Status | None, headers: Mapping[str, str]) -> float | None:
    """Seconds, from the header or the body, whichever asks for more."""
    details = status.details if status else None
    asked = [details.retry_after_seconds] if details else []
    asked.append(_seconds(headers.get("Retry-After", "")))
    return max((seconds for seconds in asked if seconds is not None and seconds >= 0), default=None)


def _seconds(text: str) -> float | None:
    # The header may also hold a date; the API server never sends one.
    return float(text) if text.strip().isdecimal() else None
