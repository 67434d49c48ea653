"""Our finalizer on the tree's nodes: it is there before anything is written for a node, and goes
when Kueue has nothing of the node any more.

A node whose finalizer cannot be written costs itself alone: nothing is written for it until then.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from quota_translator.core.actions import Action
from quota_translator.core.lifecycle import claimed, releasable, released, unclaimed
from quota_translator.core.names import FINALIZER, ROOT
from quota_translator.core.notes import MATERIALIZATION_FAILED, Note
from quota_translator.core.options import MaterializeOptions
from quota_translator.core.ports import Cluster
from quota_translator.core.translate import Translation
from quota_translator.core.tree import grow
from quota_translator.core.world import Clock, QuotaNode, World
from quota_translator.errors import QuotaTranslatorError
from quota_translator.retries import Pauses

# So many nodes of one pass: the first of a large tree are in Kueue before the last are claimed.
_MOST: Final = 256
_AGAIN_SECONDS: Final = 1.0
_DONE: Final = frozenset({"written", "unchanged"})

Metadata = Mapping[str, Any]


class Finalizers:
    """`begin` a pass with it, ask it which actions `may` be carried out, and `release` at the end.

    `wake_at` (steady) is when to look again if nothing happens before.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: MaterializeOptions,
        now: Callable[[], Clock],
        rand: Callable[[], float],
        concurrency: int,
    ) -> None:
        self.wake_at: float | None = None
        self._cluster, self._options, self._now = cluster, options, now
        self._limit = asyncio.Semaphore(concurrency)
        self._log = structlog.get_logger("lifecycle")
        self._pauses = Pauses[str](rand)
        self._faults: dict[str, str] = {}  # node → why its finalizers could not be written
        self._unclaimed: frozenset[str] = frozenset()
        self._unclaimable: frozenset[str] = frozenset()
        self._ordered: frozenset[str] = frozenset()  # uids whose deletion is an order
        self._spent: tuple[str, ...] = ()  # annotations on root that are to be taken off

    # --- at the beginning -----------------------------------------------------------------

    async def begin(self, world: World) -> World | None:
        """The world to act on, its nodes claimed; None: there is nothing to act on now."""
        self.wake_at = None
        if not world.has_finalizers:
            return world
        quotas = world.quotas or ()
        self._forget_others(quotas)
        if not await self._is_order(quotas):
            self.wake_at = self._now().steady + _AGAIN_SECONDS
            return None
        changed = await self._write([*self._clearing(quotas), *self._claims(quotas)])
        quotas = tuple(changed.get(node.name, node) for node in quotas)
        if self._options.enabled:
            self._unclaimed = frozenset(node.name for node in unclaimed(quotas))
            self._unclaimable = frozenset(
                node.name for node in quotas if node.deleting and FINALIZER not in node.finalizers
            )
        return msgspec.structs.replace(world, quotas=quotas) if changed else world

    def may(self, action: Action) -> bool:
        """Whether one of the nodes behind an action bears our finalizer, or none needs it.

        To a deleted node none can be added: what it has is kept, and nothing is made for it.
        """
        barred = self._unclaimed | (self._unclaimable if action.verb == "create" else frozenset())
        return not action.nodes or not action.nodes <= barred

    def notes(self) -> tuple[Note, ...]:
        """What is wrong with nodes whose finalizers could not be written."""
        return tuple(
            Note(name, MATERIALIZATION_FAILED, text) for name, text in sorted(self._faults.items())
        )

    def _forget_others(self, quotas: Iterable[QuotaNode]) -> None:
        names = {node.name for node in quotas}
        self._pauses.keep(names)
        self._faults = {name: text for name, text in self._faults.items() if name in names}

    def _claims(self, quotas: tuple[QuotaNode, ...]) -> list[tuple[QuotaNode, Metadata]]:
        """Parents first, because nothing is written beneath what is not there."""
        lacking = {node.name for node in unclaimed(quotas)} if self._options.enabled else set()
        if self._spent:
            lacking.discard(ROOT)  # it is written already; the next pass claims it
            self._spent = ()
        if not lacking:
            return []
        tree = grow(quotas)
        order = sorted(lacking, key=lambda name: (not tree.is_reached(name), tree.depth(name)))
        return [
            (tree.nodes[name], {"finalizers": list(claimed(tree.nodes[name]))}) for name in order
        ]

    def _clearing(self, quotas: Iterable[QuotaNode]) -> list[tuple[QuotaNode, Metadata]]:
        """Root without what a person asked of it once, and is done."""
        gone = dict.fromkeys(self._spent)
        return [(n, {"annotations": gone}) for n in quotas if gone and n.name == ROOT]

    # --- deletions that are none ----------------------------------------------------------

    async def _is_order(self, quotas: Iterable[QuotaNode]) -> bool:
        """Whether nodes are deleted one by one, by people, and not because their kind goes.

        In that case they are let go as they are, or their kind would never be gone.
        """
        deleted = [node for node in quotas if node.deleting]
        uids = frozenset(node.uid for node in deleted)
        if uids - self._ordered:
            try:
                stays = await self._cluster.tree_stays()
            except QuotaTranslatorError as error:
                self._log.warning("nobody knows whether the tree stays", reason=str(error))
                return False
            if not stays:
                await self._abandon(deleted)
                return False
        self._ordered = uids
        return True

    async def _abandon(self, deleted: Iterable[QuotaNode]) -> None:
        todo = [node for node in deleted if FINALIZER in node.finalizers]
        done = await self._write([(node, {"finalizers": list(released(node))}) for node in todo])
        self._log.warning(
            "the tree's kind is being removed; its nodes are let go and Kueue stays as it is",
            nodes=len(done),
        )

    # --- at the end -----------------------------------------------------------------------

    async def release(self, world: World, translation: Translation) -> tuple[QuotaNode, ...]:
        """Let those go of which nothing is left; who went. `world` is what was translated."""
        if translation.spent and world.has_finalizers:
            # At once; or, where root could not be written just now, when it may be tried again.
            self._spent = translation.spent
            self.wake_at = max(self._now().steady, self._pauses.until(ROOT))
        if not world.has_finalizers:
            return ()
        todo = releasable(
            translation.roster,
            world,
            self._options.manager,
            materializes=self._options.enabled,
        )
        done = await self._write([(node, {"finalizers": list(released(node))}) for node in todo])
        return tuple(node for node in todo if node.name in done)

    # --- writing --------------------------------------------------------------------------

    async def _write(self, todo: Iterable[tuple[QuotaNode, Metadata]]) -> dict[str, QuotaNode]:
        """Side by side, those that may be tried now; the nodes as they are after it."""
        now = self._now().steady
        ready = [item for item in todo if self._pauses.until(item[0].name) <= now]
        results = await asyncio.gather(*(self._one(*item) for item in ready[:_MOST]))
        moments = [self._pauses.soonest, self.wake_at, now if len(ready) > _MOST else None]
        self.wake_at = min((moment for moment in moments if moment is not None), default=None)
        return {node.name: node for node in results if node is not None}

    async def _one(self, node: QuotaNode, metadata: Metadata) -> QuotaNode | None:
        async with self._limit:
            result = await self._cluster.write_metadata(node, metadata)
        if result.outcome in _DONE:
            self._pauses.over(node.name)
            self._faults.pop(node.name, None)
            return result.record or node
        if result.outcome == "conflict":
            return None  # somebody wrote meanwhile, and the next pass sees what
        now = self._now().steady
        self._pauses.failed(node.name, now)
        if result.retry_after:
            self._pauses.put_off(node.name, now + result.retry_after)
        text = f"{_told(metadata)}: {result.message}"
        if self._faults.get(node.name) != text:
            self._log.warning(
                "metadata not written",
                quota=node.name,
                fields=sorted(metadata),
                reason=result.message,
            )
        self._faults[node.name] = text
        return None


def _told(metadata: Metadata) -> str:
    """What could not be written, in words."""
    if "annotations" not in metadata:
        return "its finalizers could not be written"
    names = ", ".join(sorted(metadata["annotations"]))
    return f"its annotation {names}, which is done with, could not be taken off"
