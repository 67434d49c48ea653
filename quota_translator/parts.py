"""The parts of a controller on a cluster: built from the settings, run, and stopped in order."""

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from quota_translator.building import certificate, leading
from quota_translator.certs.pairs import names_for
from quota_translator.certs.tls import unvouched
from quota_translator.controller import Controller
from quota_translator.core.world import Clock, Holder
from quota_translator.errors import ApiError
from quota_translator.events import Recorder
from quota_translator.health import Endpoints, Guard
from quota_translator.kube.claims import give_up
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.cluster import KubeCluster
from quota_translator.kube.config import Connection
from quota_translator.kube.events import EventSink
from quota_translator.kube.livetree import LiveTree
from quota_translator.kube.reviews import Reviewer
from quota_translator.metrics import Metrics
from quota_translator.readiness import Readiness
from quota_translator.settings import Settings
from quota_translator.tenure import Tenure
from quota_translator.webhook import Webhook

# A clean stop is over within ten seconds, whatever hangs.
WRITES_SECONDS: Final = 5.0  # for writes that are under way
CLAIM_SECONDS: Final = 1.5
EVENTS_SECONDS: Final = 1.5  # beside the claim
LINGER_SECONDS: Final = 2.0  # for calls of the webhook that are still to come

_log = structlog.get_logger("app")


class Parts:
    """`start`, `run` until cancelled, `stop`. `now` reads the clocks.

    There are three clients, each with connections of its own: `fenced` writes while this replica
    leads and nobody else holds the tree, `plain` writes what every replica may write, and the
    Lease's calls wait behind no others.
    """

    def __init__(
        self, settings: Settings, connection: Connection, now: Callable[[], Clock]
    ) -> None:
        self._settings, self._now = settings, now
        self._asked_at: float | None = None  # when the end was asked for
        self.namespace = settings.namespace or connection.namespace or "default"
        options = settings.options()
        measures = bool(options.capacity.resources)
        self.metrics = metrics = Metrics(now, measures=measures)
        self._plain = Client(connection, count=metrics.request)
        self._lease_client = Client(
            connection, count=metrics.request, retries=Retries(attempts=1), connections=2
        )
        self.leading = leading(settings, self._lease_client, self.namespace)
        self._fenced = Client(connection, count=metrics.request, may_write=self._may_write)
        self._cluster = KubeCluster(
            self._fenced,
            options.materialize.manager,
            measure=measures,
            concurrency=settings.write_concurrency,
        )
        self.tenure = Tenure(
            self._cluster,
            self._holder,
            now,
            random.random,
            take_over=settings.take_over,
        )
        self._certificate = certificate(settings, self._plain, self.namespace, now)
        self._webhook = self._admission(self._certificate.context) if self._certificate else None
        self._recorder = self._events() if settings.events_enabled else None
        self.readiness = Readiness(
            self._cluster,
            metrics,
            self.leading,
            self.tenure,
            self._certificate,
            self._recorder.tell if self._recorder is not None else lambda _: None,
        )
        self.controller = Controller(
            self._cluster,
            options,
            now,
            self.readiness,
            resync=settings.resync_interval,
            concurrency=settings.write_concurrency,
            tenure=self.tenure,
        )
        metrics.follow(lambda: self.controller.waiting_since)
        self._endpoints = Endpoints(
            settings.health_bind_address,
            settings.metrics_bind_address,
            self.readiness.missing,
            self.readiness.exposition,
            self.readiness.notes,
            self._guard(),
        )

    # --- from start to stop ---------------------------------------------------------------

    async def start(self) -> None:
        """Serve, and follow the cluster. Raises ConfigurationError."""
        await self._endpoints.start()
        if self._webhook is not None:
            await self._webhook.start()
        await self.controller.start()

    async def run(self) -> None:
        """Until cancelled, or one of the parts fails."""
        async with asyncio.TaskGroup() as group:
            for task in self._tasks():
                group.create_task(task)

    def _tasks(self) -> list[Coroutine[Any, Any, None]]:
        others = (self._certificate, self._recorder)
        found = [self.leading.run(self.controller.lead)]
        return found + [part.run() for part in others if part is not None]

    async def wind_up(self) -> None:
        """The beginning of a clean stop, while everything still runs: no write begins any more,
        those under way are answered, and root does not say any more that the tree is ours."""
        self._asked_at = time.monotonic()
        if not await self._fenced.fence.close(WRITES_SECONDS):
            _log.warning("a write was not answered in time", seconds=WRITES_SECONDS)
        await asyncio.gather(self._give_up(), self._tell_the_last())

    async def stop(self) -> None:
        """The end, once `run` has ended: the Lease is given back before anything is taken down."""
        await self.leading.release()
        await self._linger()
        await self._endpoints.stop()
        await self.controller.stop()
        for client in (self._plain, self._lease_client):
            await client.close()

    async def _linger(self) -> None:
        """API servers go on calling the webhook for a moment after this replica was told to end."""
        if self._webhook is None:
            return
        if self._asked_at is not None:
            await asyncio.sleep(self._asked_at + LINGER_SECONDS - time.monotonic())
        await self._webhook.stop()

    async def _give_up(self) -> None:
        root = self._cluster.root()
        if root is None or not self.leading.may_write() or self.tenure.refusal:
            return
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                await give_up(self._plain, root, self._holder(), CLAIM_SECONDS)
        except (ApiError, TimeoutError) as error:
            _log.warning("the claim on the tree stays", reason=str(error) or "no answer in time")

    def _guard(self) -> Guard | None:
        """Of /metrics. The token is what counts; TLS keeps it from being read on the way."""
        if not self._settings.metrics_secure:
            return None
        names = names_for("quota-translator-metrics", self.namespace)
        own = self._certificate.context if self._certificate else unvouched(names, self._now())
        return Guard(own, Reviewer(self._plain, "/metrics", time.monotonic).judge)

    def _events(self) -> Recorder:
        sink = EventSink(self._plain, socket.gethostname())
        return Recorder(sink, self._now, self.metrics.event)

    async def _tell_the_last(self) -> None:
        if self._recorder is not None:
            await self._recorder.stop(EVENTS_SECONDS)

    # --- who writes -----------------------------------------------------------------------

    def _holder(self) -> Holder:
        enabled = self._settings.leader_election_enabled
        lease = self._settings.leader_election_lease_name if enabled else ""
        return Holder(self.namespace, lease, self.leading.uid)

    def _may_write(self) -> bool:
        return self.leading.may_write() and self.tenure.may_write(self._cluster.root())

    # --- the webhook ----------------------------------------------------------------------

    def _admission(self, tls: ssl.SSLContext) -> Webhook:
        """Handshakes are refused until there is a certificate; it listens from the beginning."""
        return Webhook(
            self._settings.webhook_bind_address,
            tls,
            LiveTree(self._plain, self._cluster.quota),
            self._cluster.snapshot,
            self._settings.options(),
            frozenset(self._settings.webhook_deny),
            self.metrics.webhook,
        )
