"""In which order the actions of a plan may run, and which of them side by side. Pure.

Stages come one after the other; within a stage the kinds (flavors, Cohorts, ClusterQueues,
LocalQueues; deletes in reverse); within the Cohorts parents before children, deletes in reverse.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from quota_translator.core.actions import Action
from quota_translator.core.names import COHORT, KINDS

Batch = list[Action]


def batches(actions: Iterable[Action]) -> Iterator[tuple[int, Batch]]:
    """(stage, actions of one kind), in execution order; a stage's deletes after its writes."""
    ranked = sorted(actions, key=_rank)  # stable: the plan's order stays within a batch
    for (stage, _delete, _kind), batch in groupby(ranked, key=_rank):
        yield stage, list(batch)


def _rank(action: Action) -> tuple[int, bool, int]:
    kind = KINDS.index(action.key.kind)
    is_delete = action.verb == "delete"
    return action.stage, is_delete, -kind if is_delete else kind


def waves(batch: Batch, parent_of: Callable[[Action], object]) -> Iterator[Batch]:
    """A batch cut so that no action runs beside one that it waits for.

    A write waits for the write of the Cohort that it requires; a delete of a Cohort for the delete
    of the Cohorts that name it (`parent_of` says which Cohort an action's live object names).
    """
    pending = list(batch)
    while pending:
        blocked = _blocked(pending, parent_of)
        wave = [action for action in pending if action not in blocked] or pending
        yield wave
        pending = [action for action in pending if action not in wave]


def _blocked(pending: Batch, parent_of: Callable[[Action], object]) -> Batch:
    if pending[0].key.kind != COHORT:
        return []
    keys = {action.key for action in pending}
    named = {parent_of(action) for action in pending}
    return [
        action
        for action in pending
        if (action.key.name in named if action.verb == "delete" else action.requires in keys)
    ]
