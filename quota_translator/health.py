"""The small HTTP endpoints: /healthz, /readyz and /metrics.

Healthy means that the event loop answers; ready means that everything was read once. The two
addresses may be one and the same; "0" turns an address off.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from quota_translator.errors import ConfigurationError

OFF: Final = "0"
_STOP_SECONDS: Final = 1.0  # an open scrape may finish, a stop does not wait longer

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Missing = Callable[[], Sequence[str]]  # what is not there yet, in words; empty: ready
Exposition = Callable[[str], tuple[bytes, str]]  # Accept header → body and content type


class Endpoints:
    """Serves the endpoints between `start` and `stop`. Each may be called again."""

    def __init__(self, health: str, metrics: str, missing: Missing, exposition: Exposition) -> None:
        self._missing = missing
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
                self._runners[address] = await _listen(address, routes)
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
            return web.Response(text="ok\n")
        lines = "".join(f"not ready: {what}\n" for what in missing)
        return web.Response(status=503, text=lines)

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = self._exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})


async def _listen(address: str, routes: dict[str, Answer]) -> web.AppRunner:
    host, _, port = address.rpartition(":")
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, answer)  # HEAD comes with it
    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, shutdown_timeout=_STOP_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner
