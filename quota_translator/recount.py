"""Looks the workloads up where they may be listed (`status.workloadNames`), and not often.

In queues that are being deleted Kueue counts them no more, so they are looked up while one drains;
in all others now and then, to see whether Kueue's figures are right.
"""

from collections.abc import Collection
from typing import Final

from quota_translator.core.counted import (
    Differences,
    Holdings,
    counted_queues,
    differences,
    messages,
)
from quota_translator.core.names import CLUSTER_QUEUE, Key
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.world import Clock, World

# Workloads are listed at most each five seconds.
LOOK_AGAIN_SECONDS: Final = 5.5
EVERY_SECONDS: Final = 600.0
EVERY_SECONDS_WHILE_WRONG: Final = 60.0


class Recount:
    """`wake_at`: the steady moment of the next look, if there is to be one."""

    def __init__(self, cluster: Cluster, options: Options) -> None:
        self._cluster, self._options = cluster, options
        self._due = float("-inf")
        self._seen: Differences = {}
        self._wrong: Differences = {}
        self.wake_at: float | None = None

    @property
    def messages(self) -> dict[str, str]:
        """By node, in what Kueue's figures are wrong: seen twice, with the same numbers."""
        return messages(self._wrong)

    async def look(self, world: World, leaving: Collection[str], clock: Clock) -> Holdings:
        """What holds the queues of the leaving nodes, by queue."""
        self.wake_at = None
        if not self._options.workload_names:
            return {}
        going = self._queues(world, leaving)
        ours = self._counted(world) if clock.steady >= self._due else frozenset()
        found = await self._cluster.holdings(going | ours) if going | ours else {}
        if ours:
            self._judge(world, found, clock)
        moments = [self._due] if ours or self._due > clock.steady else []
        self.wake_at = min(
            [*moments, *([clock.steady + LOOK_AGAIN_SECONDS] if going else [])], default=None
        )
        return {name: held for name, held in found.items() if name in going}

    def _judge(self, world: World, found: Holdings, clock: Clock) -> None:
        """A list and a watch are never of one moment, so what is seen once proves nothing."""
        seen = differences(world, self._options.materialize.manager, found)
        self._wrong = {at: one for at, one in seen.items() if self._seen.get(at) == one}
        self._seen = seen
        is_clear = seen == self._wrong
        usual = EVERY_SECONDS_WHILE_WRONG if seen else EVERY_SECONDS
        self._due = clock.steady + (usual if is_clear else LOOK_AGAIN_SECONDS)

    def _queues(self, world: World, leaving: Collection[str]) -> frozenset[str]:
        keys = (Key(CLUSTER_QUEUE, "", name) for name in leaving)
        return frozenset(k.name for k in keys if k in world.live and world.live[k].deleting)

    def _counted(self, world: World) -> frozenset[str]:
        manager = self._options.materialize.manager
        return frozenset(queue.key.name for queue in counted_queues(world, manager))
