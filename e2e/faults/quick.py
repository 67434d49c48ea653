"""A controller in this process whose watches are given up after seconds in place of minutes.

These clocks are no settings: what they should be follows from what API servers do. It follows the
cluster and writes as the process does; what it lacks is the Lease, the webhook and the endpoints.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from e2e.proxy import TLS_GOODBYE
from quota_translator.app import now
from quota_translator.controller import Controller
from quota_translator.core.happenings import Told
from quota_translator.core.results import Results, SyncState
from quota_translator.core.translate import Translation
from quota_translator.kube.client import Client
from quota_translator.kube.cluster import KubeCluster
from quota_translator.kube.config import connect
from quota_translator.kube.reflector import Timing
from quota_translator.settings import Settings

T = TypeVar("T")
# A thirtieth of the usual: silence is noticed in 3 to 4 seconds, and 5 are too long to stay quiet.
HASTE = Timing(silence=(3.0, 4.0), heard_within=5.0, quick=0.5)


class Quick:
    """A context manager: it runs in a thread from the beginning to the end."""

    def __init__(self, kubeconfig: Path, settings: Settings, timing: Timing = HASTE) -> None:
        self._kubeconfig, self._settings, self._timing = kubeconfig, settings, timing
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="controller")

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(timeout=30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def sync(self, kind: str) -> SyncState:
        return self._call(lambda: self._cluster.sync_states()[kind])

    def is_heard(self) -> bool:
        """Whether a measurement may be stamped."""
        return self._call(lambda: self._cluster.snapshot().heard)

    def _call(self, function: Callable[[], T]) -> T:
        async def act() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(timeout=30)

    async def _start(self) -> None:
        options = self._settings.options()
        client = Client(await connect(self._kubeconfig))
        self._cluster = KubeCluster(client, options.materialize.manager, timing=self._timing)
        controller = Controller(self._cluster, options, now, _Quiet())
        self._running = asyncio.create_task(controller.run())

    async def _stop(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await asyncio.sleep(TLS_GOODBYE)


class _Quiet:
    """An observer that nobody asks."""

    def passed(
        self, translation: Translation, results: Results, seconds: float, told: Told
    ) -> None:
        pass

    def failed(self) -> None:
        raise AssertionError("a pass failed")
