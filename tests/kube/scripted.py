"""A server that answers what it is told, in order, and remembers what it was asked.

It knows nothing of Kubernetes: no versions, no admission, no watch cache. How a real API server
behaves is tested on a real one; here stand the answers that a real one gives too seldom.
"""

import asyncio
import json
import ssl
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Reply:
    """One answer. `then` says what follows the chunks: the end, a broken connection, or nothing."""

    status: int = 200
    chunks: list[bytes] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    then: str = "end"  # "end", "reset", "hang"; "away": no answer at all, the connection breaks
    delay: float = 0.0


@dataclass
class Asked:
    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    peer: str = ""  # the common name of the client's certificate


def reply(body: Any = None, status: int = 200, **headers: str) -> Reply:
    data = b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, [data], {"Content-Type": "application/json"} | named)


def status(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
    }
    return found | {"reason": reason, "message": message, "details": details}


def failed(code: int, reason: str = "", message: str = "", **details: Any) -> Reply:
    return reply(status(code, reason, message, **details), status=code)


def listed(*items: dict[str, Any], version: str = "100", token: str = "") -> Reply:
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return reply({"kind": "List", "metadata": metadata, "items": list(items)})


def event(type_: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": item}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def watched(*lines: bytes, then: str = "hang") -> Reply:
    return Reply(200, list(lines), {"Content-Type": "application/json"}, then)


HANG = Reply(then="hang")
AWAY = Reply(then="away")


class Scripted:
    """Answers by (verb, path): the queued ones in order, then the default, which repeats."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.host = ""
        self.queued: dict[tuple[str, str], deque[Reply]] = defaultdict(deque)
        self.defaults: dict[tuple[str, str], Reply | Callable[[Asked], Reply]] = {}
        self._over = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application(client_max_size=2**25)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.host = f"{'https' if tls else 'http'}://{host}:{port}"

    async def stop(self) -> None:
        self._over.set()
        assert self._runner is not None
        await self._runner.cleanup()

    # --- the script -----------------------------------------------------------------------

    def on(self, verb: str, path: str, *replies: Reply) -> None:
        self.queued[verb, path].extend(replies)

    def always(self, verb: str, path: str, answer: Reply | Callable[[Asked], Reply]) -> None:
        self.defaults[verb, path] = answer

    def count(self, *verbs: str) -> int:
        return sum(asked.verb in verbs for asked in self.asked)

    def verbs(self) -> list[str]:
        return [asked.verb for asked in self.asked]

    def last(self, verb: str) -> Asked:
        return [asked for asked in self.asked if asked.verb == verb][-1]

    # --- serving --------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        asked = Asked(
            _verb(request),
            request.path,
            dict(request.query),
            dict(request.headers),
            json.loads(data) if data else None,
            _peer(request),
        )
        self.asked.append(asked)
        return await self._play(request, self._next(asked))

    def _next(self, asked: Asked) -> Reply:
        queue = self.queued[asked.verb, asked.path]
        if queue:
            return queue.popleft()
        default = self.defaults.get((asked.verb, asked.path))
        if default is None:
            usual = {"list": listed(), "watch": HANG, "look": listed(version="")}
            default = usual.get(asked.verb, failed(404, "NotFound"))
        return default(asked) if callable(default) else default

    async def _play(self, request: web.Request, told: Reply) -> web.StreamResponse:
        if told.delay:
            await asyncio.sleep(told.delay)
        response = web.StreamResponse(status=told.status, headers=told.headers)
        if told.then == "away":
            assert request.transport is not None
            request.transport.abort()
            return response
        try:
            await response.prepare(request)
            for chunk in told.chunks:
                await response.write(chunk)
        except ConnectionResetError:
            return response  # whoever asked has gone, as a test that ends does
        if told.then == "reset":
            assert request.transport is not None
            request.transport.abort()
        elif told.then == "hang":
            await self._over.wait()
        return response


def _peer(request: web.Request) -> str:
    certificate = request.get_extra_info("peercert") or {}
    names = dict(pair for part in certificate.get("subject", ()) for pair in part)
    return str(names.get("commonName", ""))


def _verb(request: web.Request) -> str:
    if request.method != "GET":
        return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]
    if request.query.get("watch"):
        return "watch"
    if request.query.get("limit") == "1":
        return "look"  # at the version of a list
    return "list" if "limit" in request.query else "get"


class FakeTime:
    """A steady clock that only sleeping moves, and that never makes a test wait."""

    def __init__(self) -> None:
        self.t = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.t += seconds
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any], what: Callable[[], Any] = str) -> None:
    """Wait until the condition holds; five seconds, then say what was seen instead."""
    for _ in range(2500):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"it never came true; seen: {what()}")
