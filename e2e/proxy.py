"""A proxy in front of the real API server that does what tests tell it: refuse, hang, cut, lie.

    with FaultProxy(cp) as proxy, Controller(cp, kubeconfig=proxy.kubeconfig(USER)) as controller:
        rule = proxy.when("patch", "/clusterqueues/team-a$", do=status(409, "Conflict"), times=2)
        ...
        proxy.cut("/nodes$", "reset")
        assert proxy.count("list", "/nodes$") == 1

What no rule takes is passed on unchanged. It speaks TLS with a certificate of its own authority.
A client certificate is that of the control plane: whoever comes with one is passed on as that user,
and a bearer token is passed on as it is. It runs in a thread; all methods may be called from tests.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import yaml
from aiohttp import web

from e2e.controlplane.certificates import Authority, write_private
from e2e.controlplane.cluster import ADMINISTRATORS, ControlPlane
from e2e.controlplane.processes import free_ports
from e2e.faults.actions import Action, passed
from e2e.faults.exchange import Exchange, Seen, Stream, classified, decoded
from e2e.faults.rules import Rule, matches
from e2e.faults.users import Users

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
# A TLS connection that is closed says goodbye; a loop that ends before leaves its socket behind.
TLS_GOODBYE = 0.25


class FaultProxy:
    """A context manager: it listens from the beginning to the end."""

    def __init__(self, cp: ControlPlane) -> None:
        self._cp = cp
        self._authority = Authority("fault-proxy-authority")
        self._users = Users(cp.ca)
        self._rules: list[Rule] = []
        self._mutes: list[str] = []
        self._seen: list[Seen] = []
        self._streams: set[Stream] = set()
        (self._port,) = free_ports(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy")
        self._runner: web.AppRunner | None = None

    # --- from beginning to end ------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens: open connections break, new ones are refused."""
        self._run(self._deafen())
        try:
            yield
        finally:
            self._run(self._listen())

    # --- for whoever connects -------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def ca(self) -> bytes:
        """The authority of its certificate, in PEM."""
        return self._authority.certificate

    def kubeconfig(self, user: str, groups: Sequence[str] = (ADMINISTRATORS,)) -> Path:
        """A kubeconfig of the control plane's for this user, through the proxy."""
        return self.redirect(self._cp.new_kubeconfig(user, groups))

    def redirect(self, kubeconfig: Path) -> Path:
        """The same kubeconfig (client certificate or token), through the proxy."""
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        self._users.learn(document)
        document["clusters"][0]["cluster"] = {
            "server": self.url,
            "certificate-authority-data": Users.encoded(self.ca),
        }
        path = kubeconfig.with_name(f"{kubeconfig.stem}-{self._port}.kubeconfig")
        write_private(path, yaml.safe_dump(document).encode())
        return path

    # --- the script -----------------------------------------------------------------------

    def when(
        self,
        verb: str = "",
        path: str = "",
        *,
        do: Action,
        skip: int = 0,
        times: int | None = 1,
        where: Callable[[Seen], bool] = lambda _seen: True,
    ) -> Rule:
        """A rule for the requests that match, after `skip` of them, `times` times (None: always).

        `verb` is get, list, watch, create, patch, delete, or "write" for all that change something;
        "" is any. `path` is searched for as a regular expression in the path without its query.
        The oldest rule that wants a request has it.
        """
        rule = Rule(lambda seen: matches(seen, verb, path) and where(seen), do, skip, times)
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """No rules, nothing mute."""
        for rule in self._rules:
            rule.end()
        self._rules, self._mutes = [], []

    def cut(self, path: str = "", *lines: bytes, how: str = "end") -> int:
        """End open watches ("end") or break them ("reset"), after these lines or half ones; how
        many there were."""
        return self._into(path, [*lines, how])

    def send(self, path: str, *lines: bytes) -> int:
        """More lines into open watches, as if they were the server's; into how many."""
        return self._into(path, lines)

    def _into(self, path: str, items: Sequence[bytes | str]) -> int:
        def act() -> int:
            found = [stream for stream in self._streams if stream.matches(path)]
            for stream in found:
                for item in items:
                    stream.queue.put_nowait(item)
            return len(found)

        return self._call(act)

    @contextmanager
    def mute(self, path: str) -> Iterator[None]:
        """Watches that match, open or to come, pass no byte of what the server says."""
        self._mutes = [*self._mutes, path]
        try:
            yield
        finally:
            self._mutes = [muted for muted in self._mutes if muted != path]

    # --- what was seen --------------------------------------------------------------------

    def mark(self) -> int:
        """A place among the requests: `seen(since=mark)` are those that came later."""
        return len(self._seen)

    def seen(self, verb: str = "", path: str = "", since: int = 0) -> list[Seen]:
        return [seen for seen in self._seen[since:] if matches(seen, verb, path)]

    def count(self, verb: str = "", path: str = "", since: int = 0) -> int:
        return len(self.seen(verb, path, since))

    def watching(self, path: str = "") -> int:
        """How many watches are open at this moment."""
        return self._call(lambda: sum(stream.matches(path) for stream in self._streams))

    # --- inside ---------------------------------------------------------------------------

    def _run(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=30)

    def _call(self, function: Callable[[], T]) -> T:
        async def act() -> T:
            return function()

        result: T = self._run(act())
        return result

    async def _listen(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._users.serve(context, self._authority.server("fault-proxy", ["localhost"], [LOOPBACK]))
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.SockSite(self._runner, _bound(self._port), ssl_context=context).start()

    async def _deafen(self) -> None:
        assert self._runner is not None
        for site in list(self._runner.sites):
            await site.stop()
        for stream in list(self._streams):
            stream.queue.put_nowait("reset")
        await self._runner.cleanup()

    async def _close(self) -> None:
        await self._deafen()
        await self._users.close()
        await asyncio.sleep(TLS_GOODBYE)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        user = Users.of(request)
        seen = Seen(
            classified(request),
            request.path,
            dict(request.query),
            request.headers.get("User-Agent", ""),
            user,
            decoded(data),
        )
        self._seen.append(seen)
        exchange = Exchange(request, data, seen, self._users.session(user), self._cp.url)
        exchange.streams, exchange.muted = self._streams, self._is_mute
        try:
            return await self._action(seen)(exchange)
        except asyncio.CancelledError:
            seen.outcome = seen.outcome or "dropped"
            raise
        except (aiohttp.ClientError, OSError):  # either side has gone
            return exchange.abort()

    def _action(self, seen: Seen) -> Action:
        for rule in self._rules:
            if (action := rule.takes(seen)) is not None:
                return action
        return passed

    def _is_mute(self, path: str) -> bool:
        return any(re.search(muted, path) for muted in self._mutes)


def _bound(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((LOOPBACK, port))
    return found
