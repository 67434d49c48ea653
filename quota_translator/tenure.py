"""Whether the tree is this controller's to write, and the claim on root that says so.

The claim comes first: nothing else is written before root bears it, and root is only written over
the version that was seen, so of two controllers that start at one moment one finds the other's
claim. Later it is renewed with root's status.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from quota_translator.core.holder import (
    FIELD,
    INTERVAL,
    Claim,
    claimed,
    expires_in,
    left,
    named,
    read_claim,
    refusal,
    same_holder,
)
from quota_translator.core.names import ROOT
from quota_translator.core.ports import Cluster
from quota_translator.core.world import Clock, Holder, QuotaNode, World
from quota_translator.retries import Pauses

TELL_SECONDS: Final = 60.0


class Tenure:
    """Asked before every pass (`hold`) and before every write (`may_write`).

    `take_over`: another's claim is taken once, not respected.
    """

    def __init__(
        self,
        cluster: Cluster,
        own: Callable[[], Holder],
        now: Callable[[], Clock],
        rand: Callable[[], float],
        *,
        take_over: bool = False,
    ) -> None:
        self.refusal = ""  # why nothing is written, in a sentence; "": it is
        self.problem = ""  # why root could not be claimed, in a line; "": it could, or need not be
        self.wake_at: float | None = None  # steady: when to look again, whatever happens
        self._cluster, self._own, self._now = cluster, own, now
        self._take_over = take_over
        self._log = structlog.get_logger("tenure")
        self._pauses = Pauses[str](rand)
        self._seen: tuple[Claim | None, float] = (None, 0.0)  # another's, and since when (steady)
        self._taking: Holder | None = None  # whose claim is being taken
        self._told: tuple[str, float] = ("", float("-inf"))
        self._is_kept = True  # False: the server's CRD has no such field

    @property
    def holder(self) -> Holder | None:
        """Whom root's status shall name; None where it cannot."""
        return self._own() if self._is_kept else None

    async def hold(self, world: World) -> World | None:
        """The world to act on, root bearing our claim; None: nothing may be written now."""
        root = next((node for node in world.quotas or () if node.name == ROOT), None)
        if root is None:
            return world
        clock = self._now()
        self.refusal = self._refused(root.status, clock)
        if self.refusal:
            self._stand_back(clock)
            return None
        claim = read_claim(root.status)
        if claim is not None and claim.holder == self._own():
            self._take_over, self._taking = False, None
            # When it is due, this very pass renews it.
            self.wake_at = clock.steady + (left(claim, clock) or INTERVAL)
            return world
        if not self._is_kept:
            self.wake_at = None
            return world
        return await self._claim(root, world, clock)

    def may_write(self, root: QuotaNode | None) -> bool:
        """Whether nobody else's claim stands on root as it was last seen."""
        return root is None or not self._refused(root.status, self._now())

    # --- inside ---------------------------------------------------------------------------

    def _refused(self, status: Mapping[str, Any], clock: Clock) -> str:
        claim = read_claim(status)
        if claim is None or same_holder(claim.holder, self._own()):
            return ""
        if claim != self._seen[0]:
            self._seen = (claim, clock.steady)
        if claim.holder == self._taking:
            return ""
        found = refusal(status, self._own(), clock, self._looked_for(clock))
        if found and self._take_over:
            self._take_over, self._taking = False, claim.holder
            self._log.warning("taking the tree over", holder=named(claim.holder))
            return ""
        return found

    def _looked_for(self, clock: Clock) -> float:
        return clock.steady - self._seen[1]

    def _stand_back(self, clock: Clock) -> None:
        """Say so each minute, and look again then or when the claim ends."""
        claim = self._seen[0]
        assert claim is not None
        told, at = self._told
        holder = named(claim.holder)
        if holder != told or clock.steady - at >= TELL_SECONDS:
            self._told = (holder, clock.steady)
            self._log.warning("nothing is written", reason=self.refusal)
        ends_in = expires_in(claim, clock, self._looked_for(clock))
        self.wake_at = clock.steady + min(ends_in, TELL_SECONDS)

    async def _claim(self, root: QuotaNode, world: World, clock: Clock) -> World | None:
        if clock.steady < self._pauses.until(ROOT):
            self.wake_at = self._pauses.until(ROOT)
            return None
        row = claimed(root.status, self._own(), clock)
        result = await self._cluster.write_status(root, {**root.status, FIELD: row})
        self.problem = ""
        if result.outcome in ("written", "unchanged"):
            self._pauses.over(ROOT)
            claim = read_claim(result.record.status) if result.record is not None else None
            return self._taken(claim, world)
        self.problem = f"the tree cannot be claimed: {result.message}"
        self._log.warning("the tree could not be claimed", reason=result.message)
        self.wake_at = self._pauses.failed(ROOT, clock.steady)
        return None

    def _taken(self, claim: Claim | None, world: World) -> World:
        if claim is not None and claim.holder == self._own():
            self._take_over, self._taking = False, None
            self._log.info("the tree is ours to write", holder=named(self._own()))
            # What was read before may be a state that another left a moment later.
            return self._cluster.snapshot()
        self._is_kept = False
        self._log.warning(
            "the CRD is older than this program; a second controller would not be noticed; "
            "apply the one of this version"
        )
        return world
