"""A pause that the server asked for, kept by everybody who writes to it."""

from collections.abc import Awaitable, Callable

from quota_translator.errors import Throttled


class Gate:
    """A pause for all writes of one class, as the server asked for it."""

    def __init__(
        self,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        patience: float = 30.0,
        attempts: int = 4,
    ) -> None:
        self.patience = patience  # a longer pause is not waited for: the next pass tries again
        self.attempts = attempts
        self._now = now
        self._sleep = sleep
        self._until = float("-inf")

    @property
    def remaining(self) -> float:
        return max(0.0, self._until - self._now())

    def close_for(self, seconds: float) -> None:
        self._until = max(self._until, self._now() + seconds)

    async def passed(self) -> bool:
        """Wait until the pause is over; False at once when it is longer than one waits."""
        while (left := self.remaining) > 0:
            if left > self.patience:
                return False
            await self._sleep(left)
        return True

    async def send(self, request: Callable[[], Awaitable[bytes]]) -> bytes:
        """Send once the gate is open, and again after a 429. Raises Throttled in the end."""
        for attempt in range(self.attempts):
            if not await self.passed():
                break
            try:
                return await request()
            except Throttled as error:
                self.close_for(1.0 * 2**attempt if error.retry_after is None else error.retry_after)
        raise Throttled(
            f"the server is busy; it asks for {self.remaining:.0f} s of pause",
            status=429,
            retry_after=self.remaining,
        )
