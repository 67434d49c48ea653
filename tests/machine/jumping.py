"""An event loop that does not wait: when nothing is ready, the time of the next timer is now."""

import asyncio
import selectors
from typing import Any


class _NoWait(selectors.DefaultSelector):
    """In place of waiting, the loop's time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is scheduled, so nothing would ever happen again"
        self.passed += max(0.0, timeout)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Simulated seconds since the loop was made. Only for what does no real I/O."""

    def __init__(self) -> None:
        self._without = _NoWait()
        super().__init__(self._without)

    def time(self) -> float:
        return self._without.passed
