"""dirty → snapshot → translate → apply → report, again and again.

Events only say that something changed; a pass takes a snapshot and computes everything anew, so
that merged, lost or repeated events make no difference, and a restart is the same path as an edit.
A pass that finds nothing to change sends nothing. The cluster behind it is a port: the real one
(`kube/`) or a folder of YAML (`local/`).
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from quota_translator.batch import Batcher
from quota_translator.core.absorb import absorb
from quota_translator.core.actions import Action, Plan
from quota_translator.core.happenings import Told
from quota_translator.core.memo import next_pass
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.results import Results
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, Memory, World
from quota_translator.finalizing import Finalizers
from quota_translator.journal import tell, tell_happenings, tell_verdict
from quota_translator.reporting import Reporter, off_loop
from quota_translator.retries import Retries
from quota_translator.tenure import Tenure
from quota_translator.view import View, has_root

# A wave of writes is cut here, so that an edit made during a large one waits for one wave only.
_WAVE: Final = 256
_OVERDUE_SECONDS: Final = 1.0


class Observer(Protocol):
    """Who is told of each pass: metrics, and the local mode's printer."""

    def passed(
        self, translation: Translation, results: Results, seconds: float, told: Told
    ) -> None: ...

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
        tenure: Tenure | None = None,
    ) -> None:
        """`tenure` None: nobody else can write here, as in a folder."""
        self._tenure = tenure
        self._cluster = cluster
        self._options = options
        self._now = now
        self._observer = observer
        self._resync = resync
        self._log = structlog.get_logger("controller")
        self._batcher = Batcher(lambda: now().steady, frozenset({"Node"}))
        self._view = View(cluster, now, rand)
        self._rand = rand
        self._new_reporter: Callable[[], Reporter] = partial(
            Reporter, cluster, options, now, rand, concurrency
        )
        self._new_finalizers: Callable[[], Finalizers] = partial(
            Finalizers, cluster, options.materialize, now, rand, concurrency
        )
        self._retries = Retries(rand)
        self._reporter = self._new_reporter()
        self._finalizers = self._new_finalizers()
        self._memory: Memory | None = None
        self._wake_at: float | None = None
        self._writing = False  # the last pass left something to write
        self._passes = 0

    def mark(self, kind: str) -> None:
        """Something of this kind changed."""
        self._batcher.mark(kind)

    @property
    def dirty(self) -> bool:
        """Something changed since the last pass began."""
        return self._batcher.dirty

    @property
    def waiting_since(self) -> float | None:
        """The steady moment of the first change that no pass has taken up; None: there is none."""
        return self._batcher.waiting_since

    async def run(self) -> None:
        """Pass after pass, until cancelled: `start`, `lead` and `stop` of one who leads alone."""
        try:
            await self.start()
            await self.lead()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Begin to follow the cluster. A standby goes on no further: its view stays warm."""
        await self._cluster.start(self.mark)

    async def stop(self) -> None:
        await self._cluster.stop()

    async def lead(self) -> None:
        """Pass after pass, until cancelled. May be called again: what is believed is then read
        from the statuses anew, because another process has led meanwhile."""
        self._forget()
        self.mark("Leadership")
        while True:
            await self._batcher.wait(self._wake_at)
            await self.attempt()

    def _forget(self) -> None:
        self._memory, self._wake_at = None, None
        self._retries = Retries(self._rand)
        self._reporter = self._new_reporter()
        self._finalizers = self._new_finalizers()

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
        """None: the tree is not known yet, or not ours, so there was nothing to judge."""
        self._passes += 1
        structlog.contextvars.bind_contextvars(pass_id=self._passes)  # on every line from here on
        world = await self._view.world()
        if world is None:
            self._wake_at = self._view.wake_at
            return None
        world = await self._held(world)
        world = await self._claimed(world) if world is not None else None
        if world is None:
            return None
        started = self._now()
        next_pass()
        if self._memory is None:
            self._memory = await off_loop(world, remember, world.quotas or ())
        if self._tenure is not None:
            self._memory = msgspec.structs.replace(self._memory, holder=self._tenure.holder)
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
        gone = await self._finalizers.release(world, translation)
        notes = (*self._retries.notes(), *self._finalizers.notes())
        told = await self._reporter.report(world, translation, results, notes, gone)
        tell_happenings(self._log, told.happenings)
        self._sleep(translation, wave, started)
        self._observer.passed(translation, results, self._now().steady - started.steady, told)
        return translation

    async def _held(self, world: World) -> World | None:
        """The world to act on; None while another controller holds the tree."""
        if self._tenure is None:
            return world
        held = await self._tenure.hold(world)
        if held is None:
            if self._tenure.refusal:  # what is believed then is what the other one writes
                self._forget()
            self._wake_at = self._tenure.wake_at
        return held

    async def _claimed(self, world: World) -> World | None:
        """The world with our finalizers in it; None while the tree is being taken away."""
        found = await self._finalizers.begin(world)
        if found is None:
            self._wake_at = self._finalizers.wake_at
        return found

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
        ready = tuple(action for action in ready if self._finalizers.may(action))
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
            self._finalizers.wake_at,
            self._tenure.wake_at if self._tenure is not None else None,
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
