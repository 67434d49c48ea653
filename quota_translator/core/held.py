"""Pairs that leave a queue: rendered as 0 first, and gone when nothing can still be using them.

Kueue shows no use of a pair that a queue no longer lists, although it goes on counting it; so a
pair stays, at 0 and without borrowing, until Kueue has been seen to have the 0, long enough for
its figures to catch up (they lag by a second), and those figures are 0.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from quota_translator.core.groups import Cell
from quota_translator.core.kueue import cells
from quota_translator.core.names import CLUSTER_QUEUE, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Clock, Memory, Observed

HOLD_SECONDS: Final = 3.0


class Held(msgspec.Struct, frozen=True):
    """The pairs of one queue that stay at 0.

    `reserved` says of each what is still in use, None where that is not known; `wake_at` is the
    steady moment at which the first of them that waits for time alone may go.
    """

    cells: tuple[Cell, ...] = ()
    reserved: Mapping[Pair, Quantity | None] = {}
    wake_at: float | None = None


def advance_zeroed(
    live: Mapping[Key, Observed], memory: Memory, clock: Clock
) -> dict[tuple[Key, Pair], float]:
    """`Memory.zeroed` after this look at the queues: since when (steady) Kueue has each 0.

    It counts from the first look at which Active speaks of a spec that has the 0, and while the
    pair stays 0 a newer spec does not start it anew.
    """
    found: dict[tuple[Key, Pair], float] = {}
    for key, pair, taken in _zeros(live):
        since = memory.zeroed.get((key, pair))
        if since is not None or taken:
            found[key, pair] = clock.steady if since is None else since
    return found


def held_pairs(
    queue: Observed,
    wanted: AbstractSet[Pair],
    memory: Memory,
    clock: Clock,
    may_stay: Callable[[Pair], bool],
) -> Held:
    """What a live queue lists, is no longer wanted, and has to stay for now."""
    stay: list[Cell] = []
    reserved: dict[Pair, Quantity | None] = {}
    wake_at: float | None = None
    for pair in sorted(cells(queue.spec)):
        if pair in wanted or not may_stay(pair):
            continue
        use, since = _in_use(queue, pair), memory.zeroed.get((queue.key, pair))
        if use == ZERO and since is not None:
            due = since + HOLD_SECONDS
            if due <= clock.steady:
                continue
            wake_at = due if wake_at is None else min(wake_at, due)
        stay.append(Cell(queue.key.name, pair, ZERO, ZERO))
        reserved[pair] = use
    return Held(tuple(stay), reserved, wake_at)


def _in_use(queue: Observed, pair: Pair) -> Quantity | None:
    """The larger of what is reserved and what is admitted; None while Kueue has told nothing."""
    if queue.usage is None or queue.reservation is None:
        return None
    told = [figures[pair].total for figures in (queue.usage, queue.reservation) if pair in figures]
    return max(told, default=ZERO)


def _zeros(live: Mapping[Key, Observed]) -> Iterator[tuple[Key, Pair, bool]]:
    for key, queue in live.items():
        if key.kind == CLUSTER_QUEUE and queue.managed_by is not None:
            taken = queue.active is not None and queue.active_generation >= queue.generation
            for pair, cell in cells(queue.spec).items():
                if _is_zero(cell):
                    yield key, pair, taken


def _is_zero(cell: Mapping[str, Any]) -> bool:
    return bool(cell.get("nominalQuota") == ZERO and cell.get("borrowingLimit") == ZERO)
