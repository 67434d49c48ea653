"""Hardware that is gone for good: a pair's mark is given up when a person says so.

A pair that no node reports keeps its mark, because a pool that is scaled to zero is no loss. What
will not come back has to be said: an annotation on root names the pairs, which the controller takes
off again when it is done. A pair that nodes still report is not retired.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from quota_translator.core.capacity import Reading
from quota_translator.core.names import RETIRE, Pair, pair_of
from quota_translator.core.rootstatus import capacity_from_status
from quota_translator.core.world import CapacityRow, Clock, QuotaNode

_AGAIN_SECONDS: Final = 1.0

Rows = Mapping[Pair, CapacityRow]


class Retirement(msgspec.Struct, frozen=True):
    """`pairs` are given up. `refused` are not, with the reason; a text that names no pair too.
    `spent`: the annotation has done its work, and root's stored status shows it."""

    pairs: frozenset[Pair] = frozenset()
    refused: Mapping[str, str] = {}
    spent: bool = False
    wake_at: float | None = None  # steady: to see whether root's status shows it, which is no event


def find_retirement(root: QuotaNode | None, reading: Reading | None, clock: Clock) -> Retirement:
    """What root's annotation asks for. Without a measurement nothing is given up."""
    asked = root.annotations.get(RETIRE) if root is not None else None
    if root is None or not asked or reading is None:
        return Retirement()
    pairs: set[Pair] = set()
    refused: dict[str, str] = {}
    for text in filter(None, (part.strip() for part in str(asked).split(","))):
        pair = read_pair(text)
        if pair is None:
            refused[text] = "is not RESOURCE@FLAVOR"
        elif why := _still_there(reading, pair):
            refused[text] = why
        else:
            pairs.add(pair)
    stored = capacity_from_status(root.status)
    spent = all(is_forgotten(stored.get(pair)) for pair in pairs)
    wake_at = None if spent else clock.steady + _AGAIN_SECONDS
    return Retirement(frozenset(pairs), refused, spent, wake_at)


def without(rows: Rows, retired: Retirement) -> Rows:
    """The rows that are believed on; a pair that is given up begins as if never seen."""
    if not retired.pairs & rows.keys():
        return rows
    return {pair: row for pair, row in rows.items() if pair not in retired.pairs}


def is_forgotten(row: CapacityRow | None) -> bool:
    return row is None or (not row.ever_seen and not row.mark)


def read_pair(text: str) -> Pair | None:
    """`nvidia.com/gpu@a100`; None for what is none."""
    resource, at, flavor = text.partition("@")
    return pair_of(resource, flavor) if at and resource and flavor and "@" not in flavor else None


def written(pair: Pair) -> str:
    return f"{pair.resource}@{pair.flavor}"


def _still_there(reading: Reading, pair: Pair) -> str:
    row = reading.pairs.get(pair)
    if row is None or not row.reported:
        return ""
    nodes = row.nodes + row.unavailable_nodes
    return f"{nodes} node(s) report {row.installed}" if nodes else "nodes report it, with 0"
