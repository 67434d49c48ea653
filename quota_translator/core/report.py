"""The end of the spine: from a translation, and what came of it, to the statuses."""

from collections.abc import Iterable

from quota_translator.core.names import Key
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.status import Status, statuses
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock, World


def report(
    found: Translation,
    world: World,
    options: Options,
    clock: Clock,
    notes: Iterable[Note] = (),
    written: frozenset[Key] = frozenset(),
) -> dict[str, Status]:
    """The status of every node of the tree. `world` is what was translated.

    `notes` and `written` are what applying the plan brought; without them the statuses are those
    from before anything is applied.
    """
    return statuses(
        found.tree,
        found.verdict,
        found.rendering,
        found.plan,
        found.usage,
        found.capacity,
        found.reading,
        world,
        found.memory,
        options,
        clock,
        notes,
        written,
    )
