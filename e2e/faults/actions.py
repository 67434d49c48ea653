"""What the fault proxy can do with a request instead of passing it on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from e2e.faults.exchange import Answer, Exchange

Action = Callable[[Exchange], Awaitable[web.StreamResponse]]
HTML = b"<html>\n<body>\n<h1>503 Service Unavailable</h1>\n</body>\n</html>\n"
_JSON = {"Content-Type": "application/json"}


# --- whole answers ------------------------------------------------------------------------------


async def passed(exchange: Exchange) -> web.StreamResponse:
    """What the proxy does when no rule says otherwise: it is not there."""
    if exchange.seen.verb == "watch":
        return await exchange.relay()
    return await exchange.answer(await exchange.forward())


def status(
    code: int,
    reason: str = "",
    message: str = "scripted",
    *,
    header: int | None = None,
    body: int | None = None,
    **details: object,
) -> Action:
    """The API server's own kind of refusal; `header` and `body` are seconds of a Retry-After."""
    found = details | ({"retryAfterSeconds": body} if body is not None else {})
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": found,
    }
    headers = _JSON | ({"Retry-After": str(header)} if header is not None else {})
    return raw(code, json.dumps(document).encode(), headers)


def html(code: int = 503) -> Action:
    """What a load balancer says."""
    return raw(code, HTML, {"Content-Type": "text/html"})


def raw(code: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Action:
    return lambda exchange: exchange.answer(Answer(code, body, headers or {}))


def edited(change: Callable[[Any], Any], query: Mapping[str, str] | None = None) -> Action:
    """The API server's answer, changed: `change` gets the document, and gives or changes it.

    `query` changes the request's parameters: {"limit": "2"} makes a list of many pages.
    """

    async def act(exchange: Exchange) -> web.StreamResponse:
        answer = await exchange.forward(query)
        document = json.loads(answer.body)
        changed = change(document)
        body = json.dumps(document if changed is None else changed).encode()
        return await exchange.answer(Answer(answer.status, body, answer.headers))

    return act


def slow(bytes_per_second: float) -> Action:
    """A slow link, for whole answers."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        return await exchange.answer(await exchange.forward(), bytes_per_second)

    return act


# --- broken connections -------------------------------------------------------------------------


def reset(*, after: bool = False) -> Action:
    """Break the connection, before the API server hears of the request or after it answered."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        if after:
            await exchange.forward()
        return exchange.abort()

    return act


def call(function: Callable[[], object], *, after: bool = False) -> Action:
    """Call a function of the test, such as a kill, before or after the API server is asked; then
    the connection breaks."""

    async def act(exchange: Exchange) -> web.StreamResponse:
        if after:
            await exchange.forward()
        await asyncio.to_thread(function)
        return exchange.abort()

    return act


class Held:
    """An action that lets requests hang without a byte until the test releases them.

    `after`: the API server is asked first, so that what a write did stands and nobody knows. With
    `release` those that still wait are answered as if nothing had been.
    """

    def __init__(self, *, after: bool = False) -> None:
        self._after = after
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._released = False

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        answer = await exchange.forward() if self._after else None
        gate = asyncio.Event()
        self._waiting.append((asyncio.get_running_loop(), gate))
        if not self._released:
            await gate.wait()
        return await (passed(exchange) if answer is None else exchange.answer(answer))

    def release(self) -> None:
        """From the test's thread."""
        self._released = True
        for loop, gate in self._waiting:
            loop.call_soon_threadsafe(gate.set)


def hang(*, after: bool = False) -> Held:
    return Held(after=after)


# --- watches ------------------------------------------------------------------------------------


def ended(*lines: bytes, how: str = "end") -> Action:
    """Open the watch, send these lines (perhaps half a one), and end or "reset" it."""
    return lambda exchange: exchange.relay(first=(*lines, how))


def preceded(*lines: bytes) -> Action:
    """These lines first, then what the API server sends."""
    return lambda exchange: exchange.relay(first=lines)


def changed(change: Callable[[bytes], list[bytes]]) -> Action:
    """Each line of the API server's becomes these: none drops it, two repeat it."""
    return lambda exchange: exchange.relay(change)


def without_bookmarks(line: bytes) -> list[bytes]:
    return [] if b'"type":"BOOKMARK"' in line else [line]


def twice(line: bytes) -> list[bytes]:
    return [line, line]


def event(kind: str, item: Mapping[str, Any]) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def expired() -> bytes:
    """The event with which a server says that it cannot go on from a version."""
    return event(
        "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    )
