"""When a status is worth a write, and what the write says.

A verdict is written at once; mere use at most once per node in `usage_interval`; and what only
counts time (`elapsed`, a stamp that nobody set anew) never asks for one.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quota_translator.core.options import Options
from quota_translator.core.world import Clock

# The fields of a status that are ours; anything else there is neither compared nor removed.
OWNED: Final = (
    "observedGeneration",
    "parent",
    "path",
    "summary",
    "conditions",
    "budgets",
    "materialization",
    "capacity",
    "unattributed",
    "controller",
)
# Who holds the tree is not said by everybody who computes a status, and then stays as it is.
_KEPT: Final = "controller"
_USE: Final = frozenset({"admitted", "reserved", "borrowed", "over", "overSince"})


class Due(msgspec.Struct, frozen=True):
    """Write now, or at a steady moment, or (neither) not at all."""

    now: bool = False
    at: float | None = None


def same(old: Mapping[str, Any], new: Mapping[str, Any], stamped: bool = False) -> bool:
    """Nothing that is worth a write differs. `stamped`: the measurement set its stamps anew."""
    fields = _stated(new)
    return _comparable(old, fields, stamped) == _comparable(new, fields, stamped)


def needs_write(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    last_usage_write: float | None,
    clock: Clock,
    options: Options,
    stamped: bool = False,
) -> Due:
    """Whether `new` is to be written over `old`.

    `last_usage_write` is the steady moment of this node's last write that carried use (any write
    does); None: none yet.
    """
    if same(old, new, stamped):
        return Due()
    if last_usage_write is None or not same(_without_use(old), _without_use(new), stamped):
        return Due(now=True)
    due = last_usage_write + options.usage_interval
    return Due(now=True) if clock.steady >= due else Due(at=due)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch of a status: whole lists, and null for what is no longer there."""
    patch: dict[str, Any] = {}
    for field in _stated(new):
        before, after = old.get(field), new.get(field)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            patch[field] = {name: None for name in before if name not in after} | {
                name: value for name, value in after.items() if before.get(name) != value
            }
        else:
            patch[field] = after
    return patch


def _stated(new: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that this status speaks of, be it by leaving them out."""
    return tuple(field for field in OWNED if field != _KEPT or field in new)


def _comparable(
    status: Mapping[str, Any], fields: tuple[str, ...], stamped: bool
) -> dict[str, Any]:
    found = {field: status[field] for field in fields if field in status}
    if isinstance(found.get("capacity"), list):
        found["capacity"] = [_without_time(row, stamped) for row in found["capacity"]]
    return found


def _without_time(row: Any, stamped: bool) -> Any:
    if not isinstance(row, Mapping):
        return row
    found = {name: value for name, value in row.items() if stamped or name != "observedAt"}
    if isinstance(row.get("pending"), list):
        found["pending"] = [_without(wait, frozenset({"elapsed"})) for wait in row["pending"]]
    return found


def _without_use(status: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in status.items() if name != "summary"}
    if isinstance(found.get("budgets"), list):
        found["budgets"] = [_without(row, _USE) for row in found["budgets"]]
    return found


def _without(row: Any, names: frozenset[str]) -> Any:
    if not isinstance(row, Mapping):
        return row
    return {name: value for name, value in row.items() if name not in names}
