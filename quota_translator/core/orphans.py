"""Objects of ours whose node is gone without having been deleted in the usual way.

Finalizers see to it that this cannot happen; so when it does, something went wrong: they were
stripped, the CRD was taken away and installed again, a backup was restored. A few such nodes are
cleaned up after a while. Many at once are an accident: nothing goes until a person says so.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from quota_translator.core.kueue import is_ours
from quota_translator.core.lifecycle import Roster
from quota_translator.core.names import KINDS, ROOT, SWEEP_ORPHANS
from quota_translator.core.options import MaterializeOptions
from quota_translator.core.world import Clock, Departed, World

FEW: Final = 3  # so many nodes are never too many, unless they are all there are
HELD_SHARE: Final = 0.1  # of the nodes behind our objects
# For so long a deletion is remembered: a create that nobody answered may still come.
ORDERED_SECONDS: Final = 600.0
_NAMED: Final = 3


class Orphans(msgspec.Struct, frozen=True):
    """`kept`: whose objects stay for now, though no node wants them. `held`: of them, those that
    are too many to go by themselves, out of `behind` nodes with objects."""

    kept: frozenset[str] = frozenset()
    held: tuple[str, ...] = ()
    behind: int = 0
    confirmed: str = ""  # the number that a person confirmed last, as it is written
    spent: bool = False  # that confirmation has done its work, or has none to do
    wake_at: float | None = None  # steady

    @property
    def message(self) -> str:
        """Why they are held, and what to do. "" when none is."""
        if not self.held:
            return ""
        number = len(self.held)
        more = f" and {number - _NAMED} more" if number > _NAMED else ""
        wrong = f" (it says {self.confirmed!r} now)" if self.confirmed else ""
        return (
            f"{number} of the {self.behind} nodes behind our objects in Kueue are gone without "
            f"having been deleted: {', '.join(self.held[:_NAMED])}{more}; their objects stay as "
            "they are. Create the nodes again, from a backup; or, to remove the objects, confirm "
            f"the number: kubectl annotate aq root --overwrite {SWEEP_ORPHANS}={number}{wrong}"
        )


def find_orphans(
    before: Departed, roster: Roster, world: World, options: MaterializeOptions, clock: Clock
) -> tuple[Departed, Orphans]:
    """What is remembered from now on, and what of it holds now.

    While a kind of Kueue's is not known nothing is judged: whoever is an orphan stays so.
    """
    present = {node.name for node in roster.members} | roster.leaving.keys()
    departed = msgspec.structs.replace(before, ordered=_ordered(before, roster, present, clock))
    if not (options.enabled and options.orphan_after and world.has_finalizers):
        return departed, Orphans()
    gone = _gone(world, present | departed.ordered.keys(), options.manager)
    is_quiet = not (gone or before.orphans or before.held or before.condemned)
    if is_quiet and not _confirmation(roster):
        return departed, Orphans()
    if not world.known.issuperset(KINDS):
        return msgspec.structs.replace(departed, orphans={}), Orphans(kept=frozenset(gone))
    return _judge(departed, gone, roster, world, options, clock)


def _ordered(
    before: Departed, roster: Roster, present: set[str], clock: Clock
) -> Mapping[str, float]:
    recent = {
        name: seen
        for name, seen in before.ordered.items()
        if name not in present and clock.steady - seen < ORDERED_SECONDS
    }
    return recent | dict.fromkeys(roster.leaving, clock.steady)


def _gone(world: World, known: set[str], manager: str) -> set[str]:
    """The names behind objects of ours that no node bears. What is being deleted goes anyway."""
    return {
        live.quota
        for live in world.live.values()
        if live.quota and live.quota not in known and not live.deleting and is_ours(live, manager)
    }


def _judge(
    departed: Departed,
    gone: set[str],
    roster: Roster,
    world: World,
    options: MaterializeOptions,
    clock: Clock,
) -> tuple[Departed, Orphans]:
    condemned = departed.condemned & gone
    open_ = sorted(gone - condemned)
    names = {o.quota for o in world.live.values() if is_ours(o, options.manager)}
    behind = len(names)
    is_held = _are_too_many(open_, names)
    confirmed = _confirmation(roster)
    if is_held and confirmed == str(len(open_)):
        condemned, open_, is_held = condemned | set(open_), [], False
    # Whoever was held begins to wait when the hold ends: the others may be on their way back.
    known = {} if departed.held and not is_held else departed.orphans
    since = {name: known.get(name, clock.steady) for name in open_}
    ends = {name: moment + options.orphan_after for name, moment in since.items()}
    waiting = {name for name in open_ if is_held or ends[name] > clock.steady}
    found = Orphans(
        kept=frozenset(waiting),
        held=tuple(open_) if is_held else (),
        behind=behind,
        confirmed=confirmed,
        spent=bool(confirmed) and not is_held,
        wake_at=None if is_held else min((ends[name] for name in waiting), default=None),
    )
    return (
        msgspec.structs.replace(
            departed, orphans=since, held=is_held, condemned=frozenset(condemned)
        ),
        found,
    )


def _are_too_many(gone: list[str], behind: Collection[str | None]) -> bool:
    """Of the nodes behind our objects. Where more than one were all there are, a tree has gone."""
    if len(gone) > 1 and {*gone, ROOT}.issuperset(behind):
        return True
    return len(gone) > FEW and len(gone) > HELD_SHARE * len(behind)


def _confirmation(roster: Roster) -> str:
    root = next((node for node in roster.members if node.name == ROOT), None)
    return str(root.annotations.get(SWEEP_ORPHANS, "")).strip() if root is not None else ""
