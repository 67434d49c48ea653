"""What a pass looks at: a world that can be judged, with a root to hang the tree from.

What is half read, or has no root yet, would be judged on every node of the tree and judged anew a
second later: two writes a node for nothing, and for that second a wrong alarm.
"""

from collections.abc import Callable
from typing import Final

import structlog

from quota_translator.core.names import ROOT
from quota_translator.core.ports import Cluster
from quota_translator.core.world import Clock, World
from quota_translator.errors import QuotaTranslatorError
from quota_translator.retries import Pauses

# How long a start waits for kinds of which nothing is known yet, not even that they are absent.
_PATIENCE_SECONDS: Final = 30.0


class View:
    """Snapshots for passes. `wake_at` (steady) is when to look again if nothing happens before."""

    def __init__(
        self, cluster: Cluster, now: Callable[[], Clock], rand: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._log = structlog.get_logger("controller")
        self._pauses = Pauses[str](rand)
        self._patient_until: float | None = None
        self._started = False  # every kind was heard of once, or waited for long enough

    @property
    def wake_at(self) -> float | None:
        return self._pauses.soonest if self._started else self._patient_until

    async def world(self) -> World | None:
        """None: nothing can be judged yet. Without a root only where it cannot be created."""
        if not self._started and self._is_early():
            return None
        world = self._cluster.snapshot()
        if world.quotas is None or has_root(world):
            self._pauses.over(ROOT)
            return world if world.quotas is not None else None
        await self._create_root()
        world = self._cluster.snapshot()
        return world if world.quotas is not None else None

    def _is_early(self) -> bool:
        now = self._now().steady
        if self._patient_until is None:
            self._patient_until = now + _PATIENCE_SECONDS
        decided = all(state.decided for state in self._cluster.sync_states().values())
        self._started = decided or now >= self._patient_until
        return not self._started

    async def _create_root(self) -> None:
        now = self._now().steady
        if now < self._pauses.until(ROOT):
            return
        try:
            await self._cluster.create_root()
        except QuotaTranslatorError as error:
            self._pauses.failed(ROOT, now)
            self._log.warning("root not created", reason=str(error))
        else:
            self._pauses.over(ROOT)


def has_root(world: World) -> bool:
    return any(node.name == ROOT for node in world.quotas or ())
