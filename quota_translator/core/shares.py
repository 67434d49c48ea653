"""How much of what is wanted may be written now, object by object.

A share goes down at once and up when every budgeted group above has room, which is then reserved. A
write that needs no waiting is the final one; otherwise an interim spec holds what may be had now.
"""

from collections.abc import Mapping
from typing import Any

from quota_translator.core.interim import interim
from quota_translator.core.kueue import cells, parent_of
from quota_translator.core.livesums import Amounts
from quota_translator.core.names import COHORT, Key, Pair
from quota_translator.core.notes import PARENT_NOT_MATERIALIZED, WAITING_FOR_SHRINK
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.reasons import blocked, parent_problem
from quota_translator.core.scene import Scene

Cells = Mapping[Pair, Mapping[str, Any]]


def empty_cohort(scene: Scene, key: Key) -> Mapping[str, Any]:
    """A Cohort as it is created: with its limits, and with no share of its own yet."""
    wanted = scene.desired[key]
    listed = cells(wanted.spec)
    nominal = {pair: ZERO for pair, cell in listed.items() if cell["nominalQuota"]}
    limits = _limits(scene, key, listed, {}, nominal)
    return interim(wanted, scene.parent(key), nominal, limits)


def writable_now(scene: Scene, key: Key) -> tuple[Mapping[str, Any], Amounts]:
    """The spec that a ClusterQueue or a live Cohort may have now, and the room reserved for it.

    What has to wait is told on the object's nodes.
    """
    wanted, live = scene.desired[key], scene.live.get(key)
    listed, before = cells(wanted.spec), cells(live.spec) if live else {}
    nominal = {
        pair: now
        for pair, cell in listed.items()
        if (now := _floor(scene, key, pair, cell["nominalQuota"], before)) != cell["nominalQuota"]
    }
    reserved = _grow(scene, key, listed, nominal)
    limits = _limits(scene, key, listed, before, nominal) if key.kind == COHORT else {}
    parent = scene.parent(key) if live is None or key in scene.moved else parent_of(live)
    return interim(wanted, parent, nominal, limits), reserved


def _floor(scene: Scene, key: Key, pair: Pair, final: Quantity, before: Cells) -> Quantity:
    """What needs no room: no more than is live, than is wanted, or than it has to give way to."""
    live = before.get(pair, {}).get("nominalQuota")
    now = min(final, live) if isinstance(live, Quantity) else ZERO
    most = scene.yielded.get(key, {}).get(pair)
    return now if most is None or now.nanos <= most else Quantity(most, final.form)


def _grow(scene: Scene, key: Key, listed: Cells, nominal: dict[Pair, Quantity]) -> Amounts:
    """Take out of `nominal` (lowered cells) those that may have all of their share now."""
    reserved: Amounts = {}
    if not nominal or not _may_grow(scene, key):
        return reserved
    groups = scene.groups_over(key)
    final = scene.sums.counted({pair: listed[pair]["nominalQuota"] for pair in nominal})
    for pair in list(nominal):
        more = final.get(pair, 0) - scene.sums.worst.get(key, {}).get(pair, 0)
        need = {pair: max(0, more)}
        block = scene.sums.block(groups, need)
        if block is not None:
            scene.wait(key, blocked(scene, key, block, "grow"), WAITING_FOR_SHRINK)
            continue
        scene.sums.reserve(groups, need)
        reserved |= need
        del nominal[pair]
    return reserved


def _may_grow(scene: Scene, key: Key) -> bool:
    """Only in its place: elsewhere room is reserved in the wrong groups, and it moves anyway."""
    if key in scene.yielded:
        return False
    if scene.is_in_place(key):
        return True
    if key not in scene.waiting:  # it stands right itself: a Cohort above it does not
        parent = scene.parent(key)
        assert parent is not None
        text = f"{key} grows when Cohort {parent} is in place: {parent_problem(scene, parent)}"
        scene.wait(key, text, PARENT_NOT_MATERIALIZED)
    return False


def _limits(
    scene: Scene, key: Key, listed: Cells, before: Cells, nominal: Mapping[Pair, Quantity]
) -> dict[Pair, Quantity]:
    """The borrowingLimits of a Cohort that have to stay below the wanted ones for now."""
    found: dict[Pair, Quantity] = {}
    for pair, cell in listed.items():
        wanted = cell.get("borrowingLimit")
        if wanted is None:
            continue
        own = scene.sums.counted({pair: nominal.get(pair, cell["nominalQuota"])})
        live = before.get(pair, {}).get("borrowingLimit")
        now = scene.sums.limit(key.name, pair, own.get(pair, 0), wanted, live)
        if now != wanted:
            found[pair] = now
            text = (
                f"the borrowingLimit of {key} for {pair} is {now} instead of {wanted} until the "
                "shares beneath it have come down"
            )
            scene.wait(key, text, WAITING_FOR_SHRINK)
    return found
