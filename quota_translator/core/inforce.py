"""What Kueue is seen to enforce for a budget, as far as its objects tell.

A ClusterQueue tells when it has taken a spec: its Active condition speaks of that generation. Until
it does, what was seen last still stands. A Cohort has no status; what it shows is taken as taken.
"""

from collections.abc import Iterable

from quota_translator.core.kueue import is_ours, nominal_cells, parent_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity, total
from quota_translator.core.world import Budget, Observed, QuotaNode, World


class InForce:
    """Answers per node and pair over one snapshot."""

    def __init__(self, world: World, manager: str) -> None:
        self._world = world
        self._manager = manager
        self._queues: dict[str, list[Observed]] = {}
        self._members: dict[str, list[Observed]] = {}
        for live in world.live.values():
            if live.key.kind == CLUSTER_QUEUE and live.quota and is_ours(live, manager):
                self._queues.setdefault(live.quota, []).append(live)
            if live.key.kind in {CLUSTER_QUEUE, COHORT} and (parent := parent_of(live)):
                self._members.setdefault(parent, []).append(live)

    def share(self, node: QuotaNode, budget: Budget, last: Quantity | None) -> Quantity | None:
        """The amount in force; `last` while a change is on its way; None when nothing is known.

        A team's is its queue's nominal quota. A group's is only there when its budget is enforced:
        its Cohort's own quota and all that stands beneath it, which together are its cap.
        """
        if CLUSTER_QUEUE not in self._world.known:
            return None
        if node.role == CLUSTER_QUEUE:
            return _sum(self._queues.get(node.name, ()), budget.pair, last)
        if not budget.enforced or COHORT not in self._world.known:
            return None
        own = self._world.live.get(Key(COHORT, "", node.name))
        if own is None or not is_ours(own, self._manager):
            return None
        return _sum(self._beneath(own), budget.pair, last)

    def _beneath(self, top: Observed) -> list[Observed]:
        """The Cohort and all that hangs from it; a loop of foreign Cohorts ends the walk."""
        found: dict[Key, Observed] = {}
        todo = [top]
        while todo:
            live = todo.pop()
            if live.key in found:
                continue
            found[live.key] = live
            if live.key.kind == COHORT:
                todo.extend(self._members.get(live.key.name, ()))
        return list(found.values())


def _sum(objects: Iterable[Observed], pair: Pair, last: Quantity | None) -> Quantity | None:
    amounts = []
    for live in objects:
        if live.key.kind == CLUSTER_QUEUE and not has_taken(live):
            return last
        amounts.append(nominal_cells(live.spec).get(pair, ZERO))
    return total(amounts) if amounts else None


def has_taken(queue: Observed) -> bool:
    """Kueue has told of this very spec of a ClusterQueue."""
    return queue.active is not None and queue.active_generation >= queue.generation


def is_settled(node: str, world: World) -> bool:
    """Kueue has taken what stands in a node's queue; true of a node that has none."""
    queue = world.live.get(Key(CLUSTER_QUEUE, "", node))
    return queue is None or has_taken(queue)
