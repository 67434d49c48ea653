"""Root's own rows: what was measured and is believed, written to its status and read back.

The status is where marks and waits survive a restart, so reading takes whatever is there: a row or
a field that makes no sense is left out, and the rest still counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, cast, get_args

from quota_translator.core.capacity import Unattributed
from quota_translator.core.conditions import AMBIGUOUS_FLAVOR
from quota_translator.core.names import Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.times import read_stamp, stamp
from quota_translator.core.verdict import listed
from quota_translator.core.world import CapacityRow, Wait, WaitKind

_KINDS: Final = get_args(WaitKind)
MAX_UNATTRIBUTED: Final = 32
_MAX_ELAPSED: Final = timedelta.max.total_seconds()  # beyond it a figure is no count of seconds


def capacity_rows(
    rows: Mapping[Pair, CapacityRow], declared: Mapping[Pair, Quantity] | None = None
) -> list[dict[str, Any]]:
    """`status.capacity`, by resource and then flavor. `declared`: root's expectedCapacity."""
    return [_row(rows[pair], (declared or {}).get(pair)) for pair in sorted(rows)]


def unattributed_rows(rows: Sequence[Unattributed]) -> list[dict[str, Any]]:
    """`status.unattributed`, in the measurement's order."""
    return [
        {
            "resourceName": row.resource,
            "reason": row.reason,
            "flavors": list(row.flavors),
            "nodes": row.nodes,
            "quantity": row.quantity.canonical(),
            "examples": list(row.examples),
        }
        for row in rows[:MAX_UNATTRIBUTED]
    ]


def ambiguity(rows: Sequence[Unattributed]) -> str:
    """The sentence of the condition AmbiguousFlavor; "" where no node is torn between flavors."""
    told = [
        f"{row.quantity} {row.resource} on {row.nodes} node(s) ({listed(row.examples)}) match "
        f"{listed(row.flavors)} equally well and count for none"
        for row in rows
        if row.reason == AMBIGUOUS_FLAVOR
    ]
    return f"{'; '.join(told)}: give the flavors node labels that tell them apart" if told else ""


def capacity_from_status(status: Mapping[str, Any]) -> dict[Pair, CapacityRow]:
    """Marks and waits as they were stored. A row without a readable mark is no row.

    Of two rows for one pair the first counts. Waits come back uncounted (`counted_at` None).
    """
    found: dict[Pair, CapacityRow] = {}
    for stored in _rows(status.get("capacity")):
        row = _read_row(stored)
        if row is not None:
            found.setdefault(row.pair, row)
    return found


# --- writing ----------------------------------------------------------------------------------


def _row(row: CapacityRow, declared: Quantity | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "resourceName": row.pair.resource,
        "resourceFlavor": row.pair.flavor,
        "allocatable": row.allocatable.canonical(),
        "unavailable": row.unavailable.canonical(),
        "unhealthy": row.unhealthy.canonical(),
        "installed": row.installed.canonical(),
        "highWaterMark": row.mark.canonical(),
        "nodes": row.nodes,
        "unavailableNodes": row.unavailable_nodes,
    }
    if declared is not None:
        found["declared"] = declared.canonical()
    if row.pending:
        found["pending"] = [_wait(wait) for wait in row.pending]
    if row.observed_at is not None:
        found["observedAt"] = stamp(row.observed_at)
    # Said only where it is remarkable, so that the common row stays short.
    if not row.measured:
        found["measured"] = False
    if not row.ever_seen:
        found["everSeen"] = False
    return found


def _wait(wait: Wait) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": wait.kind,
        "value": wait.value.canonical(),
        "since": stamp(wait.since),
        "elapsed": max(0, int(wait.elapsed)),
    }
    return found | ({"until": stamp(wait.until)} if wait.until is not None else {})


# --- reading ----------------------------------------------------------------------------------


def _read_row(stored: Mapping[str, Any]) -> CapacityRow | None:
    resource, flavor = stored.get("resourceName"), stored.get("resourceFlavor")
    mark = _amount(stored.get("highWaterMark"))
    if not (isinstance(resource, str) and isinstance(flavor, str) and resource and flavor):
        return None
    if mark is None:
        return None
    allocatable = _amount(stored.get("allocatable")) or ZERO
    unavailable = _amount(stored.get("unavailable")) or ZERO
    installed = _amount(stored.get("installed"))
    return CapacityRow(
        pair=Pair(resource, flavor),
        allocatable=allocatable,
        unavailable=unavailable,
        unhealthy=_amount(stored.get("unhealthy")) or ZERO,
        installed=allocatable + unavailable if installed is None else installed,
        mark=mark,
        nodes=_count(stored.get("nodes")),
        unavailable_nodes=_count(stored.get("unavailableNodes")),
        pending=tuple(_waits(_rows(stored.get("pending")))),
        observed_at=read_stamp(stored.get("observedAt")),
        measured=stored.get("measured") is not False,
        ever_seen=stored.get("everSeen") is not False,
    )


def _waits(rows: Iterable[Mapping[str, Any]]) -> Iterable[Wait]:
    seen: set[str] = set()
    for row in rows:
        kind = cast("WaitKind", row.get("kind"))
        value, since = _amount(row.get("value")), read_stamp(row.get("since"))
        if kind not in _KINDS or kind in seen or value is None or since is None:
            continue
        seen.add(kind)
        yield Wait(
            kind=kind,
            value=value,
            since=since,
            elapsed=_seconds(row.get("elapsed")),
            until=read_stamp(row.get("until")),
        )


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _amount(value: object) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        amount = Quantity.parse(str(value))
    except ValueError:  # of Quantity, or of an integer too long to print
        return None
    return amount if amount.nanos >= 0 else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < _MAX_ELAPSED else 0.0  # NaN is neither
