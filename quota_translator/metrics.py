"""Metrics. Gauges are made from the last snapshot whenever somebody scrapes, so a series is gone as
soon as its cause is.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from quota_translator import __version__
from quota_translator.core.capacity import Reading
from quota_translator.core.quantity import Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.usage import Usage, authored

PREFIX: Final = "quota_translator"
PLANE: Final = "workload"
_BUDGET_LABELS: Final = ("plane", "quota", "role", "resource", "flavor")
_PASS_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Snapshot(msgspec.Struct, frozen=True):
    """What the gauges show: the last measurement, and the last pass's tree and use."""

    reading: Reading | None = None  # None: nothing was measured yet
    measured_at: float | None = None  # steady
    tree: Tree | None = None
    usage: Usage = {}
    synced: Mapping[str, bool] = {}  # by kind


class Metrics:
    """All series, on a registry of their own. `steady` is the clock that ages are told by."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.snapshot = Snapshot()
        self._steady = steady
        self._requests = Counter(
            f"{PREFIX}_requests",
            "Requests to the API server, by verb, kind and HTTP status (or the error of none).",
            ("verb", "kind", "code"),
            registry=self.registry,
        )
        self._passes = Counter(
            f"{PREFIX}_passes", "Passes, by outcome.", ("outcome",), registry=self.registry
        )
        self._pass_seconds = Histogram(
            f"{PREFIX}_pass_duration_seconds",
            "How long a pass took.",
            buckets=_PASS_SECONDS,
            registry=self.registry,
        )
        self.registry.register(self)

    # --- what happened --------------------------------------------------------------------

    def request(self, verb: str, kind: str, code: str) -> None:
        self._requests.labels(verb, kind, code).inc()

    def passed(self, outcome: str, seconds: float | None = None) -> None:
        """`seconds` None: it did not come to its end, and tells nothing of how long one takes."""
        self._passes.labels(outcome).inc()
        if seconds is not None:
            self._pass_seconds.observe(seconds)

    def observe(self, tree: Tree, usage: Usage, reading: Reading | None) -> None:
        """The result of a pass. `reading` None: nothing was measured, the last one stays."""
        self.snapshot = msgspec.structs.replace(self.snapshot, tree=tree, usage=usage)
        if reading is not None:
            self.snapshot = msgspec.structs.replace(
                self.snapshot, reading=reading, measured_at=self._steady()
            )

    def sync(self, kind: str, synced: bool) -> None:
        """Whether a kind is read completely and watched."""
        self.snapshot = msgspec.structs.replace(
            self.snapshot, synced={**self.snapshot.synced, kind: synced}
        )

    # --- what is shown --------------------------------------------------------------------

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type for a scrape."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def describe(self) -> Iterable[Metric]:
        return ()  # the names depend on nothing, but a collector that is asked would be collected

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        yield _gauge(
            "build_info",
            "1, with the version.",
            ("version", "python"),
            {(__version__, platform.python_version()): 1.0},
        )
        yield _gauge(
            "synced",
            "1 when all objects of a kind were read and are watched.",
            ("kind",),
            {(kind,): float(synced) for kind, synced in sorted(snapshot.synced.items())},
        )
        if snapshot.measured_at is not None:
            age = max(0.0, self._steady() - snapshot.measured_at)
            yield _gauge(
                "capacity_measurement_age_seconds", "Since the last measurement.", (), {(): age}
            )
        if snapshot.reading is not None:
            yield from _capacity(snapshot.reading)
        if snapshot.tree is not None:
            yield from _budgets(snapshot.tree, snapshot.usage)


def _gauge(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _capacity(reading: Reading) -> Iterator[Metric]:
    pairs = [(tuple(pair), row) for pair, row in reading.pairs.items()]
    labels = ("resource", "flavor")
    yield _gauge(
        "capacity_allocatable",
        "Accelerators on nodes that are Ready and not cordoned.",
        labels,
        {pair: float(row.allocatable) for pair, row in pairs},
    )
    yield _gauge(
        "capacity_unavailable",
        "Accelerators on nodes that are cordoned or not Ready.",
        labels,
        {pair: float(row.unavailable) for pair, row in pairs},
    )
    nodes: dict[tuple[str, ...], float] = {}
    for pair, row in pairs:
        nodes[*pair, "schedulable"] = row.nodes
        nodes[*pair, "unavailable"] = row.unavailable_nodes
    yield _gauge("capacity_nodes", "The nodes behind these.", (*labels, "state"), nodes)
    loose: dict[tuple[str, ...], float] = {}
    for group in reading.unattributed:
        key = (group.resource, group.reason)
        loose[key] = loose.get(key, 0.0) + float(group.quantity)
    yield _gauge(
        "capacity_unattributed",
        "Accelerators on nodes that belong to no flavor.",
        ("resource", "reason"),
        loose,
    )
    yield _gauge(
        "capacity_unattributed_nodes",
        "The nodes behind these, each once.",
        ("reason",),
        {(reason,): float(count) for reason, count in reading.unattributed_nodes.items()},
    )


def _budgets(tree: Tree, usage: Usage) -> Iterator[Metric]:
    """Sums over all nodes count a share once per level: filter by role."""
    figures: dict[str, dict[tuple[str, ...], float]] = {
        name: {} for name in ("nominal", "admitted", "reserved", "borrowed")
    }

    def add(figure: str, key: tuple[str, ...], amount: Quantity) -> None:
        figures[figure][key] = float(amount)

    for name, node in tree.nodes.items():
        if not name:
            continue
        for pair, budget in authored(node).items():
            key = (PLANE, name, node.role, *pair)
            add("nominal", key, budget.nominal)
            if use := usage.get(name, {}).get(pair):
                add("admitted", key, use.admitted)
                add("reserved", key, use.reserved)
                add("borrowed", key, use.borrowed)
    texts = {
        "nominal": "A budget's share.",
        "admitted": "Admitted against a budget, borrowed included. Unknown: no series.",
        "reserved": "Held by workloads with a quota reservation, admitted or not.",
        "borrowed": "Admitted above the share.",
    }
    for figure, values in figures.items():
        yield _gauge(f"budget_{figure}", texts[figure], _BUDGET_LABELS, values)
