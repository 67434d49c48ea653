"""Builds the parts, starts and stops them in order. The only place that reads the real clocks."""

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from quota_translator import __version__
from quota_translator.controller import Controller
from quota_translator.core.names import QUOTA_KIND
from quota_translator.core.options import Options
from quota_translator.core.ports import Cluster
from quota_translator.core.results import Results, SyncState
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock
from quota_translator.errors import ConfigurationError
from quota_translator.settings import Settings

DONE, FAILED, VIOLATED = 0, 1, 2


def now() -> Clock:
    return Clock(datetime.now(UTC), time.monotonic())


def run_cluster(settings: Settings) -> int:
    """The controller on a cluster, until SIGTERM or SIGINT. The exit code."""
    from quota_translator.telemetry import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    return _run(_on_cluster(settings))


def run_local(settings: Settings, folder: Path, output: Path | None, *, once: bool) -> int:
    """The controller on a folder. The exit code: 2 when `once` found violations."""
    from quota_translator.telemetry import configure_logging

    if not folder.is_dir():
        return _say(f"--local {folder}: is not a folder")
    level = "warning" if once and settings.log_level == "info" else settings.log_level
    configure_logging(level, settings.log_format)
    return _run(_on_folder(settings, folder, output, once=once))


def _run(main: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(main)
    except ConfigurationError as error:
        return _say(str(error))


def _say(message: str) -> int:
    sys.stderr.write(f"quota-translator: {message}\n")
    return FAILED


async def _on_cluster(settings: Settings) -> int:
    from quota_translator.health import Endpoints
    from quota_translator.kube.client import Client
    from quota_translator.kube.cluster import KubeCluster
    from quota_translator.kube.config import connect
    from quota_translator.metrics import Metrics

    log = structlog.get_logger("app")
    options = settings.options()
    metrics = Metrics(time.monotonic)
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    connection = await connect(kubeconfig, settings.context or None)
    cluster = KubeCluster(
        Client(connection, count=metrics.request),
        options.materialize.manager,
        measure=bool(options.capacity.resources),
        concurrency=settings.write_concurrency,
    )
    observer = _Reporter(cluster, metrics)
    controller = Controller(
        cluster,
        options,
        now,
        observer,
        resync=settings.resync_interval,
        concurrency=settings.write_concurrency,
    )
    endpoints = Endpoints(
        settings.health_bind_address,
        settings.metrics_bind_address,
        observer.missing,
        observer.exposition,
    )
    log.info("starting", version=__version__, server=connection.host)
    freeze_imports()
    await endpoints.start()
    try:
        await _until_stopped(controller)
    finally:
        await endpoints.stop()
        log.info("stopped")
    return DONE


def freeze_imports() -> None:
    """Keep what the imports made out of garbage collections: it stays for good, and looking through
    it again and again would hold the event loop for tens of milliseconds each time."""
    gc.collect()
    gc.freeze()


async def _on_folder(settings: Settings, folder: Path, output: Path | None, *, once: bool) -> int:
    from quota_translator.local.cluster import LocalCluster
    from quota_translator.local.world import options_for

    log = structlog.get_logger("local")
    options = options_for(settings.options())
    problems: list[str] = []

    def report(line: str) -> None:
        problems.append(line)
        if not once:
            log.warning("input", problem=line)

    cluster = LocalCluster(folder, output, manager=options.materialize.manager, report=report)
    controller = Controller(cluster, options, now, _Quiet(), resync=settings.resync_interval)
    if once:
        return await _settle(controller, cluster, options, problems)
    objects = str(cluster.output.objects)
    log.info("starting", version=__version__, folder=str(folder), objects=objects)
    await _until_stopped(controller)
    return DONE


async def _settle(
    controller: Controller, cluster: Any, options: Options, problems: list[str]
) -> int:
    from quota_translator.local.show import shown

    await cluster.start(controller.mark)
    try:
        if problems:
            return _say("\n".join(problems))
        translation = await controller.settle()
        text = shown(translation, cluster, options, now())
    finally:
        await cluster.stop()
    sys.stdout.write(text)
    return VIOLATED if translation.verdict.violations else DONE


async def _until_stopped(controller: Controller) -> None:
    """Run until SIGTERM or SIGINT. A write that is on its way is let go of: whether it was done is
    found out at the next start, as after a crash."""
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(controller.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class _Quiet:
    """An observer that nobody asks."""

    def passed(self, translation: Translation, results: Results, seconds: float) -> None:
        pass

    def failed(self) -> None:
        pass


class _Reporter:
    """Passes into metrics and readiness."""

    def __init__(self, cluster: Cluster, metrics: Any) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._judged = False

    def passed(self, translation: Translation, results: Results, seconds: float) -> None:
        self._judged = True
        outcome = "done" if results.all_done else "incomplete"
        self._metrics.passed(outcome, seconds)
        self._metrics.observe(translation.tree, translation.usage, translation.reading)

    def failed(self) -> None:
        self._metrics.passed("failed")

    def missing(self) -> Sequence[str]:
        """What keeps the process from being ready. Kueue's absence does not: it is reported."""
        states = self._cluster.sync_states().values()
        found = [f"{s.kind}: {s.reason or 'not read yet'}" for s in states if _holds_up(s)]
        return found if self._judged or found else ["the tree has not been judged yet"]

    def exposition(self, accept: str) -> tuple[bytes, str]:
        for kind, state in self._cluster.sync_states().items():
            self._metrics.sync(kind, state.synced)
        found: tuple[bytes, str] = self._metrics.exposition(accept)
        return found


def _holds_up(state: SyncState) -> bool:
    """Kueue's kinds may be absent, which their nodes report; the tree's own may not."""
    return not state.synced and (state.served or state.kind == QUOTA_KIND)
