"""One request on its way through the fault proxy, and the watches that are open at this moment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
WRITES = frozenset(VERBS.values())
_FORWARDED = ("Authorization", "Accept", "Content-Type", "User-Agent")
_RETURNED = ("Content-Type", "Retry-After", "Warning", "Audit-Id")
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass
class Seen:
    """One request as the proxy saw it. `at` is in seconds of `time.monotonic`.

    `outcome` is the HTTP status that the client got, or what became of the request instead:
    "reset", "dropped" (the client went away while it waited), "" while it is on its way. A watch
    has the status with which it was opened, and `version` is the newest that was sent on it.
    `upstream` says that the API server was asked.
    """

    verb: str
    path: str
    query: Mapping[str, str]
    agent: str
    user: str
    body: Any
    at: float = field(default_factory=time.monotonic)
    outcome: str = ""
    upstream: bool = False
    version: str = ""

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    @property
    def name(self) -> str:
        """The object's name, of creates too."""
        if self.verb == "create" and isinstance(self.body, dict):
            return str(self.body.get("metadata", {}).get("name", ""))
        return self.path.removesuffix("/status").rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.verb} {self.path} {self.outcome}"


@dataclass(frozen=True)
class Answer:
    """A whole answer, from the API server or made up."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Stream:
    """An open watch. What is to be sent stands in a queue: lines, or how it ends."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.queue: asyncio.Queue[bytes | str] = asyncio.Queue()
        seen.version = seen.query.get("resourceVersion", "0")

    def matches(self, path: str) -> bool:
        return re.search(path, self.seen.path) is not None

    def note(self, line: bytes) -> None:
        """Keep the newest version that was sent."""
        document = decoded(line)
        item = document.get("object", {}) if isinstance(document, dict) else {}
        version = item.get("metadata", {}).get("resourceVersion", "")
        if version.isdecimal() and int(version) > int(self.seen.version):
            self.seen.version = version


class Exchange:
    """One request: what came, ways to ask the API server, and ways to answer."""

    def __init__(
        self,
        request: web.Request,
        data: bytes,
        seen: Seen,
        upstream: aiohttp.ClientSession,
        url: str,
    ) -> None:
        self.request, self.data, self.seen = request, data, seen
        self._upstream, self._url = upstream, url
        self.streams: set[Stream] = set()
        self.muted: Callable[[str], bool] = lambda _path: False

    # --- asking the API server ------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def asked(
        self, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The API server's answer to this request; `query` changes parameters of it."""
        url = URL(self._url + self.request.raw_path, encoded=True)
        if query:
            url = url.update_query(query)
        headers = {k: self.request.headers[k] for k in _FORWARDED if k in self.request.headers}
        self.seen.upstream = True
        async with self._upstream.request(
            self.request.method,
            url,
            headers=headers | {"Accept-Encoding": "identity"},
            data=self.data or None,
            allow_redirects=False,
        ) as response:
            yield response

    async def forward(self, query: Mapping[str, str] | None = None) -> Answer:
        async with self.asked(query) as response:
            headers = {k: response.headers[k] for k in _RETURNED if k in response.headers}
            return Answer(response.status, await response.read(), headers)

    # --- answering ------------------------------------------------------------------------

    async def answer(self, answer: Answer, pace: float | None = None) -> web.StreamResponse:
        """Send a whole answer; `pace` is a slow link's bytes in a second."""
        self.seen.outcome = str(answer.status)
        if pace is None:
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(answer.body)
        await response.prepare(self.request)
        step = max(1, int(pace / 10))
        for start in range(0, len(answer.body), step):
            await response.write(answer.body[start : start + step])
            await asyncio.sleep(step / pace)
        return response

    def abort(self) -> web.StreamResponse:
        """Break the connection, as a reset does; nothing more can be sent on it."""
        self.seen.outcome = "reset"
        transport = self.request.transport
        if transport is not None:
            if (found := transport.get_extra_info("socket")) is not None:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            transport.abort()
        return web.Response()

    # --- a watch --------------------------------------------------------------------------

    async def relay(
        self,
        change: Callable[[bytes], list[bytes]] = lambda line: [line],
        first: tuple[bytes | str, ...] = (),
    ) -> web.StreamResponse:
        """Pass a watch on, each line of the server's changed; `first` comes before them."""
        async with self.asked() as upstream:
            if upstream.status != 200:
                headers = {k: v for k, v in upstream.headers.items() if k in _RETURNED}
                return await self.answer(Answer(upstream.status, await upstream.read(), headers))
            stream = Stream(self.seen)
            for item in first:
                stream.queue.put_nowait(item)
            reader = asyncio.create_task(self._read(upstream, stream, change))
            self.streams.add(stream)
            try:
                return await self._send(stream)
            finally:
                self.streams.discard(stream)
                reader.cancel()

    async def _read(
        self,
        upstream: aiohttp.ClientResponse,
        stream: Stream,
        change: Callable[[bytes], list[bytes]],
    ) -> None:
        """The server's lines into the stream's queue, and the end of them."""
        rest, how = b"", "reset"
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for chunk in upstream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if not self.muted(self.seen.path):
                        for changed in change(line + b"\n"):
                            stream.queue.put_nowait(changed)
            how = "end"
        stream.queue.put_nowait(how)

    async def _send(self, stream: Stream) -> web.StreamResponse:
        self.seen.outcome = "200"
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(self.request)
        while True:
            item = await stream.queue.get()
            if isinstance(item, bytes):
                await response.write(item)
                stream.note(item)
                continue
            if item == "reset":
                self.abort()
                self.seen.outcome = "200"  # it was opened
            return response


def classified(request: web.Request) -> str:
    """get, list, look (at a list's version, with one object of it), watch, or a write's verb."""
    if request.method != "GET":
        return VERBS.get(request.method, request.method.lower())
    if request.query.get("watch") in {"1", "true"}:
        return "watch"
    if request.query.get("limit") == "1":
        return "look"
    return "list" if "limit" in request.query else "get"


def decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None
