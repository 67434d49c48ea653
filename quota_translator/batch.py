"""When to run the next pass: after a moment of quiet, or when a wait ends.

Events come in bursts (a rollout touches hundreds of nodes), and a pass computes everything again,
so a pass waits until nothing has happened for `idle` seconds, but never longer than `most` after
the first event. Nodes get a wider window than edits: hardware may wait a moment, a person may not.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec


class Window(msgspec.Struct, frozen=True):
    """Seconds of quiet before a pass, and the most that events may delay it."""

    idle: float
    most: float


EDITS: Final = Window(0.05, 0.5)
NODES: Final = Window(0.2, 2.0)


class Batcher:
    """Collects events until a pass is due. Reads steady seconds from the function it is given."""

    def __init__(self, steady: Callable[[], float], slow_kinds: frozenset[str]) -> None:
        self._steady = steady
        self._slow_kinds = slow_kinds
        self._first: dict[Window, float] = {}
        self._last: dict[Window, float] = {}
        self._changed = asyncio.Event()

    def mark(self, kind: str) -> None:
        """Something of this kind changed."""
        window = NODES if kind in self._slow_kinds else EDITS
        now = self._steady()
        self._first.setdefault(window, now)
        self._last[window] = now
        self._changed.set()

    @property
    def dirty(self) -> bool:
        return bool(self._first)

    @property
    def waiting_since(self) -> float | None:
        """The steady moment of the first event that no pass has taken up; None: there is none."""
        return min(self._first.values(), default=None)

    def due(self) -> float | None:
        """The steady moment at which the events so far call for a pass; None: there are none."""
        moments = [
            min(self._last[window] + window.idle, first + window.most)
            for window, first in self._first.items()
        ]
        return min(moments, default=None)

    async def wait(self, wake_at: float | None) -> None:
        """Return when a pass is due: for the events, or because `wake_at` (steady) has come."""
        while True:
            moments = [moment for moment in (self.due(), wake_at) if moment is not None]
            left = min(moments) - self._steady() if moments else None
            if left is not None and left <= 0:
                # Whatever asks for pass after pass, the Lease, the probes and the webhook go on.
                await asyncio.sleep(0)
                self._first.clear()
                self._last.clear()
                self._changed.clear()
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                continue
