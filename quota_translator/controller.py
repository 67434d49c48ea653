"""dirty → snapshot → translate → apply → report, again and again.

Events only say that something changed; a pass takes a snapshot and computes everything anew, so
that merged, lost or repeated events make no difference, and a restart is the same path as an edit.
A pass that finds nothing to change sends nothing. The cluster behind it is a port: the real one
(`kube/`) or a folder of YAML (`local/`).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec
import structlog

from quota_translator.batch import Batcher
from quota_translator.core.absorb import absorb
from quota_translator.core.actions import Action, Plan
from quota_translator.core.inforce import is_settled
from quota_translator.core.names import ROOT
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.results import Results
from quota_translator.core.status import Status, statuses
from quota_translator.core.statusdiff import Due, needs_write
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, Memory, World
from quota_translator.errors import QuotaTranslatorError
from quota_translator.retries import Retries, fault_notes

P = ParamSpec("P")
T = TypeVar("T")
# A pass over more records than this runs in a thread: the loop must answer probes meanwhile.
_THREAD_ABOVE: Final = 1000
# A wave of writes is cut here, so that an edit made during a large one waits for one wave only.
_WAVE: Final = 256
# How long a status may wait for Kueue to take what was just written, to be written once, not twice.
_GRACE_SECONDS: Final = 0.5
_STATUS_WRITES: Final = 16
_SHORTEST_SLEEP: Final = 0.02


class Observer(Protocol):
    """Who is told of each pass: metrics, and the local mode's printer."""

    def passed(self, translation: Translation, results: Results, seconds: float) -> None: ...

    def failed(self) -> None: ...


class Controller:
    """Runs passes until it is stopped. `now` reads both clocks; tests bring their own."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        now: Callable[[], Clock],
        observer: Observer,
        resync: float = 600.0,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._now = now
        self._observer = observer
        self._resync = resync
        self._log = structlog.get_logger("controller")
        self._batcher = Batcher(lambda: now().steady, frozenset({"Node"}))
        self._retries = Retries(rand)
        self._memory: Memory | None = None
        self._last_write: dict[str, float] = {}  # node → steady moment of its last status write
        self._touched: dict[str, float] = {}  # node → until when its status waits for Kueue
        self._wake_at: float | None = None
        self._writing = False  # the last pass left something to write

    def mark(self, kind: str) -> None:
        """Something of this kind changed."""
        self._batcher.mark(kind)

    @property
    def dirty(self) -> bool:
        """Something changed since the last pass began."""
        return self._batcher.dirty

    async def run(self) -> None:
        """Pass after pass, until cancelled."""
        await self._cluster.start(self.mark)
        try:
            while True:
                await self._batcher.wait(self._wake_at)
                await self.attempt()
        finally:
            await self._cluster.stop()

    async def settle(self, patience: float = 60.0) -> Translation:
        """Passes until there is nothing left to write now; what only time can end is not waited
        for. The cluster has been started. Raises what a pass raises."""
        until = self._now().steady + patience
        while True:
            translation = await self.one_pass()
            under_way = self._batcher.dirty or self._touched or self._writing
            if translation is not None and not under_way:
                return translation
            if self._now().steady > until and translation is not None:
                return translation
            await self._batcher.wait(self._wake_at)

    async def attempt(self) -> Translation | None:
        """One pass; a fault of ours is logged and tried again, never the end of the process."""
        try:
            return await self.one_pass()
        except Exception:  # noqa: BLE001  the last line of defence of a process that must go on
            self._log.exception("pass failed")
            self._observer.failed()
            self._wake_at = self._now().steady + 5.0
            return None

    async def one_pass(self) -> Translation | None:
        """None: the tree is not known yet, so there was nothing to judge."""
        world = self._cluster.snapshot()
        if world.quotas is None:
            self._wake_at = None
            return None
        started = self._now()
        if self._memory is None:
            self._memory = remember(world.quotas)
        translation = await _off_loop(world, translate, world, self._memory, self._options, started)
        if not any(node.name == ROOT for node in world.quotas):
            await self._create_root()
        wave = self._wave(translation.plan)
        results = await self._cluster.apply(wave)
        done = self._now()
        self._retries.learn(results.results, done.steady)
        self._memory = absorb(translation.memory, world, translation.rendering, wave, results, done)
        self._touch(results, done)
        self._tell_repairs(wave, results)
        later = await self._report(world, translation, results)
        self._sleep(translation, wave, later)
        self._observer.passed(translation, results, self._now().steady - started.steady)
        return translation

    async def _create_root(self) -> None:
        try:
            await self._cluster.create_root()
        except QuotaTranslatorError as error:
            self._log.warning("root not created", reason=str(error))

    def _wave(self, plan: Plan) -> Plan:
        """The part of a plan to carry out now: live edits first, then the backlog of creations.

        Nothing is lost by leaving out: the next pass plans again what is still to do, and every
        action of a plan is safe without the others.
        """
        ready = self._retries.ready(plan.actions, self._now().steady)
        if len(ready) > _WAVE:
            chosen = set(map(id, sorted(ready, key=_is_creation)[:_WAVE]))
            ready = tuple(action for action in ready if id(action) in chosen)
        return msgspec.structs.replace(plan, actions=ready)

    def _touch(self, results: Results, clock: Clock) -> None:
        for result in results.results:
            if result.outcome == "written":
                for name in result.nodes - {ROOT}:
                    self._touched[name] = clock.steady + _GRACE_SECONDS

    def _tell_repairs(self, plan: Plan, results: Results) -> None:
        """Whoever changed what the tree states should learn that it does not last."""
        written = {r.key: r.nodes for r in results.results if r.outcome == "written"}
        for key in sorted(plan.repairs.keys() & written.keys()):
            self._log.warning(
                "put back what somebody changed",
                object=str(key),
                quota=sorted(written[key]),
                manager=plan.repairs[key].manager,
                fields=list(plan.repairs[key].fields),
            )

    async def _report(
        self, world: World, translation: Translation, results: Results
    ) -> list[float]:
        """Write the statuses that are due. Returns when those that are held back become due."""
        clock = self._now()
        found = await _off_loop(
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
            (*self._retries.notes(), *_refusals(results)),
            frozenset(r.key for r in results.results if r.outcome in ("written", "unchanged")),
        )
        fresh = frozenset(
            name for r in results.results if r.outcome == "written" for name in r.nodes
        )
        later: list[float] = []
        writes: list[Awaitable[None]] = []
        limit = asyncio.Semaphore(_STATUS_WRITES)
        for name, status in found.items():
            due = self._due(name, status, world, translation, fresh, clock)
            if due.now:
                writes.append(self._write(limit, translation, name, status, clock))
            elif due.at is not None:
                later.append(due.at)
        await asyncio.gather(*writes)
        return later

    def _due(
        self,
        name: str,
        status: Status,
        world: World,
        translation: Translation,
        fresh: frozenset[str],
        clock: Clock,
    ) -> Due:
        """When to write a status. Just after a write of the node's objects it waits a moment for
        Kueue to take them, so that one edit costs one status write."""
        node = translation.tree.nodes[name]
        due = needs_write(
            node.status,
            status,
            self._last_write.get(name),
            clock,
            self._options,
            translation.stamped if name == ROOT else False,
        )
        until = self._touched.get(name)
        if until is None:
            return due
        taken = name not in fresh and is_settled(name, world)
        if clock.steady >= until or taken:
            del self._touched[name]
            return due
        return Due(at=until) if due.now else due

    async def _write(
        self,
        limit: asyncio.Semaphore,
        translation: Translation,
        name: str,
        status: Status,
        clock: Clock,
    ) -> None:
        async with limit:
            outcome = await self._cluster.write_status(translation.tree.nodes[name], status)
        if outcome.outcome in ("written", "unchanged"):
            self._last_write[name] = clock.steady
        else:
            self._log.warning("status not written", quota=name, reason=outcome.message)
            self._batcher.mark("status")

    def _sleep(self, translation: Translation, wave: Plan, later: list[float]) -> None:
        now = self._now().steady
        moments = [now + self._resync, *later]
        moments += [m for m in (translation.wake_at, self._retries.wake_at) if m is not None]
        if len(wave.actions) == _WAVE:
            moments.append(now)
        # Never at once: a moment that has come was dealt with in this pass.
        self._wake_at = max(min(moments), now + _SHORTEST_SLEEP)
        self._writing = bool(wave.actions or translation.plan.waiting)


def _is_creation(action: Action) -> bool:
    return action.verb == "create"


def _refusals(results: Results) -> Iterable[Note]:
    return (
        note
        for result in results.results
        if result.outcome == "refused"
        for note in fault_notes(result)
    )


async def _off_loop(world: World, function: Callable[P, T], *args: P.args, **kw: P.kwargs) -> T:
    """Call a pure function, in a thread when the world is large."""
    records = len(world.live) + len(world.nodes or ()) + len(world.quotas or ())
    if records <= _THREAD_ABOVE:
        return function(*args, **kw)
    return await asyncio.to_thread(function, *args, **kw)
