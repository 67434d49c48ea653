"""Statuses onto the tree's nodes: what is due now is written, the rest waits for its moment.

A verdict is written at once, mere use at most once in an interval, and what a write of the node's
objects has just changed waits a moment for Kueue, so that one edit costs one status write.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec, TypeVar

import structlog

from quota_translator.core.inforce import is_settled
from quota_translator.core.names import ROOT
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.results import Results
from quota_translator.core.status import Status, statuses
from quota_translator.core.statusdiff import Due, needs_write
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock, QuotaNode, World
from quota_translator.retries import Pauses, fault_notes

P = ParamSpec("P")
T = TypeVar("T")

# What is computed over more records than this runs in a thread: the loop must answer meanwhile.
_THREAD_ABOVE: Final = 1000
# How long a status may wait for Kueue to take what was just written.
_GRACE_SECONDS: Final = 0.5
_CONCURRENT_WRITES: Final = 16
_DONE: Final = frozenset({"written", "unchanged"})


class Reporter:
    """Writes statuses. Remembers only when it last wrote and what it holds back."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        now: Callable[[], Clock],
        rand: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._now = now
        self._log = structlog.get_logger("status")
        self._pauses = Pauses[str](rand)
        self._last_write: dict[str, float] = {}  # node → steady moment of its last status write
        self._graced: dict[str, float] = {}  # node → until when its status waits for Kueue
        self.wake_at: float | None = None  # steady: when a status that is held back becomes due

    @property
    def waiting(self) -> bool:
        """Some statuses wait for Kueue to take what was written."""
        return bool(self._graced)

    async def report(
        self, world: World, translation: Translation, results: Results, notes: Iterable[Note]
    ) -> None:
        clock = self._now()
        fresh = _written_nodes(results)
        for name in fresh - {ROOT}:  # root's stamp waits for nobody
            self._graced[name] = clock.steady + _GRACE_SECONDS
        found = await self._statuses(world, translation, results, notes, clock)
        self._forget_others(found)
        due = {
            name: self._due(name, status, world, translation, name in fresh, clock)
            for name, status in found.items()
        }
        moments = [moment.at for moment in due.values() if moment.at is not None]
        self.wake_at = min([*moments, *self._graced.values()], default=None)
        limit = asyncio.Semaphore(_CONCURRENT_WRITES)
        await asyncio.gather(
            *(
                self._write(limit, translation.tree.nodes[name], found[name])
                for name, moment in due.items()
                if moment.now
            )
        )

    async def _statuses(
        self,
        world: World,
        translation: Translation,
        results: Results,
        notes: Iterable[Note],
        clock: Clock,
    ) -> dict[str, Status]:
        return await off_loop(
            world,
            statuses,
            translation.tree,
            translation.verdict,
            translation.rendering,
            translation.plan,
            translation.usage,
            translation.capacity,
            translation.reading,
            world,
            translation.memory,
            self._options,
            clock,
            (*notes, *_refusals(results)),
            frozenset(result.key for result in results.results if result.outcome in _DONE),
        )

    def _forget_others(self, found: dict[str, Status]) -> None:
        self._pauses.keep(found)
        for memory in (self._last_write, self._graced):
            for name in memory.keys() - found.keys():
                del memory[name]

    def _due(
        self,
        name: str,
        status: Status,
        world: World,
        translation: Translation,
        is_fresh: bool,
        clock: Clock,
    ) -> Due:
        due = needs_write(
            translation.tree.nodes[name].status,
            status,
            self._last_write.get(name),
            clock,
            self._options,
            translation.stamped if name == ROOT else False,
        )
        if due == Due():
            self._pauses.over(name)
        wait = max(self._pauses.until(name), self._grace(name, world, is_fresh, clock))
        return Due(at=wait) if due.now and clock.steady < wait else due

    def _grace(self, name: str, world: World, is_fresh: bool, clock: Clock) -> float:
        """Until when the status waits for Kueue; over as soon as Kueue has taken the queue."""
        until = self._graced.get(name, float("-inf"))
        if is_fresh or (clock.steady < until and not is_settled(name, world)):
            return until
        self._graced.pop(name, None)
        return float("-inf")

    async def _write(self, limit: asyncio.Semaphore, node: QuotaNode, status: Status) -> None:
        async with limit:
            outcome = await self._cluster.write_status(node, status)
        now = self._now().steady
        if outcome.outcome in _DONE:
            self._last_write[node.name] = now
            self._pauses.over(node.name)
            return
        self._log.warning("status not written", quota=node.name, reason=outcome.message)
        again = self._pauses.failed(node.name, now)
        if outcome.retry_after:
            again = self._pauses.put_off(node.name, now + outcome.retry_after)
        self.wake_at = again if self.wake_at is None else min(self.wake_at, again)


def _written_nodes(results: Results) -> frozenset[str]:
    return frozenset(
        name for result in results.results if result.outcome == "written" for name in result.nodes
    )


def _refusals(results: Results) -> Iterable[Note]:
    return (
        note
        for result in results.results
        if result.outcome == "refused"
        for note in fault_notes(result)
    )


async def off_loop(world: World, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
    """Call a pure function, in a thread when the world is large."""
    records = len(world.live) + len(world.nodes or ()) + len(world.quotas or ())
    if records <= _THREAD_ABOVE:
        return function(*args, **kw)
    return await asyncio.to_thread(function, *args, **kw)
