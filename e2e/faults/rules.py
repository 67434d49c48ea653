"""Which requests the fault proxy treats in a special way."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from e2e.faults.actions import Action, Held
from e2e.faults.exchange import WRITES, Seen
from e2e.waiting import eventually


class Rule:
    """What is done with some requests. A context manager: at its end it is no rule any more."""

    def __init__(
        self, matches: Callable[[Seen], bool], action: Action, skip: int, times: int | None
    ) -> None:
        self.seen: list[Seen] = []  # those that it took
        self._matches, self._action = matches, action
        self._skip, self._left = skip, times
        self._lock = threading.Lock()

    def takes(self, seen: Seen) -> Action | None:
        """The action if the rule wants this request; counted."""
        with self._lock:
            if self._left == 0 or not self._matches(seen):
                return None
            if self._skip:
                self._skip -= 1
                return None
            self._left = None if self._left is None else self._left - 1
            self.seen.append(seen)
            return self._action

    def wait(self, count: int = 1, timeout: float = 30) -> Self:
        """Until it took so many requests."""
        eventually(lambda: len(self.seen) >= count, timeout, f"{count} requests for a rule")
        return self

    def end(self) -> None:
        """Take no more requests, and let go those that hang."""
        with self._lock:
            self._left = 0
        if isinstance(self._action, Held):
            self._action.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def matches(seen: Seen, verb: str, path: str) -> bool:
    """Whether a request has this verb ("write" for any that changes something, "" for any) and a
    path in which the regular expression is found."""
    verbs = WRITES if verb == "write" else {verb}
    return (not verb or seen.verb in verbs) and re.search(path, seen.path) is not None
