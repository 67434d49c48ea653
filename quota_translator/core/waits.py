"""Changes of hardware that are not believed yet, and the marks that they become.

*Grow* runs from the first reading above the mark, *Settle* from the first below it, *Drop* from the
first past the band; the two falls run side by side, each since its own first reading. A rise
becomes the smallest reading since, a fall the largest: the mark never promises, nor takes away,
more than has been there all the while. Every measurement judges anew by the options it is given.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from quota_translator.core.capacity import PairReading
from quota_translator.core.options import CapacityOptions
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Clock, Wait, WaitKind

# In the order in which they are believed. Drop before Settle: its value is the lower one, and
# against the mark that Settle leaves it would be judged again.
_KINDS: Final[tuple[WaitKind, ...]] = ("Drop", "Settle", "Grow")
# Timers fire on floats; a wait that lacks less than this has been waited for.
_CLOSE: Final = 1e-6
# `until` is for people: it is put right only when it is off by more than clocks drift.
_UNTIL_SLACK: Final = timedelta(seconds=5)


class Waiting(msgspec.Struct, frozen=True):
    """One moment of measuring, and the rules of waiting at it."""

    options: CapacityOptions
    clock: Clock
    heard: bool  # the watches behind the reading are alive; without that no wait goes on

    @property
    def at(self) -> datetime:
        """The moment as statuses tell it: whole seconds, as everywhere in the API."""
        return self.clock.wall.replace(microsecond=0)

    def believe(
        self, mark: Quantity, seen: PairReading, pending: Iterable[Wait]
    ) -> tuple[Quantity, tuple[Wait, ...]]:
        """The mark after a reading, and the waits that go on."""
        waits: Mapping[WaitKind, Wait] = {wait.kind: self._counted(wait) for wait in pending}
        while True:  # each turn ends a wait, and one that begins here is due only without a delay
            waits = {wait.kind: wait for wait in self._waits(mark, seen, waits)}
            due = next((w for k in _KINDS if (w := waits.get(k)) and self._is_due(w)), None)
            if due is None:
                return mark, tuple(self._told(wait) for wait in waits.values())
            mark = due.value
            waits = {kind: wait for kind, wait in waits.items() if wait is not due}

    def _waits(
        self, mark: Quantity, seen: PairReading, waits: Mapping[WaitKind, Wait]
    ) -> Iterable[Wait]:
        """What the reading leaves waiting against this mark: waits that go on, and new ones."""
        rise = seen.installed if self.options.growth == "Installed" else seen.allocatable
        fall = seen.installed
        if rise > mark:
            return [self._lasting(waits.get("Grow"), Wait("Grow", rise, self.at), mark)]
        if fall >= mark:
            return []
        settle = self._lasting(waits.get("Settle"), Wait("Settle", fall, self.at), mark)
        if not self._is_past_band(fall, mark):
            return [settle]
        drop = self._lasting(waits.get("Drop"), Wait("Drop", fall, self.at), mark)
        if "Drop" not in waits or not self._is_past_band(drop.value, mark):
            # All that Settle saw may be past the band (the options moved it): a Drop since then.
            whole = self._is_past_band(settle.value, mark)
            since = settle if whole else Wait("Drop", fall, self.at)
            drop = msgspec.structs.replace(since, kind="Drop", until=None)
        return [settle, drop]

    def _lasting(self, old: Wait | None, new: Wait, mark: Quantity) -> Wait:
        """The wait that goes on with the new reading in it, or the new one.

        A wait whose value the mark has reached is over. Without a delay nothing lasts: each reading
        is believed for itself.
        """
        if old is None or self._limit(new.kind) == 0:
            return new
        if new.kind == "Grow":
            value, is_over = min(old.value, new.value), old.value <= mark
        else:
            value, is_over = max(old.value, new.value), old.value >= mark
        return new if is_over else msgspec.structs.replace(old, value=value)

    def _is_past_band(self, fall: Quantity, mark: Quantity) -> bool:
        """The edge is within the band; a band of 100 or more has no beyond, one of 0 no within."""
        return fall.nanos * 100 < mark.nanos * (100 - self.options.hysteresis_percent)

    def _limit(self, kind: WaitKind) -> float | None:
        """How long a wait of this kind lasts; None: for ever."""
        if kind == "Grow":
            return self.options.grow_after
        if self.options.hysteresis_percent >= 100:
            return None
        return self.options.drop_after if kind == "Drop" else self.options.settle_after

    def remaining(self, wait: Wait) -> float | None:
        """Seconds until the wait falls due; None: never."""
        limit = self._limit(wait.kind)
        return None if limit is None else limit - wait.elapsed

    def _is_due(self, wait: Wait) -> bool:
        remaining = self.remaining(wait)
        return remaining is not None and remaining <= _CLOSE

    def _counted(self, wait: Wait) -> Wait:
        """Add the time since the last measurement, if somebody measured all the while."""
        if not self.heard:
            return msgspec.structs.replace(wait, counted_at=None)
        steady = self.clock.steady
        lasted = 0.0 if wait.counted_at is None else max(0.0, steady - wait.counted_at)
        return msgspec.structs.replace(wait, elapsed=wait.elapsed + lasted, counted_at=steady)

    def _told(self, wait: Wait) -> Wait:
        """With the moment that people read, and counting from here."""
        if not self.heard and wait.until is not None:
            return wait  # standing still: nobody can say until when
        counted_at = self.clock.steady if self.heard else None
        return msgspec.structs.replace(wait, until=self._until(wait), counted_at=counted_at)

    def _until(self, wait: Wait) -> datetime | None:
        remaining = self.remaining(wait)
        if remaining is None:
            return None
        try:
            until = self.at + timedelta(seconds=int(remaining))
        except OverflowError:
            return None
        is_right = wait.until is not None and abs(wait.until - until) <= _UNTIL_SLACK
        return wait.until if is_right else until


def paused(pending: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """The waits, standing still until the next measurement."""
    return tuple(msgspec.structs.replace(wait, counted_at=None) for wait in pending)
