"""Single writes as actions, with what each of them takes away."""

from collections.abc import Mapping
from typing import Any

from quota_translator.core.actions import GROW, PLACE, SHRINK, Action
from quota_translator.core.kueue import cells
from quota_translator.core.names import RESOURCE_FLAVOR, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Desired, Observed


def creation(wanted: Desired, spec: Mapping[str, Any], requires: Key | None = None) -> Action:
    """The creation of a wanted object with this spec, beneath `requires`."""
    key = wanted.key
    stage = SHRINK if key.kind == RESOURCE_FLAVOR else PLACE  # before whatever lists it
    return Action(
        "create",
        key,
        stage,
        spec,
        tuple(sorted(spec)),
        nodes=wanted.nodes,
        quota=wanted.quota,
        part=wanted.part,
        requires=requires,
    )


def change(
    live: Observed, spec: Mapping[str, Any], fields: tuple[str, ...], wanted: Desired | None
) -> Action:
    """The update of `live` to this spec; `wanted` None: nobody wants it, but it cannot go yet."""
    before, after = cells(live.spec), cells(spec)
    return Action(
        "update",
        live.key,
        GROW if _raises(before, after) else SHRINK,
        spec,
        fields,
        nodes=wanted.nodes if wanted else frozenset(),
        quota=wanted.quota if wanted else live.quota or "",
        part=wanted.part if wanted else live.part,
        uid=live.uid,
        shrinks=_larger(before, after, "nominalQuota"),
        lowers=_larger(before, after, "borrowingLimit"),
    )


def _raises(
    before: Mapping[Pair, Mapping[str, Any]], after: Mapping[Pair, Mapping[str, Any]]
) -> bool:
    fields = ("nominalQuota", "borrowingLimit")
    return any(bool(_larger(after, before, field)) for field in fields)


def _larger(
    one: Mapping[Pair, Mapping[str, Any]], other: Mapping[Pair, Mapping[str, Any]], field: str
) -> dict[Pair, Quantity]:
    """The amounts of `one` that are larger than in `other`; a nominal that lacks there is 0."""
    found = {}
    for pair, cell in one.items():
        amount = cell.get(field)
        than = other.get(pair, {}).get(field, ZERO if field == "nominalQuota" else None)
        if isinstance(amount, Quantity) and isinstance(than, Quantity) and amount > than:
            found[pair] = amount
    return found
