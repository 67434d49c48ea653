"""The errors of the program, told apart by what the caller should do.

    QuotaTranslatorError
    ├── ConfigurationError      the person who started the program must change something
    └── ApiError                an answer of the API server, or the lack of one
        ├── Unavailable         try again later, with growing pauses
        │   ├── Throttled       the server asks for a pause of `retry_after` seconds
        │   ├── KueueUnavailable  Kueue's (or another) webhook could not be reached
        │   ├── NotLeading      not sent: another process may be the leader by now
        │   └── Silent          a watch brought nothing for too long: open it again
        ├── Malformed           what came is not what the API promises: believe none of it
        ├── Unauthorized        the credentials are not accepted (they were renewed once already)
        ├── Forbidden           a permission is missing: `verb` and `resource` name it
        ├── Refused             the request itself is wrong: not again until what is wanted changes
        ├── NotFound            the object, its namespace or its whole kind is not there
        ├── Gone                the version that was asked for is too old: list again
        └── Conflict            somebody else was there first: read again, then decide
            └── AlreadyExists   a create found an object of that name

Messages hold the server's words, cut to `MESSAGE_LIMIT` characters; a body that is not the API
server's own Status is cut to `BODY_LIMIT`, because nobody knows what it holds.
"""

from typing import Final

BODY_LIMIT: Final = 256
MESSAGE_LIMIT: Final = 1024


class QuotaTranslatorError(Exception):
    """Anything that this program raises on purpose."""


class ConfigurationError(QuotaTranslatorError):
    """Settings, a kubeconfig or credentials cannot be used; the text says which and why."""


class ApiError(QuotaTranslatorError):
    """A request that did not bring what was asked for.

    `status` is the HTTP status (0: none came), `reason` the server's own word for the class of the
    failure, `retry_after` the seconds that the server asked to wait, None where it did not.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        verb: str = "",
        resource: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.verb = verb
        self.resource = resource


class Unavailable(ApiError):
    """No useful answer now: a 5xx, a broken connection, a timeout.

    `outcome_unknown` is True where a write may have been done although no answer says so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message, status=status, reason=reason, retry_after=retry_after)
        self.outcome_unknown = outcome_unknown


class Throttled(Unavailable):
    """429: the request was not done. `retry_after` is None where the server names no time."""


class KueueUnavailable(Unavailable):
    """500 "failed calling webhook": writes of that kind fail until the webhook is back."""


class NotLeading(Unavailable):
    """A write that was not sent, because this process may no longer be the one that writes."""


class Silent(Unavailable):
    """A watch whose connection stands, but on which nothing came for too long."""


class Malformed(ApiError):
    """An answer that cannot be read: HTML with a 200, a line without end, a strange object."""


class Unauthorized(ApiError):
    """401, also after the credentials were read anew."""


class Forbidden(ApiError):
    """403 of the authorizer. A denial by admission, which is a 403 too, is `Refused`."""


class Refused(ApiError):
    """The server will not have this request, however often it is sent."""


class NotFound(ApiError):
    """404; or a create in a namespace that is being deleted, where it can never succeed."""


class Gone(ApiError):
    """410: the resource version or the continue token has expired."""


class Conflict(ApiError):
    """409, or a uid that is not the live object's."""


class AlreadyExists(Conflict):
    """A create met an object of the same name, ours or not."""
