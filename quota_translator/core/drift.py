"""Changes that somebody else made to what we state: repaired once, reported, and not fought over.

An object has drifted when the tree wants what the object last agreed with, but the object no longer
does. Fields that are not stated (a stopPolicy, a queueingStrategy) never reach this module.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from quota_translator.core.names import LOCAL_QUEUE, Key
from quota_translator.core.world import Clock, Desired, Drift, Observed

WINDOW: Final = 600.0  # repairs further apart than this are not one dispute
DISPUTE: Final = 3  # repairs within the window that make it one
FIRST_PAUSE: Final = 30.0
LONGEST_PAUSE: Final = 600.0
FORGET_AFTER: Final = 2 * LONGEST_PAUSE  # quiet for so long: the dispute is over
_REMEMBERED: Final = 16


def has_drifted(wanted: Desired, live: Observed, converged: Mapping[Key, Any]) -> bool:
    """True when it was changed since it last agreed with what the tree still wants."""
    return live.spec != wanted.spec and converged.get(wanted.key) == wanted.spec


def is_contested(entry: Drift | None) -> bool:
    return entry is not None and len(entry.at) >= DISPUTE


def pause_ends(entry: Drift | None) -> float:
    """The steady moment before which the next repair is not made; -inf when there is no pause."""
    if entry is None or not is_contested(entry):
        return float("-inf")
    pause = FIRST_PAUSE * 2.0 ** (len(entry.at) - DISPUTE)
    return entry.at[-1] + min(pause, LONGEST_PAUSE)


def repaired(former: Drift | None, live: Observed, fields: tuple[str, ...], clock: Clock) -> Drift:
    """What to remember of a repair of `fields` that is made now."""
    earlier = former.at if former else ()
    return Drift((*earlier, clock.steady)[-_REMEMBERED:], live.last_manager, fields)


def recalled(drift: Mapping[Key, Drift], clock: Clock) -> dict[Key, Drift]:
    """The repairs that still matter: lately made ones, and disputes until they have been quiet."""
    return {key: kept for key, entry in drift.items() if (kept := _recalled(entry, clock.steady))}


def _recalled(entry: Drift, now: float) -> Drift | None:
    if is_contested(entry):
        return entry if now - entry.at[-1] < FORGET_AFTER else None
    recent = tuple(at for at in entry.at if now - at < WINDOW)
    return Drift(recent, entry.manager, entry.fields) if recent else None


def agreed(
    converged: Mapping[Key, Mapping[str, Any]],
    desired: Mapping[Key, Desired],
    live: Mapping[Key, Observed],
    written: Collection[Key] = (),
) -> dict[Key, Mapping[str, Any]]:
    """`converged` after a pass: what each wanted object was last seen to agree with.

    `written` are the objects that the pass itself wrote: an interim spec of ours is no drift, so
    they count as agreeing only when they are next seen to. LocalQueues are left out: the one field
    stated of them cannot be changed once it is set.
    """
    result = {}
    for key, wanted in desired.items():
        if key.kind == LOCAL_QUEUE:
            continue
        seen = live.get(key)
        if seen is not None and seen.spec == wanted.spec:
            result[key] = wanted.spec
        elif key in converged and key not in written:
            result[key] = converged[key]
    return result
