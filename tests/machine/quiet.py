"""When nothing is wrong any more: what must stand in Kueue, and that nothing is written then."""

from typing import Final

from quota_translator.core.conditions import MATERIALIZED, READY
from quota_translator.core.kueue import is_ours
from quota_translator.core.names import Key, Pair
from quota_translator.core.report import report
from quota_translator.core.statusdiff import same
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import World
from tests.machine.life import MANAGER, OPTIONS, RESYNC_SECONDS, Life
from tests.machine.objects import truth

LOOK_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 3000.0  # a dispute with a person is paused for up to ten minutes


def expect_converged(life: Life) -> None:
    """What the tree wants is in Kueue, or its node says why not."""
    waited = 0.0
    while True:
        life.step(LOOK_SECONDS)
        waited += LOOK_SECONDS
        left = unfinished(life)
        if not left:
            return
        assert waited < PATIENCE_SECONDS, f"not done after {waited} s: {left}"


def unfinished(life: Life) -> list[str]:
    """What a process that has just started would find to do, or to complain of."""
    world = truth(life.server)
    found = translate(world, remember(world.quotas or ()), OPTIONS, life.now())
    left = [f"{action.verb} {action.key} {action.spec}" for action in found.plan.actions]
    left += [f"the mark of {pair} waits" for pair in _running_waits(found)]
    left += _amiss(found, world)
    left += _untold(found)
    told = report(found, world, OPTIONS, life.now())
    left += [
        f"{node.name}: its status is not what one who has just started would write"
        for node in world.quotas or ()
        if node.name in told and not same(node.status, told[node.name])
    ]
    return left


def _running_waits(found: Translation) -> list[Pair]:
    """Where a node's amount cannot be read nothing is measured, and waits stand still."""
    seen = found.reading.pairs if found.reading else {}
    waiting = [pair for pair, row in found.capacity.items() if row.pending]
    return [pair for pair in waiting if pair in seen and not seen[pair].unreadable]


def _amiss(found: Translation, world: World) -> list[str]:
    """Differences that nothing excuses."""
    frozen, plan = found.verdict.frozen, found.plan
    excused = plan.waiting.keys() | plan.conflicts.keys() | plan.held.keys()
    left = []
    for key, wanted in found.rendering.desired.items():
        live = world.live.get(key)
        if wanted.nodes & frozen.keys() or key in excused or (live and live.deleting):
            continue
        if live is None or live.spec != wanted.spec:
            left.append(f"{key} is not as wanted")
    for key, live in world.live.items():
        ours = is_ours(live, MANAGER) and live.quota not in frozen
        if ours and key not in found.rendering.desired and key not in excused and not live.deleting:
            left.append(f"{key} is not wanted")
    obstacles = bool(frozen or plan.conflicts or plan.held or _strange(world))
    left += [] if obstacles else [f"{key} waits: {why}" for key, why in plan.waiting.items()]
    return left


def _strange(world: World) -> bool:
    """Something of which the tree knows nothing, or that is on its way out."""
    return any(
        live.deleting or not is_ours(live, MANAGER)
        for key, live in world.live.items()
        if key.kind in ("Cohort", "ClusterQueue")
    )


def _untold(found: Translation) -> list[str]:
    """What the statuses should say and do not."""
    left = []
    for node in found.tree.nodes.values():
        rows = node.status.get("conditions", ())
        told = {row["type"]: row["status"] for row in rows}
        if node.status.get("observedGeneration") != node.generation:
            left.append(f"{node.name}: its status is of a generation before {node.generation}")
        sound = node.name not in found.verdict.frozen
        if told.get(READY) != str(sound):
            left.append(f"{node.name}: Ready is {told.get(READY)}, and sound is {sound}")
        late = _late(node.name, found)
        if late and told.get(MATERIALIZED) != "False":
            left.append(f"{node.name}: Materialized is not False, and {late} is late")
    return left


def _late(name: str, found: Translation) -> Key | None:
    for key, wanted in found.rendering.desired.items():
        if name in wanted.nodes and (key in found.plan.waiting or key in found.plan.conflicts):
            return key
    return None


def expect_silence(life: Life) -> None:
    """Passes that have no reason write nothing."""
    life.step(2.0)
    written, passes = len(life.client.writes), life.passes
    life.step(2 * RESYNC_SECONDS + 1)
    assert life.passes >= passes + 2, "no pass without a reason"
    assert life.client.writes[written:] == [], "written for nothing"
