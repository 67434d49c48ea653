"""When to try again: growing pauses with full jitter, and an upper bound on how often.

Clock and random numbers come from outside, so that tests need no real time.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

HEALTHY_SECONDS: Final = 120.0  # client-go's: after this long without a failure, start small again


class Backoff:
    """0.8 s, doubled to 30 s; each pause is a random part of that (full jitter)."""

    def __init__(
        self,
        now: Callable[[], float],
        rand: Callable[[], float],
        base: float = 0.8,
        cap: float = 30.0,
    ) -> None:
        self._now = now
        self._rand = rand
        self._base = base
        self._cap = cap
        self._failures = 0
        self._last = float("-inf")

    def pause(self) -> float:
        """Seconds to wait after a failure that happened now."""
        if self._now() - self._last > HEALTHY_SECONDS + self._cap:
            self._failures = 0
        bound = min(self._cap, self._base * 2.0 ** min(self._failures, 30))
        self._failures += 1
        self._last = self._now()
        return bound * self._rand()

    def reset(self) -> None:
        self._failures = 0


class Pacer:
    """At most `most` openings within `within` seconds, whatever the backoff's luck.

    Full jitter alone lets a run of small random numbers become a tight loop.
    """

    def __init__(self, now: Callable[[], float], most: int = 12, within: float = 60.0) -> None:
        self._now = now
        self._within = within
        self._at: deque[float] = deque(maxlen=most)

    def wait(self) -> float:
        """Seconds until the next opening is allowed; 0: now."""
        if len(self._at) < (self._at.maxlen or 0):
            return 0.0
        return max(0.0, self._at[0] + self._within - self._now())

    def note(self) -> None:
        """An opening happens now."""
        self._at.append(self._now())
