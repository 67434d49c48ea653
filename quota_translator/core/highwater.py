"""The high-water mark of every pair: the most that was installed, until a fall is believed.

A rise is believed after `grow_after`, a fall past the band after `drop_after`, a fall within it
after `settle_after`. What is not believed yet is a `Wait` in the row, which root's status carries
over a restart. Waits count steady seconds *between measurements*: a stretch in which nobody could
measure (no reading, watches unheard, the process down) adds nothing to them, and neither does a
jump of the wall clock.

Source of the rules: OME's high-water mark (`OME_CAPACITY` gives its numbers exactly), with
clocks of our own.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from quota_translator.core.capacity import PairReading, Reading
from quota_translator.core.names import Pair
from quota_translator.core.options import CapacityOptions
from quota_translator.core.quantity import ZERO
from quota_translator.core.waits import Waiting, paused
from quota_translator.core.world import CapacityRow, Clock

# How soon to look again when the watches are silent and no moment can be told.
_UNHEARD_RETRY: Final = 10.0


class Advanced(msgspec.Struct, frozen=True):
    """The rows after a measurement, in the order of their pairs.

    Root's status needs a write when `changed` (a row came, went, or differs in more than its stamp
    and the counting of its waits) or `stamped` (an unchanged row has a new stamp). `wake_at` is the
    steady moment at which a wait falls due or a stamp is due; None: at no moment.
    """

    rows: Mapping[Pair, CapacityRow]
    wake_at: float | None = None
    stamped: bool = False
    changed: bool = False


def advance(
    rows: Mapping[Pair, CapacityRow],
    reading: Reading | None,
    options: CapacityOptions,
    clock: Clock,
    heard: bool,
) -> Advanced:
    """Take in one measurement. `reading` None is no measurement: marks, waits and stamps stay.

    `heard`: the watches behind the reading heard from the server lately. Unless they did, unchanged
    rows get no stamp and no wait goes on.
    """
    if reading is None:
        return Advanced({pair: _paused(row) for pair, row in rows.items()})
    waiting = Waiting(options, clock, heard)
    after: dict[Pair, CapacityRow] = {}
    measured: set[Pair] = set()
    for pair in sorted(rows.keys() | reading.pairs.keys()):
        seen, before = reading.pairs.get(pair), rows.get(pair)
        if seen is not None and _is_measurement(before, seen):
            measured.add(pair)
            after[pair] = _measured(before, seen, waiting)
        elif before is not None and not _never_seen(before):
            is_held = seen is not None and seen.reported
            after[pair] = _paused(before) if is_held else _vanished(before)
    pairs = rows.keys() | after.keys()
    changed = {pair for pair in pairs if not same_row(rows.get(pair), after.get(pair))}
    stamped = _stamp(after, measured, changed, waiting)
    return Advanced(after, _wake_at(after, measured, waiting), stamped, bool(changed))


def same_row(one: CapacityRow | None, other: CapacityRow | None) -> bool:
    """Equal but for the counting of waits, which alone is no reason to write a status."""
    if one is None or other is None:
        return one is other
    return _uncounted(one) == _uncounted(other)


def _uncounted(row: CapacityRow) -> CapacityRow:
    pending = tuple(msgspec.structs.replace(w, elapsed=0.0) for w in paused(row.pending))
    return msgspec.structs.replace(row, pending=pending)


# --- rows that were not measured --------------------------------------------------------------


def _never_seen(row: CapacityRow) -> bool:
    return not row.ever_seen and not row.mark


def _paused(row: CapacityRow) -> CapacityRow:
    """The row as it is, its waits standing still until the next measurement."""
    return msgspec.structs.replace(row, pending=paused(row.pending)) if row.pending else row


def _vanished(row: CapacityRow) -> CapacityRow:
    """No node reports the pair: mark and stamp stay, for an empty pool is no loss."""
    return CapacityRow(
        pair=row.pair,
        allocatable=ZERO,
        unavailable=ZERO,
        unhealthy=ZERO,
        installed=ZERO,
        mark=row.mark,
        observed_at=row.observed_at,
        measured=False,
    )


# --- rows that were ---------------------------------------------------------------------------


def _is_measurement(before: CapacityRow | None, seen: PairReading) -> bool:
    """Whether a reading says something about the pair.

    A pair that no node reports is measured (as 0) only while no node ever has. Sums that lack an
    unreadable amount are a lower bound: they may raise a mark, but a fall cannot be told from them.
    """
    if not seen.reported:
        return before is None or _never_seen(before)
    return not seen.unreadable or before is None or seen.installed >= before.mark


def _measured(before: CapacityRow | None, seen: PairReading, waiting: Waiting) -> CapacityRow:
    mark, pending = waiting.believe(
        before.mark if before else ZERO, seen, before.pending if before else ()
    )
    return CapacityRow(
        pair=seen.pair,
        allocatable=seen.allocatable,
        unavailable=seen.unavailable,
        unhealthy=seen.unhealthy,
        installed=seen.installed,
        mark=mark,
        nodes=seen.nodes,
        unavailable_nodes=seen.unavailable_nodes,
        pending=pending,
        observed_at=before.observed_at if before else None,
        ever_seen=seen.reported,
    )


# --- stamps and waking ------------------------------------------------------------------------


def _stamp(
    rows: dict[Pair, CapacityRow], measured: set[Pair], changed: set[Pair], waiting: Waiting
) -> bool:
    """Stamp measured rows, in place; whether one that did not change has a new stamp.

    When one stamp is due all are renewed: steady state is one write per interval, not one per row.
    """
    is_due = waiting.heard and any(
        (left := _stamp_in(rows[pair], waiting)) is not None and left <= 0
        for pair in measured - changed
    )
    for pair in measured if is_due else measured & changed:
        rows[pair] = msgspec.structs.replace(rows[pair], observed_at=waiting.at)
    return is_due


def _stamp_in(row: CapacityRow, waiting: Waiting) -> float | None:
    """Seconds until the row's stamp is due; None: never. Missing or in the future: due now."""
    interval = waiting.options.report_interval
    if interval <= 0:
        return None
    if row.observed_at is None or row.observed_at > waiting.clock.wall:
        return 0.0
    # Stamps have whole seconds, so a shorter interval would find its own stamp too old.
    return max(interval, 1.0) - (waiting.clock.wall - row.observed_at).total_seconds()


def _wake_at(
    rows: Mapping[Pair, CapacityRow], measured: set[Pair], waiting: Waiting
) -> float | None:
    steady = waiting.clock.steady
    if not waiting.heard:
        return steady + _UNHEARD_RETRY if rows else None
    waits = [waiting.remaining(wait) for pair in measured for wait in rows[pair].pending]
    stamps = [_stamp_in(rows[pair], waiting) for pair in measured]
    return min((steady + left for left in waits + stamps if left is not None), default=None)
