"""One HTTP request: the session, the headers, the credentials, and failures as errors of ours."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp
from yarl import URL

from quota_translator import __version__
from quota_translator.errors import (
    ApiError,
    ConfigurationError,
    NotLeading,
    Unauthorized,
    Unavailable,
)
from quota_translator.kube.answers import failure
from quota_translator.kube.config import Connection
from quota_translator.kube.fence import Fence

USER_AGENT: Final = f"quota-translator/{__version__}"
JSON: Final = "application/json"
CONNECT_SECONDS: Final = 5.0

Count = Callable[[str, str, str], None]  # verb, kind, HTTP status or the error's name


class Transport:
    """The one session to one server. Opened with the first request, closed by `close`."""

    def __init__(
        self,
        connection: Connection,
        *,
        count: Count | None = None,
        connections: int = 64,
        trust_env: bool = False,
        fence: Fence | None = None,
    ) -> None:
        self._fence = fence
        self._connection = connection
        self._count = count or (lambda _verb, _kind, _code: None)
        self._connections = connections
        self._trust_env = trust_env
        self._open: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()
            self._open = None

    async def exchange(
        self,
        verb: str,
        kind: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        seconds: float,
        *,
        data: bytes | None = None,
        media: str = "",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        with as_api_errors(outcome_unknown=data is not None):
            response = await self.send(
                verb, kind, method, path, query, timeout=timeout, data=data, media=media
            )
            async with response:
                return await response.read()

    async def send(
        self,
        verb: str,
        kind: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own, passed through
        data: bytes | None = None,
        media: str = "",
    ) -> aiohttp.ClientResponse:
        """The answer of a request that succeeded; its body is still to be read."""
        try:
            for anew in (False, True):
                response = await self._session().request(
                    method,
                    URL(self._connection.host + path).with_query(query),
                    headers=await self._headers(verb, media, anew=anew),
                    data=data,
                    timeout=timeout,
                    allow_redirects=False,
                    ssl=self._connection.tls() or True,
                    server_hostname=self._connection.server_name,
                    proxy=self._connection.proxy,
                    proxy_headers=self._connection.proxy_headers,
                )
                if response.status != 401 or anew:
                    break
                response.release()
        except Exception as error:
            self._count(verb, kind, type(error).__name__)
            raise
        self._count(verb, kind, str(response.status))
        if 200 <= response.status < 300:
            return response
        async with response:
            raise failure(response.status, await response.read(), response.headers)

    async def _headers(self, verb: str, media: str, *, anew: bool) -> dict[str, str]:
        # A compressed watch would hold events back until its window is full.
        headers = {"Accept": JSON, "Accept-Encoding": "identity" if verb == "watch" else "gzip"}
        if media:
            headers["Content-Type"] = media
        try:
            credentials = await self._connection.credentials(anew)
        except ConfigurationError as error:
            raise Unauthorized(str(error), status=401) from error
        return headers | ({"Authorization": credentials} if credentials else {})

    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            self._open = aiohttp.ClientSession(
                connector=_Fenced(self._fence, limit=self._connections),
                headers={"User-Agent": USER_AGENT},
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=self._trust_env,
                read_bufsize=2**18,
            )
        return self._open


class _Fenced(aiohttp.TCPConnector):
    """Asks once more when the connection is there: credentials and a connection may have taken
    long, and the process may have been stopped meanwhile."""

    def __init__(self, fence: Fence | None, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._fence = fence

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> Any:
        connection = await super().connect(req, traces, timeout)
        if self._fence is not None and req.method != "GET":
            try:
                self._fence.check(f"{req.method} {req.url.path}")
            except NotLeading:
                connection.release()
                raise
        return connection


class as_api_errors:  # noqa: N801 - used as a statement: with as_api_errors(...)
    """The client library's errors and timeouts → Unavailable; errors of ours pass through."""

    def __init__(self, *, outcome_unknown: bool) -> None:
        self._outcome_unknown = outcome_unknown

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, ApiError):
            return
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            # No byte of the request has left.
            raise Unavailable(f"cannot connect: {_why(error)}") from error
        if isinstance(error, TimeoutError):
            raise Unavailable("no answer in time", outcome_unknown=self._outcome_unknown) from error
        if isinstance(error, aiohttp.ClientError | OSError):
            what = " ".join(str(error).split()) or type(error).__name__
            raise Unavailable(
                f"connection broken: {what[:200]}", outcome_unknown=self._outcome_unknown
            ) from error


def _why(error: Exception) -> str:
    """In words: the library's own text shows objects of this program's memory."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate of {error.host}:{error.port}: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.errno or 0  # the text with it is Python's own: "Connect call failed"
        return f"{error.host}:{error.port}: {os.strerror(number) if number > 0 else error.strerror}"
    return str(error) or type(error).__name__
