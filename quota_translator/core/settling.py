"""Writes that Kueue may not have taken yet.

The API server has the new spec at once, Kueue a moment later. Until then a share that was lowered
still counts with its old amount, and an object that moved still counts where it was. A ClusterQueue
says when it was taken (Active.observedGeneration); a Cohort has no status and is given a second.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from quota_translator.core.actions import Action
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key, Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Clock, Observed, Settling

COHORT_SECONDS: Final = 1.0


def is_unsettled(key: Key, entry: Settling, live: Observed | None, clock: Clock) -> bool:
    """True while Kueue may still act on what `entry` remembers."""
    if key.kind == CLUSTER_QUEUE and live is not None:
        # A lower generation than the one written: the object was deleted and made anew since.
        return live.active_generation < entry.generation <= live.generation
    return clock.steady < entry.until


def unsettled(
    settling: Mapping[Key, Settling], live: Mapping[Key, Observed], clock: Clock
) -> dict[Key, Settling]:
    """The entries that still count."""
    return {
        key: entry
        for key, entry in settling.items()
        if is_unsettled(key, entry, live.get(key), clock)
    }


def settle_after(
    settling: Mapping[Key, Settling],
    answered: Iterable[tuple[Action, Observed | None]],
    clock: Clock,
) -> dict[Key, Settling]:
    """`settling` after these actions; for each the object as answered, None when it is gone.

    An action whose outcome is unknown (a timeout) belongs in here too: it may have happened.
    """
    result = dict(settling)
    for action, seen in answered:
        entry = _entry(action, seen, clock)
        if entry is not None:
            former = result.get(action.key)
            result[action.key] = entry if former is None else _merged(former, entry)
    return result


def _entry(action: Action, seen: Observed | None, clock: Clock) -> Settling | None:
    takes_away = bool(action.shrinks or action.lowers or action.leaves)
    if action.key.kind not in (COHORT, CLUSTER_QUEUE) or action.verb == "create":
        return None
    if action.verb == "delete" and seen is not None:
        return None  # terminating: it is still in the store and counts from there
    if action.key.kind == COHORT and not takes_away:
        return None
    # A ClusterQueue gets an entry even when nothing shrank: it tells our own write, of which all is
    # known, from one that was on its way when the process started.
    return Settling(
        nominal=dict(action.shrinks),
        generation=seen.generation if seen else 0,
        until=clock.steady + COHORT_SECONDS,
        limits=dict(action.lowers),
        parents=(action.leaves,) if action.leaves else (),
    )


def _merged(former: Settling, entry: Settling) -> Settling:
    return Settling(
        nominal=_largest(former.nominal, entry.nominal),
        generation=entry.generation,
        until=entry.until,
        limits=_largest(former.limits, entry.limits),
        parents=tuple(dict.fromkeys(former.parents + entry.parents)),
    )


def _largest(one: Mapping[Pair, Quantity], other: Mapping[Pair, Quantity]) -> dict[Pair, Quantity]:
    return {
        pair: max(amounts[pair] for amounts in (one, other) if pair in amounts)
        for pair in {**one, **other}
    }
