"""What a pass teaches: memory after its writes were answered."""

from collections.abc import Mapping

import msgspec

from quota_translator.core.actions import Action, Plan
from quota_translator.core.drift import agreed, recalled
from quota_translator.core.names import Key
from quota_translator.core.render import Rendering
from quota_translator.core.results import Result, Results
from quota_translator.core.settling import settle_after, unsettled
from quota_translator.core.world import Clock, Memory, Observed, Refusal, World

# Outcomes after which the server may have what was sent: it answered so, or nobody knows.
_MAY_HAVE_HAPPENED = frozenset({"written", "unavailable"})


def absorb(
    memory: Memory,
    world: World,
    rendering: Rendering,
    plan: Plan,
    results: Results,
    clock: Clock,
) -> Memory:
    """`memory` after carrying out `plan`. `world` and `rendering` are what it was planned from."""
    by_key = {result.key: result for result in results.results}
    actions = [(action, by_key[action.key]) for action in plan.actions if action.key in by_key]
    happened = [
        (action, _seen(action, result, world))
        for action, result in actions
        if result.outcome in _MAY_HAVE_HAPPENED
    ]
    written = {action.key for action, _ in happened}
    repairs = {key: entry for key, entry in plan.repairs.items() if key in written}
    return msgspec.structs.replace(
        memory,
        settling=settle_after(unsettled(memory.settling, world.live, clock), happened, clock),
        refused=_refused(memory.refused, world, rendering, actions),
        drift=recalled({**memory.drift, **repairs}, clock),
        converged=agreed(memory.converged, rendering.desired, world.live, written),
    )


def _seen(action: Action, result: Result, world: World) -> Observed | None:
    if result.record is not None or result.outcome == "written":
        return result.record
    return world.live.get(action.key)


def _refused(
    before: Mapping[Key, Refusal],
    world: World,
    rendering: Rendering,
    actions: list[tuple[Action, Result]],
) -> dict[Key, Refusal]:
    """Refusals of writes that are still wanted: of a wanted object, or the deletion of a live one.

    One is over once the server takes a write of its object.
    """
    still = rendering.desired.keys() | (before.keys() & world.live.keys())
    kept = {key: refusal for key, refusal in before.items() if key in still}
    for action, result in actions:
        if result.outcome == "refused":
            kept[action.key] = Refusal(action.spec, result.message)
        elif result.outcome in ("written", "unchanged"):
            kept.pop(action.key, None)
    return kept
