"""Whether Kueue's figures are those of the workloads that it gave quota to.

Ours are taken from Kueue's, so where it miscounts (kubernetes-sigs/kueue#1048) both are wrong, and
teams are refused what is free. Workloads can be counted only where they may be listed.
"""

from collections.abc import Iterator, Mapping

import msgspec

from quota_translator.core.kueue import is_ours
from quota_translator.core.names import CLUSTER_QUEUE, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.usage import authored
from quota_translator.core.world import Holding, Observed, QuotaNode, World

Holdings = Mapping[str, tuple[Holding, ...]]  # by queue; of one that is missing nothing is known


class Difference(msgspec.Struct, frozen=True):
    """Of one pair in one queue of a node: what Kueue says is reserved, and what workloads hold."""

    queue: str
    told: Quantity
    counted: Quantity
    workloads: int

    def text(self, pair: Pair) -> str:
        holders = "1 workload holds" if self.workloads == 1 else f"{self.workloads} workloads hold"
        return (
            f"in ClusterQueue {self.queue} Kueue counts {self.told} {pair} as reserved, "
            f"but {holders} {self.counted}"
        )


Differences = Mapping[tuple[str, Pair], Difference]  # by node and pair


def counted_queues(world: World, manager: str) -> Iterator[Observed]:
    """Our queues that Kueue counts: those in deletion it counts no more."""
    for live in world.live.values():
        if live.key.kind == CLUSTER_QUEUE and is_ours(live, manager) and not live.deleting:
            yield live


def differences(world: World, manager: str, holdings: Holdings) -> Differences:
    """For the pairs that a node budgets."""
    nodes = {node.name: node for node in world.quotas or ()}
    found: dict[tuple[str, Pair], Difference] = {}
    for queue in counted_queues(world, manager):
        node, held = nodes.get(queue.quota or ""), holdings.get(queue.key.name)
        if node is not None and held is not None and queue.reservation is not None:
            found |= _of_queue(node, queue, held)
    return found


def messages(found: Differences) -> dict[str, str]:
    """By node, what its condition says."""
    texts: dict[str, list[str]] = {}
    for (node, pair), difference in sorted(found.items(), key=lambda item: item[0]):
        texts.setdefault(node, []).append(difference.text(pair))
    return {
        node: f"{'; '.join(told)}: figures here are Kueue's, and wrong until it counts again"
        for node, told in texts.items()
    }


def _of_queue(
    node: QuotaNode, queue: Observed, held: tuple[Holding, ...]
) -> dict[tuple[str, Pair], Difference]:
    found: dict[tuple[str, Pair], Difference] = {}
    for pair in authored(node):
        reserved = (queue.reservation or {}).get(pair)
        told = reserved.total if reserved is not None else ZERO
        amounts = [one.amounts[pair] for one in held if one.amounts.get(pair)]
        counted = sum(amounts, ZERO)
        if told != counted:
            found[node.name, pair] = Difference(queue.key.name, told, counted, len(amounts))
    return found
