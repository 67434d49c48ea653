"""Builds the parts, starts and stops them in order. The only place that reads the real clocks."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from quota_translator import __version__
from quota_translator.controller import Controller
from quota_translator.core.happenings import Told
from quota_translator.core.options import Options
from quota_translator.core.results import Results
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock
from quota_translator.errors import ConfigurationError
from quota_translator.settings import Settings

if TYPE_CHECKING:
    from quota_translator.kube.config import Connection

DONE, FAILED, VIOLATED = 0, 1, 2
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
    from quota_translator.connecting import connect_by
    from quota_translator.parts import Parts

    log = structlog.get_logger("app")
    connection = _unseen(await connect_by(settings))
    with _stop_signals() as asked:
        parts = Parts(settings, connection, now)
        log.info("starting", version=__version__, server=connection.host)
        freeze_imports()
        try:
            await parts.start()
            await _until(asked, parts.run(), parts.wind_up)
        finally:
            await parts.stop()
            log.info("stopped")
    return DONE


def _unseen(connection: "Connection") -> "Connection":
    """The same connection, whose credentials are in no line of the log."""
    from quota_translator.telemetry import hide

    async def credentials(anew: bool) -> str:
        found = await connection.credentials(anew)
        hide(found)
        return found

    return msgspec.structs.replace(connection, credentials=credentials)


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
    with _stop_signals() as asked:
        await _until(asked, controller.run())
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


@contextlib.contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set. A second one ends the process at once."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_signal() -> None:
        if asked.is_set():
            os._exit(FAILED)  # the default action would not do: process 1 of a container has none
        asked.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield asked
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _until(
    asked: asyncio.Event,
    work: Coroutine[Any, Any, None],
    wind_up: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run until somebody asks for the end; `wind_up` comes before the work is cancelled."""
    running, waiting = asyncio.create_task(work), asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if wind_up is not None and not running.done():
            await wind_up()
    finally:
        waiting.cancel()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


class _Quiet:
    """An observer that nobody asks."""

    def passed(
        self, translation: Translation, results: Results, seconds: float, told: Told
    ) -> None:
        pass

    def failed(self) -> None:
        pass
