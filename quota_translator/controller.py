"""dirty → snapshot → translate → apply → report, again and again.

Events only say that something changed; a pass takes a snapshot and computes everything anew, so
that merged, lost or repeated events make no difference, and a restart is the same path as an edit.
A pass that finds nothing to change sends nothing. The cluster behind it is a port: the real one
(`kube/`) or a folder of YAML (`local/`).
"""

import random
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from quota_translator.batch import Batcher
from quota_translator.core.absorb import absorb
from quota_translator.core.actions import Action, Plan
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.results import Results
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, Memory, World
from quota_translator.journal import tell, tell_verdict
from quota_translator.reporting import Reporter, off_loop
from quota_translator.retries import Retries
from quota_translator.view import View, has_root

# A wave of writes is cut here, so that an edit made during a large one waits for one wave only.
_WAVE: Final = 256
_OVERDUE_SECONDS: Final = 1.0


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
        concurrency: int = 16,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._now = now
        self._observer = observer
        self._resync = resync
        self._log = structlog.get_logger("controller")
        self._batcher = Batcher(lambda: now().steady, frozenset({"Node"}))
        self._view = View(cluster, now, rand)
        self._retries = Retries(rand)
        self._reporter = Reporter(cluster, options, now, rand, concurrency)
        self._memory: Memory | None = None
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
        try:
            await self._cluster.start(self.mark)
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
            if translation is None:
                await self._batcher.wait(self._wake_at)
                continue
            under_way = self._batcher.dirty or self._reporter.waiting or self._writing
            if not under_way or self._now().steady >= until:
                return translation
            await self._batcher.wait(until if self._wake_at is None else min(self._wake_at, until))

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
        world = await self._view.world()
        if world is None:
            self._wake_at = self._view.wake_at
            return None
        started = self._now()
        if self._memory is None:
            self._memory = await off_loop(world, remember, world.quotas or ())
        translation = await off_loop(world, translate, world, self._memory, self._options, started)
        frozen = self._memory.frozen_since.keys()
        tell_verdict(self._log, frozen, translation.tree, translation.verdict)
        wave = self._wave(world, translation.plan)
        results = await self._cluster.apply(wave)
        done = self._now()
        self._retries.learn(results, done.steady)
        self._memory = await off_loop(
            world, absorb, translation.memory, world, translation.rendering, wave, results, done
        )
        tell(self._log, wave, results)
        await self._reporter.report(world, translation, results, self._retries.notes())
        self._sleep(translation, wave, started)
        self._observer.passed(translation, results, self._now().steady - started.steady)
        return translation

    def _wave(self, world: World, plan: Plan) -> Plan:
        """The part of a plan to carry out now: live edits first, then the backlog of creations.

        Nothing is lost by leaving out: the next pass plans again what is still to do, and every
        action of a plan is safe without the others.
        """
        if not has_root(world):
            # A tree without its root is one that is being taken away (its CRD, say), not an order
            # to take everything out of Kueue.
            return msgspec.structs.replace(plan, actions=())
        ready = self._retries.ready(plan.actions, self._now().steady)
        if len(ready) > _WAVE:
            chosen = set(map(id, sorted(ready, key=_is_creation)[:_WAVE]))
            ready = tuple(action for action in ready if id(action) in chosen)
        return msgspec.structs.replace(plan, actions=ready)

    def _sleep(self, translation: Translation, wave: Plan, started: Clock) -> None:
        now = self._now().steady
        wakes = (
            translation.wake_at,
            self._view.wake_at,
            self._retries.wake_at,
            self._reporter.wake_at,
        )
        moments = [moment for moment in wakes if moment is not None]
        # A moment before this pass was dealt with in it: asking again at once would only spin.
        moments = [m if m > started.steady else now + _OVERDUE_SECONDS for m in moments]
        if len(wave.actions) == _WAVE:
            moments.append(now)
        self._wake_at = min((now + self._resync, *moments))
        self._writing = bool(wave.actions or translation.plan.waiting)


def _is_creation(action: Action) -> bool:
    return action.verb == "create"
