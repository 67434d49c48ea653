"""Statuses onto the tree's nodes: what is due now is written, the rest waits for its moment.

A verdict is written at once, mere use at most once in an interval, and what a write of the node's
objects has just brought about waits a moment (for Kueue to take it, or for the next pass to see
what stands in its way), so that one cause costs one status write.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

import structlog

from quota_translator.core.happenings import Change, Told, happenings
from quota_translator.core.inforce import is_settled
from quota_translator.core.names import ROOT
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.report import report
from quota_translator.core.results import Result, Results
from quota_translator.core.status import Status
from quota_translator.core.statusdiff import Due, needs_write, same
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock, QuotaNode, World
from quota_translator.recount import Recount
from quota_translator.retries import Pauses, fault_notes

P = ParamSpec("P")
T = TypeVar("T")

# What is computed over more records than this runs in a thread: the loop must answer meanwhile.
_THREAD_ABOVE: Final = 1000
# How long a status may wait for Kueue to take what was just written.
_GRACE_SECONDS: Final = 0.5
_DONE: Final = frozenset({"written", "unchanged"})


class Reporter:
    """Writes statuses. Remembers only when it last wrote and what it holds back."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        now: Callable[[], Clock],
        rand: Callable[[], float],
        concurrency: int,
    ) -> None:
        self._cluster = cluster
        self._concurrency = concurrency
        self._options = options
        self._now = now
        self._log = structlog.get_logger("status")
        self._pauses = Pauses[str](rand)
        self._last_write: dict[str, float] = {}  # node → steady moment of its last status write
        self._graced: dict[str, float] = {}  # node → until when its status waits
        self._hindered: frozenset[str] = frozenset()  # nodes whose writes were stopped last time
        self._owes_stamp = False  # root's new stamp is not written yet
        # node → the version over which a status was sent, and that status: it changed nothing
        self._in_vain: dict[str, tuple[str, Status]] = {}
        self._recount = Recount(cluster, options)
        self.wake_at: float | None = None  # steady: when a status that is held back becomes due

    @property
    def waiting(self) -> bool:
        """Some statuses wait for what was written to show its effect."""
        return bool(self._graced)

    async def report(
        self,
        world: World,
        translation: Translation,
        results: Results,
        notes: Iterable[Note],
        gone: Iterable[QuotaNode] = (),
    ) -> Told:
        """Write what is due; what every status says, and what has happened by the written ones.

        `gone` were let go in this pass, and have nothing to say any more.
        """
        clock = self._now()
        self._owes_stamp |= translation.stamped
        found = await self._statuses(world, translation, results, notes, clock)
        for node in gone:
            found.pop(node.name, None)
        # Nothing else touches what this changes while it runs.
        due = await off_loop(world, self._all_due, found, world, translation, results, clock)
        moments = [moment.at for moment in due.values() if moment.at is not None]
        moments += [self._recount.wake_at] if self._recount.wake_at is not None else []
        self.wake_at = min([*moments, *self._graced.values()], default=None)
        limit = asyncio.Semaphore(self._concurrency)
        written = await asyncio.gather(
            *(
                self._write(limit, translation.node(name), found[name])
                for name, moment in due.items()
                if moment.now
            )
        )
        changes = [change for change in written if change is not None]
        left = gone if self._options.materialize.enabled else ()
        refused = translation.retirement.refused if translation.retirement.spent else {}
        told = happenings(changes, translation.tree, translation.plan, results, left, refused)
        return Told(found, told)

    async def _statuses(
        self,
        world: World,
        translation: Translation,
        results: Results,
        notes: Iterable[Note],
        clock: Clock,
    ) -> dict[str, Status]:
        done = frozenset(result.key for result in results.results if result.outcome in _DONE)
        told = (*notes, *_refusals(results))
        held = await self._recount.look(world, translation.roster.leaving, clock)
        options, differing = self._options, self._recount.messages
        return await off_loop(
            world, report, translation, world, options, clock, told, done, held, differing
        )

    def _all_due(
        self,
        found: dict[str, Status],
        world: World,
        translation: Translation,
        results: Results,
        clock: Clock,
    ) -> dict[str, Due]:
        fresh = self._fresh(results)
        for name in fresh:
            self._graced[name] = clock.steady + _GRACE_SECONDS
        self._forget_others(found)
        return {
            name: self._due(name, status, world, translation, name in fresh, clock)
            for name, status in found.items()
        }

    def _fresh(self, results: Results) -> frozenset[str]:
        """The nodes of which the next pass knows more; root's stamp waits for nobody."""
        hindered = frozenset(
            name for result in results.results if _is_told_next(result) for name in result.nodes
        )
        new, self._hindered = hindered - self._hindered, hindered
        return (_written_nodes(results) | new) - {ROOT}

    def _forget_others(self, found: dict[str, Status]) -> None:
        self._pauses.keep(found)
        memories: tuple[dict[str, Any], ...] = (self._last_write, self._graced, self._in_vain)
        for memory in memories:
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
        node, stamped = translation.node(name), self._owes_stamp and name == ROOT
        due = needs_write(
            node.status,
            status,
            self._last_write.get(name),
            clock,
            self._options,
            stamped,
        )
        if due.now and self._is_in_vain(node, status, stamped):
            due = Due()
        if due == Due():
            self._pauses.over(name)
        wait = max(self._pauses.until(name), self._grace(name, world, is_fresh, clock))
        return Due(at=wait) if due.now and clock.steady < wait else due

    def _is_in_vain(self, node: QuotaNode, status: Status, stamped: bool) -> bool:
        """The server has kept nothing of just this: its CRD is older than this program."""
        version, sent = self._in_vain.get(node.name, ("", status))
        return bool(version) and version == node.resource_version and same(sent, status, stamped)

    def _grace(self, name: str, world: World, is_fresh: bool, clock: Clock) -> float:
        """Until when the status waits; over as soon as Kueue has taken what is in the queue."""
        until = self._graced.get(name, float("-inf"))
        if is_fresh or (clock.steady < until and not is_settled(name, world)):
            return until
        self._graced.pop(name, None)
        return float("-inf")

    async def _write(
        self, limit: asyncio.Semaphore, node: QuotaNode, status: Status
    ) -> Change | None:
        """None: it was not written."""
        async with limit:
            outcome = await self._cluster.write_status(node, status)
        now = self._now().steady
        if outcome.outcome in _DONE:
            self._last_write[node.name] = now
            self._pauses.over(node.name)
            self._owes_stamp &= node.name != ROOT
            if outcome.outcome == "unchanged":
                self._in_vain[node.name] = (node.resource_version, status)
                return None
            return Change(node, status)
        if outcome.outcome != "conflict":  # somebody wrote meanwhile; the next pass sees what
            self._log.warning("status not written", quota=node.name, reason=outcome.message)
        again = self._pauses.failed(node.name, now)
        if outcome.retry_after:
            again = self._pauses.put_off(node.name, now + outcome.retry_after)
        self.wake_at = again if self.wake_at is None else min(self.wake_at, again)
        return None


def _written_nodes(results: Results) -> frozenset[str]:
    return frozenset(
        name for result in results.results if result.outcome == "written" for name in result.nodes
    )


def _is_told_next(result: Result) -> bool:
    """The next pass finds by itself what stopped this write, and says it in its own words."""
    is_strange = result.outcome == "conflict" and result.record is not None
    return result.outcome == "refused" or result.needs_parent or is_strange


def _refusals(results: Results) -> Iterable[Note]:
    return (
        note
        for result in results.results
        if result.outcome == "refused"
        for note in fault_notes(result)
    )


async def off_loop(world: World, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
    """Call a function that only computes, in a thread when the world is large."""
    records = len(world.live) + len(world.nodes or ()) + len(world.quotas or ())
    if records <= _THREAD_ABOVE:
        return function(*args, **kw)
    return await asyncio.to_thread(function, *args, **kw)
