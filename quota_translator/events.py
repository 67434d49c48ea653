"""Writes Events about the tree's nodes beside the passes, none of which waits or fails for one."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Protocol

import structlog

from quota_translator.core.happenings import Happening
from quota_translator.core.world import Clock
from quota_translator.errors import ApiError, NotFound, Unavailable
from quota_translator.ledger import Bucket, Entry, Ledger

# Of all nodes together: so many requests at once, and then one for each so many seconds.
BURST: Final = 50
REFILL: Final = 0.2
TELL_SECONDS: Final = 600.0  # between two lines about Events that cannot be written

Count = Callable[[str], None]


class Sink(Protocol):
    """Where Events go. Both raise ApiError."""

    async def create(
        self, happening: Happening, first: datetime, last: datetime, count: int
    ) -> str: ...

    async def count(self, name: str, last: datetime, count: int) -> None: ...


class Recorder:
    """`tell` at any time, `run` until cancelled, and `stop` when nothing more is told.

    `count` is called with what became of each: created, counted, dropped.
    """

    def __init__(self, sink: Sink, now: Callable[[], Clock], count: Count = lambda _: None) -> None:
        self._sink, self._now, self._count = sink, now, count
        self._ledger = Ledger()
        self._pace = Bucket(BURST, REFILL, BURST, now().steady)
        self._told = asyncio.Event()
        self._one = asyncio.Lock()  # one Event is written at a time
        self._log = structlog.get_logger("events")
        self._complained_at = float("-inf")

    def tell(self, happenings: Iterable[Happening]) -> None:
        """Take them to be written. Returns at once; what is too much is dropped and counted."""
        clock = self._now()
        for happening in happenings:
            if self._ledger.tell(happening, clock) == "dropped":
                self._count("dropped")
            self._told.set()

    async def run(self) -> None:
        """Write what is due, for ever."""
        while True:
            now = self._now().steady
            entry = self._ledger.next(now)
            if entry is None:
                await self._wait(self._ledger.wake_at)
            elif (pause := self._pace.wait(now)) > 0:
                await asyncio.sleep(pause)
            else:
                self._pace.take(now)
                async with self._one:
                    await self._write(entry)

    async def stop(self, grace: float) -> None:
        """Write what still waits, the pauses left out, for at most `grace` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace), self._one:
                for entry in self._ledger.all_pending():
                    await self._write(entry)

    async def _wait(self, until: float | None) -> None:
        """For something to be told, or for the moment."""
        self._told.clear()
        left = None if until is None else max(0.0, until - self._now().steady)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._told.wait()

    async def _write(self, entry: Entry) -> None:
        count = entry.count
        try:
            name = await self._sent(entry, count)
        except ApiError as error:
            self._failed(entry, error)
        except Exception:  # noqa: BLE001  what is told of the work must not end it
            self._log.exception("writing an event failed", quota=entry.happening.node)
            self._ledger.failed(entry, self._now().steady, None)
            self._count("dropped")
        else:
            self._count("counted" if entry.written else "created")
            self._ledger.written(entry, name, count, self._now().steady)

    async def _sent(self, entry: Entry, count: int) -> str:
        if entry.name:
            try:
                await self._sink.count(entry.name, entry.last, count)
            except NotFound:  # the server keeps Events for a while only
                entry.written = 0
            else:
                return entry.name
        return await self._sink.create(entry.happening, entry.first, entry.last, count)

    def _failed(self, entry: Entry, error: ApiError) -> None:
        clock = self._now()
        pause = (error.retry_after or 0.0) if isinstance(error, Unavailable) else None
        if self._ledger.failed(entry, clock.steady, pause):
            return
        self._count("dropped")
        if clock.steady - self._complained_at >= TELL_SECONDS:
            self._complained_at = clock.steady
            self._log.warning(
                "an event could not be written",
                quota=entry.happening.node,
                reason=entry.happening.reason,
                message=error.message,
            )
