"""The small HTTP endpoints: /healthz, /readyz and /metrics.

Healthy means that the event loop answers; ready means that everything was read once. The two
addresses may be one and the same; "0" turns an address off. /metrics may be guarded: over TLS, for
those whose bearer token the API server knows and lets get the path. Probes have no token.
"""

import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from aiohttp import web

from quota_translator.errors import ConfigurationError
from quota_translator.kube.reviews import Unreviewed, Verdict

OFF: Final = "0"
_STOP_SECONDS: Final = 1.0  # an open scrape may finish, a stop does not wait longer
_UNKNOWN: Final = "a bearer token that the API server knows is needed\n"
_DENIED: Final = "this account may not: it needs the verb get on the nonResourceURL /metrics\n"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Missing = Callable[[], Sequence[str]]  # what is not there yet, in words; empty: ready
Judge = Callable[[str], Awaitable[Verdict]]  # a bearer token; raises Unreviewed
Exposition = Callable[[str], Awaitable[tuple[bytes, str]]]  # Accept header → body and content type


class Guard(NamedTuple):
    """What stands before /metrics."""

    tls: ssl.SSLContext
    judge: Judge


class Endpoints:
    """Serves the endpoints between `start` and `stop`. Each may be called again."""

    def __init__(
        self,
        health: str,
        metrics: str,
        missing: Missing,
        exposition: Exposition,
        notes: Missing = tuple,
        guard: Guard | None = None,
    ) -> None:
        """`notes`: what people should know of one that is ready all the same. `guard` is that of
        /metrics, which then needs an address of its own. Raises ConfigurationError."""
        if guard is not None and health == metrics != OFF:
            raise ConfigurationError(
                f"--metrics-secure: {metrics} also serves the probes, which speak plain HTTP; "
                "give --metrics-bind-address and --health-bind-address different ports"
            )
        self._guard = guard
        self._tls = {metrics: guard.tls} if guard is not None else {}
        self._missing = missing
        self._notes = notes
        self._exposition = exposition
        self._routes: dict[str, dict[str, Answer]] = {}
        if health != OFF:
            self._routes[health] = {"/healthz": self._healthz, "/readyz": self._readyz}
        if metrics != OFF:
            self._routes.setdefault(metrics, {})["/metrics"] = self._metrics
        self._runners: dict[str, web.AppRunner] = {}

    async def start(self) -> None:
        """Listen on all addresses or on none. Raises ConfigurationError with the address in it."""
        for address, routes in self._routes.items():
            if address in self._runners:
                continue
            try:
                self._runners[address] = await _listen(address, routes, self._tls.get(address))
            except (OSError, ValueError, OverflowError) as error:
                await self.stop()
                raise ConfigurationError(
                    f"cannot listen on {address} for {', '.join(routes)}: {error}; "
                    "choose another address, or 0 for none"
                ) from error

    async def stop(self) -> None:
        while self._runners:
            _, runner = self._runners.popitem()
            await runner.cleanup()

    def bound(self, address: str) -> tuple[str, int]:
        """Host and port that an address of the settings really got: port 0 takes a free one."""
        found = self._runners[address].addresses[0]
        return found[0], found[1]

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._missing()
        if not missing:
            notes = "".join(f"note: {what}\n" for what in self._notes())
            return web.Response(text=f"ok\n{notes}")
        lines = "".join(f"not ready: {what}\n" for what in missing)
        return web.Response(status=503, text=lines)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._guard is not None and (refusal := await _refused(request, self._guard.judge)):
            return refusal
        body, content_type = await self._exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


async def _refused(request: web.Request, judge: Judge) -> web.Response | None:
    """None: whoever asks may have it."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    try:
        verdict = await judge(token.strip()) if scheme.lower() == "bearer" else "unknown"
    except Unreviewed as error:
        return web.Response(status=503, text=f"cannot ask the API server: {error}\n")
    if verdict == "allowed":
        return None
    if verdict == "denied":
        return web.Response(status=403, text=_DENIED)
    return web.Response(status=401, text=_UNKNOWN, headers={"WWW-Authenticate": "Bearer"})


async def _listen(
    address: str, routes: dict[str, Answer], tls: ssl.SSLContext | None
) -> web.AppRunner:
    host, _, port = address.rpartition(":")
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, answer)  # HEAD comes with it
    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, shutdown_timeout=_STOP_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=tls).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner
