"""Lines of a watch, cut out of the byte stream by hand.

aiohttp's own line reader fails on lines beyond its buffer, and hands out the half line that a
broken connection leaves. Here a line may be as long as any object the API server stores, and what
has no line end is thrown away.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

from quota_translator.errors import Malformed, Silent

MAX_LINE: Final = 16 * 2**20


class Bytes(Protocol):
    """What is read from: aiohttp's StreamReader, or a test's list of chunks. b"" is the end."""

    async def readany(self) -> bytes: ...


class LineSplitter:
    """Chunks in, whole lines out. Raises Malformed once a line exceeds `limit` bytes."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []  # the line that has not ended yet
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            line = b"".join(self._parts).strip()
            self._parts, self._size = [], 0
            if line:
                yield line
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise Malformed(f"a watch line is longer than {self._limit} bytes")
        if part:
            self._parts.append(part)


class WatchStream:
    """An open watch: its lines, and how many bytes of body came (0: a deaf connection)."""

    def __init__(self, content: Bytes, silence: float, limit: int = MAX_LINE) -> None:
        self.received = 0
        self._content = content
        self._silence = silence
        self._splitter = LineSplitter(limit)

    async def lines(self) -> AsyncIterator[bytes]:
        """Whole lines until the server ends the stream. Raises Silent after `silence` seconds
        without a byte."""
        while chunk := await self._chunk():
            self.received += len(chunk)
            for line in self._splitter.feed(chunk):
                yield line

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout(self._silence):
                return await self._content.readany()
        except TimeoutError:
            raise Silent(f"nothing came for {self._silence:.0f} s") from None
