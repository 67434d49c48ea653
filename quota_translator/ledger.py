"""Which Events are to be written, and when: the same again is counted, and a flood is cut.

Pure but for its own state: moments are given. A node that flaps for an hour costs one Event a
reason, and a count on it every few minutes; a node that says something new all the time has a
bucket of tokens; and the queue of what is not written yet is bounded.
"""

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal

import msgspec

from quota_translator.core.happenings import Happening
from quota_translator.core.world import Clock

SAME_WITHIN: Final = 3600.0  # seconds since the last time: as long as a server keeps an Event
COUNT_PAUSE: Final = 300.0  # between two counts on one Event
BURST: Final = 25  # new Events of one node at once, and then
REFILL: Final = 5.0  # seconds for each further one
QUEUE: Final = 256  # Events that wait to be written
REMEMBERED: Final = 2048
ATTEMPTS: Final = 5
_ROUNDING: Final = 1e-6  # what sums of moments are off by

Outcome = Literal["new", "again", "dropped"]
_Key = tuple[str, str, str]


class Entry(msgspec.Struct):
    """One Event. `name` is "" until it is there, `due` (steady) when it is to be written next."""

    happening: Happening
    first: datetime
    last: datetime
    last_steady: float
    due: float
    count: int = 1
    written: int = 0  # the count that the server has
    name: str = ""
    failures: int = 0


class Bucket(msgspec.Struct):
    """Tokens: `burst` at first, and one more every `refill` seconds."""

    burst: int
    refill: float
    tokens: float
    at: float

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0: there is one."""
        self.tokens = min(self.burst, self.tokens + (now - self.at) / self.refill)
        self.at = now
        lack = 1 - self.tokens
        return lack * self.refill if lack > _ROUNDING else 0.0

    def take(self, now: float) -> bool:
        if self.wait(now) > 0:
            return False
        self.tokens -= 1
        return True


class Ledger:
    """Takes what happened, gives what is to be written now, and learns what became of it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[_Key, Entry] = OrderedDict()
        self._pending: dict[_Key, Entry] = {}
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def tell(self, happening: Happening, clock: Clock) -> Outcome:
        """One happening. `dropped`: there were too many."""
        key = _key(happening)
        entry = self._entries.get(key)
        if entry is not None and clock.steady - entry.last_steady < SAME_WITHIN:
            return self._again(key, entry, clock)
        if len(self._pending) >= QUEUE or not self._bucket(key[0], clock.steady):
            return "dropped"
        entry = Entry(happening, clock.wall, clock.wall, clock.steady, clock.steady)
        self._entries[key] = self._pending[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > REMEMBERED:
            self._entries.popitem(last=False)
        return "new"

    def _again(self, key: _Key, entry: Entry, clock: Clock) -> Outcome:
        entry.count += 1
        entry.last, entry.last_steady = clock.wall, clock.steady
        self._entries.move_to_end(key)
        self._pending.setdefault(key, entry)
        return "again"

    def _bucket(self, node: str, now: float) -> bool:
        bucket = self._buckets.setdefault(node, Bucket(BURST, REFILL, BURST, now))
        self._buckets.move_to_end(node)
        while len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket.take(now)

    # --- writing --------------------------------------------------------------------------

    def next(self, now: float) -> Entry | None:
        """What is to be written first, if it is due."""
        first = min(self._pending.values(), key=lambda entry: entry.due, default=None)
        return first if first is not None and first.due <= now + _ROUNDING else None

    @property
    def wake_at(self) -> float | None:
        """The steady moment at which something is due; None: nothing waits."""
        return min((entry.due for entry in self._pending.values()), default=None)

    def all_pending(self) -> Iterator[Entry]:
        """Everything that waits, the soonest first."""
        yield from sorted(self._pending.values(), key=lambda entry: entry.due)

    def written(self, entry: Entry, name: str, count: int, now: float) -> None:
        """The server has it under this name, with this count."""
        entry.name, entry.written, entry.failures = name, count, 0
        entry.due = now + COUNT_PAUSE
        if entry.count == count:
            self._pending.pop(_key(entry.happening), None)

    def failed(self, entry: Entry, now: float, pause: float | None) -> bool:
        """It could not be written; whether it is tried again. `pause` None: it never will be."""
        entry.failures += 1
        if pause is not None and entry.failures < ATTEMPTS:
            entry.due = now + max(pause, 2.0**entry.failures)
            return True
        key = _key(entry.happening)
        self._pending.pop(key, None)
        self._entries.pop(key, None)
        return False


def _key(happening: Happening) -> _Key:
    return (happening.uid or happening.node, happening.reason, happening.message)
