"""Metrics: what is counted, and what is known at the moment of a scrape (see `exposed.py`)."""

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from quota_translator import __version__, exposed
from quota_translator.core.capacity import Reading
from quota_translator.core.happenings import repaired
from quota_translator.core.names import KINDS, Key
from quota_translator.core.results import Result, Results
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock
from quota_translator.exposed import AtLimit, Values, View, gauge
from quota_translator.families import FAMILIES, PREFIX

_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_NONE: Final = Results()
_NOT_SENT: Final = frozenset({"skipped", "unchanged"})
_TRIED_AGAIN: Final = frozenset({"unavailable", "throttled", "conflict", "failed"})
# A tree of more nodes is written out in a thread: the event loop must answer meanwhile.
_THREAD_ABOVE: Final = 300


class Snapshot(msgspec.Struct, frozen=True):
    """What the gauges show."""

    view: View | None = None  # None: no pass yet, or this process does not make any now
    reading: Reading | None = None  # the last measurement
    measured_at: float | None = None  # steady
    leads: bool | None = None  # None: nobody has said
    leads_since: float | None = None  # steady
    transitions: int = 0
    rival: bool = False
    certificate: datetime | None = None
    synced: Mapping[str, bool] = {}  # by kind
    heard_at: Mapping[str, float] = {}  # by kind; steady
    tasks: int | None = None  # None: nobody runs any


class Metrics:
    """All series, on a registry of their own. `now` reads both clocks.

    `measures` False: nothing is measured, so there is no age of a measurement.
    """

    def __init__(self, now: Callable[[], Clock], *, measures: bool = True) -> None:
        self.registry = CollectorRegistry()
        self.snapshot = Snapshot()
        self._now, self._measures = now, measures
        self._waiting_since: Callable[[], float | None] = lambda: None
        self._failed: frozenset[Key] = frozenset()  # objects whose last write is tried again
        self._at_limit: AtLimit = {}
        self._requests = self._counter("requests")
        self._passes = self._counter("passes", ("done",), ("incomplete",), ("failed",))
        self._pass_seconds = self._histogram("pass_duration_seconds")
        self._applied = self._counter("backend_applied", *((kind, "written") for kind in KINDS))
        self._swept = self._counter("backend_swept", ("materialize",), ("finalize",))
        self._repairs = self._counter("drift_repairs", *((kind,) for kind in KINDS))
        self._retries = self._counter("retries", *((kind,) for kind in KINDS))
        self._decisions = self._counter("webhook_decisions")
        self._decision_seconds = self._histogram("webhook_duration_seconds")
        self._events = self._counter("events", ("created",), ("counted",), ("dropped",))
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, *known: tuple[str, ...]) -> Counter:
        """`known` label values begin at 0, so that their first increase is seen as one."""
        family = FAMILIES[name]
        found = Counter(f"{PREFIX}_{name}", family.text, family.labels, registry=self.registry)
        for values in known:
            found.labels(*values)
        return found

    def _histogram(self, name: str) -> Histogram:
        text = FAMILIES[name].text
        return Histogram(f"{PREFIX}_{name}", text, buckets=_BUCKETS, registry=self.registry)

    # --- what happened ------------------------------------------------------------------------

    def request(self, verb: str, kind: str, code: str) -> None:
        self._requests.labels(verb, kind, code).inc()

    def passed(self, outcome: str, seconds: float | None = None) -> None:
        """`seconds` None: it did not come to its end, and tells nothing of how long one takes."""
        self._passes.labels(outcome).inc()
        if seconds is not None:
            self._pass_seconds.observe(seconds)

    def webhook(self, operation: str, outcome: str, reason: str, seconds: float) -> None:
        """One decision. `reason` is one of ours, "" for none."""
        self._decisions.labels(operation, outcome, reason).inc()
        self._decision_seconds.observe(seconds)

    def event(self, outcome: str, count: int = 1) -> None:
        """Of Events: created, counted or dropped."""
        self._events.labels(outcome).inc(count)

    def observe(
        self,
        found: Translation,
        results: Results = _NONE,
        statuses: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """The result of a pass, and what every status says after it."""
        self._count(found, results)
        view = View(
            tree=found.tree,
            usage=found.usage,
            capacity=found.capacity,
            violations=found.verdict.violations,
            oversubscribed=found.verdict.oversubscribed,
            frozen_since=found.memory.frozen_since,
            over_since=found.memory.over_since,
            statuses=statuses or {},
            retrying=len(self._failed),
            waiting=len(found.plan.waiting),
        )
        self._set(view=view)
        if found.reading is not None:
            self._set(reading=found.reading)
        if found.measured:
            self._set(measured_at=self._now().steady)

    def _count(self, found: Translation, results: Results) -> None:
        for result in results.results:
            if result.key in self._failed and result.outcome != "skipped":
                self._retries.labels(result.key.kind).inc()
            if result.verb == "delete" and result.outcome == "written":
                self._swept.labels(_trigger(found, result)).inc()
            elif result.outcome not in _NOT_SENT:
                self._applied.labels(result.key.kind, result.outcome).inc()
        for result in repaired(found.plan.repairs, results):
            self._repairs.labels(result.key.kind).inc()
        self._failed = self._still_failed(found, results)

    def _still_failed(self, found: Translation, results: Results) -> frozenset[Key]:
        tried = {result.key for result in results.results if result.outcome != "skipped"}
        failed = {r.key for r in results.results if r.outcome in _TRIED_AGAIN}
        failed |= self._failed - tried
        return frozenset(failed & {a.key for a in found.plan.actions}) if failed else frozenset()

    # --- what is so ---------------------------------------------------------------------------

    def follow(self, waiting_since: Callable[[], float | None]) -> None:
        """Whom to ask since when (steady) a change waits for a pass; None: there is none."""
        self._waiting_since = waiting_since

    def sync(self, kind: str, synced: bool, heard_at: float | None = None) -> None:
        """Whether a kind is read completely and watched, and when the server was last heard."""
        self._set(synced={**self.snapshot.synced, kind: synced})
        if heard_at is not None:
            self._set(heard_at={**self.snapshot.heard_at, kind: heard_at})

    def leading(self, leads: bool, transitions: int) -> None:
        """Whether this process writes, and how often the Lease changed hands."""
        if leads != self.snapshot.leads:
            self._set(leads=leads, leads_since=self._now().steady if leads else None)
        self._set(transitions=transitions)
        if not leads:
            self._forget()

    def rival(self, present: bool) -> None:
        """Whether another controller holds the tree."""
        if self.snapshot.rival and not present:
            self._set(leads_since=self._now().steady)  # it begins to work now
        self._set(rival=present)
        if present:
            self._forget()

    def _forget(self) -> None:
        """What was judged long ago would stand beside what the one who leads shows now."""
        self._set(view=None, reading=None, measured_at=None)
        self._failed, self._at_limit = frozenset(), {}

    def certificate(self, expires_at: datetime | None) -> None:
        """When the certificate in service expires; None: there is none."""
        self._set(certificate=expires_at)

    def _set(self, **fields: object) -> None:
        self.snapshot = msgspec.structs.replace(self.snapshot, **fields)

    # --- what is shown ------------------------------------------------------------------------

    async def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type for a scrape."""
        self._set(tasks=len(asyncio.all_tasks()))
        encode, content_type = choose_encoder(accept)
        view = self.snapshot.view
        if view is None or len(view.tree.nodes) <= _THREAD_ABOVE:
            return encode(self.registry), content_type
        return await asyncio.to_thread(encode, self.registry), content_type

    def describe(self) -> Iterable[Metric]:
        return ()  # the names depend on nothing, but a collector that is asked would be collected

    def collect(self) -> Iterator[Metric]:
        seen, clock = self.snapshot, self._now()
        versions = (__version__, platform.python_version())
        yield gauge("build_info", {versions: 1.0})
        if seen.tasks is not None:
            yield gauge("tasks", {(): float(seen.tasks)})
        synced: Values = {(kind,): float(is_so) for kind, is_so in seen.synced.items()}
        yield gauge("synced", synced)
        ages: Values = {(kind,): max(0.0, clock.steady - at) for kind, at in seen.heard_at.items()}
        yield gauge("watch_age_seconds", ages)
        if seen.certificate is not None:
            end = seen.certificate.timestamp()
            yield gauge("certificate_expiry_timestamp_seconds", {(): end})
        yield from self._leadership(seen, clock)
        if seen.reading is not None:
            yield from exposed.measured(seen.reading)
        if seen.view is not None:
            yield from self._judged(seen.view, clock)

    def _leadership(self, seen: Snapshot, clock: Clock) -> Iterator[Metric]:
        if seen.leads is None:
            return
        yield gauge("leader", {(): float(seen.leads)})
        yield gauge("leader_transitions", {(): float(seen.transitions)})
        yield gauge("rival_controller", {(): float(seen.rival)})
        if not seen.leads or seen.rival:
            return
        waits = self._waiting_since()
        age = 0.0 if waits is None else max(0.0, clock.steady - waits)
        yield gauge("work_waiting_seconds", {(): age})
        since = seen.measured_at if seen.measured_at is not None else seen.leads_since
        if self._measures and since is not None:
            age = max(0.0, clock.steady - since)
            yield gauge("capacity_measurement_age_seconds", {(): age})

    def _judged(self, view: View, clock: Clock) -> Iterator[Metric]:
        self._at_limit = exposed.pinned(view, self._at_limit, clock.steady)
        if self._measures:
            yield from exposed.believed(view)
        yield from exposed.budgets(view)
        yield from exposed.durations(view, self._at_limit, clock.wall, clock.steady)
        yield exposed.reasons(view)
        yield gauge("writes_retrying", {(): float(view.retrying)})
        yield gauge("objects_waiting", {(): float(view.waiting)})


def _trigger(found: Translation, result: Result) -> str:
    """Its node is there and does not want it any more, or has gone."""
    return "materialize" if result.nodes & found.tree.nodes.keys() else "finalize"
