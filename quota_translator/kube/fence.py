"""The gate that every write passes: is this process still the one that writes?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from quota_translator.errors import NotLeading


class Fence:
    """Counts the writes on their way. `may_write` is asked before each of them."""

    def __init__(self, may_write: Callable[[], bool]) -> None:
        self._may_write = may_write
        self._writes = 0
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    def check(self, what: str) -> None:
        """Raises NotLeading."""
        if not self._may_write():
            raise NotLeading(f"{what}: this process does not lead (any more)")

    @asynccontextmanager
    async def passing(self, what: str) -> AsyncIterator[None]:
        """Around one write. Raises NotLeading; behind a closed fence it waits for ever."""
        await self._open.wait()
        self.check(what)
        self._writes += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._writes -= 1
            if not self._writes:
                self._idle.set()

    async def close(self, seconds: float) -> bool:
        """From now on no write begins: who wants one waits until it is cancelled, so that nobody
        takes the end of the process for a failure. Returns when those on their way have been
        answered; False when `seconds` were not enough."""
        self._open.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
