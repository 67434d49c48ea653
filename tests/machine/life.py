"""A controller on the server in memory: one life after another, in simulated time."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, cast

import structlog

from quota_translator.controller import Controller
from quota_translator.core.options import CapacityOptions, MaterializeOptions, Options
from quota_translator.core.results import Results
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock, World
from quota_translator.kube.cluster import KubeCluster
from tests.machine.client import Faults, MemoryClient
from tests.machine.jumping import JumpingLoop
from tests.machine.kueue import Kueue
from tests.machine.server import Server

RESYNC_SECONDS: Final = 45.0
RESTART_SECONDS: Final = 2.0  # until the next process has begun to list
DROP_AFTER: Final = 20.0
MANAGER: Final = "quota-translator"
OPTIONS: Final = Options(
    capacity=CapacityOptions(drop_after=DROP_AFTER, settle_after=90.0, report_interval=0.0),
    materialize=MaterializeOptions(
        manager=MANAGER, namespace_selector={"matchLabels": {"gpu": "yes"}}, orphan_after=5.0
    ),
    usage_interval=1.0,
)
_BEGINNING: Final = datetime(2026, 11, 30, tzinfo=UTC)


class Seen(KubeCluster):
    """Remembers which world the last pass looked at."""

    seen: World | None = None

    def snapshot(self) -> World:
        self.seen = super().snapshot()
        return self.seen


class Life:
    """`broken` collects what must never happen; `step` raises the first of it."""

    def __init__(self, seed: int, options: Options = OPTIONS) -> None:
        self.options = options
        self.loop = JumpingLoop()
        self.random = Random(seed)
        self.server = Server(self.loop.time)
        self.kueue = Kueue(self.server, self.loop, self.random)
        self.faults = Faults()
        self.jumped = timedelta()
        self.broken: list[BaseException | str] = []
        self.translation: Translation | None = None
        self.passes = 0
        self.watchers: list[Any] = []  # told of each pass: (translation, results)
        self._former = structlog.get_config()
        structlog.configure(processors=[self._log])
        self._lead: asyncio.Task[None] | None = None
        self.client = MemoryClient(self.server, self.faults, self.random)
        self.cluster: Seen | None = None

    # --- living ---------------------------------------------------------------------------

    def now(self) -> Clock:
        steady = self.loop.time()
        return Clock(_BEGINNING + timedelta(seconds=steady) + self.jumped, steady)

    def begin(self) -> None:
        """A new process: it knows what the server says, and nothing else."""
        self.client = MemoryClient(self.server, self.faults, self.random)
        self.cluster = Seen(
            cast("Any", self.client), MANAGER, now=self.loop.time, rand=self.random.random
        )
        controller = Controller(
            self.cluster,
            self.options,
            self.now,
            self,
            resync=RESYNC_SECONDS,
            rand=self.random.random,
        )
        self._lead = self.loop.create_task(controller.run())

    def end(self) -> None:
        """kill -9: what was on its way is not finished."""
        self.client.dead = True
        if self._lead is not None:
            self._lead.cancel()
            self.loop.run_until_complete(asyncio.gather(self._lead, return_exceptions=True))
            self._lead = None

    @property
    def dead(self) -> bool:
        return self._lead is None or self.client.dead

    def again(self) -> None:
        self.end()
        self.step(RESTART_SECONDS)
        self.begin()

    def step(self, seconds: float) -> None:
        """Let time go on. Raises what was broken meanwhile."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        if self._lead is not None and self._lead.done():
            self.broken.append(self._lead.exception() or "the controller ended")
        for first in self.broken:
            raise first if isinstance(first, BaseException) else AssertionError(first)

    def close(self) -> None:
        self.end()
        self.loop.close()
        structlog.configure(**self._former)

    # --- being told -----------------------------------------------------------------------

    def passed(self, translation: Translation, results: Results, *_more: object) -> None:
        self.translation = translation
        self.passes += 1
        for watcher in self.watchers:
            try:
                watcher(translation, results)
            except AssertionError as error:
                self.broken.append(error)

    def failed(self) -> None:
        self.broken.append("a pass failed")

    def _log(self, _logger: object, method: str, event: Any) -> Any:
        if event.get("exc_info") or method == "exception":
            self.broken.insert(0, sys.exc_info()[1] or str(event))
        raise structlog.DropEvent
