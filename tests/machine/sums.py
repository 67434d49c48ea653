"""What stands beneath each budgeted group, and what may stand there."""

from collections.abc import Mapping

from quota_translator.core.kueue import cells
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Observed, QuotaNode
from tests.core.kueueworld import climb

Amounts = dict[tuple[str, Pair], Quantity]  # by group and pair


def caps_in(nodes: tuple[QuotaNode, ...]) -> Amounts:
    found: Amounts = {}
    for node in nodes:
        for budget in node.budgets if node.role == COHORT else ():
            place = (node.name, budget.pair)
            found[place] = max(found.get(place, ZERO), budget.nominal)
    return found


def sums_in(live: Mapping[Key, Observed], caps: Amounts) -> Amounts:
    """What stands beneath each budgeted group: queues, and Cohorts inside with a quota."""
    found: Amounts = {}
    for key, seen in live.items():
        if key.kind not in (COHORT, CLUSTER_QUEUE):
            continue
        for pair, cell in cells(seen.spec).items():
            amount = cell.get("nominalQuota")
            if not isinstance(amount, Quantity):
                continue
            for group in climb(live, key):
                if (group, pair) in caps:
                    found[group, pair] = found.get((group, pair), ZERO) + amount
    return found
