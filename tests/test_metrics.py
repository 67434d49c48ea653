"""The series that a scrape gets."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quota_translator.core.capacity import measure
from quota_translator.core.names import Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.tree import Tree, grow
from quota_translator.core.usage import Use
from quota_translator.core.world import Flavor, Node
from quota_translator.metrics import Metrics
from tests.core.build import node, root, team

GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
A100 = Pair(GPU, "a100")
FLAVOR = Flavor("a100", node_labels={"gpu": "a100"})

Series = dict[tuple[str, ...], float]


class Steady:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def machine(
    name: str, gpus: int = 8, label: str = "a100", cordoned: bool = False, tpus: int | None = None
) -> Node:
    devices = {GPU: Quantity.of(gpus)} | ({TPU: Quantity.of(tpus)} if tpus is not None else {})
    return Node(name, {"gpu": label}, devices, devices, cordoned)


def series(metrics: Metrics, name: str) -> Series:
    """Label values (in the order of their names) → value, of one family."""
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name == f"quota_translator_{name}"
    }


def use(admitted: int, reserved: int, borrowed: int) -> Use:
    return Use(Quantity.of(admitted), Quantity.of(reserved), Quantity.of(borrowed))


def seen(metrics: Metrics, *nodes: Node, flavors: tuple[Flavor, ...] = (FLAVOR,)) -> None:
    metrics.observe(grow(()), {}, measure(nodes, flavors, (GPU, TPU), frozenset()))


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Steady())


@pytest.mark.case("A-91")
def test_capacity_is_split_into_schedulable_and_parked(metrics: Metrics) -> None:
    seen(metrics, machine("n1"), machine("n2"), machine("n3"), machine("n4", cordoned=True))

    assert series(metrics, "capacity_allocatable") == {("a100", GPU): 24, ("a100", TPU): 0}
    assert series(metrics, "capacity_unavailable") == {("a100", GPU): 8, ("a100", TPU): 0}
    assert series(metrics, "capacity_nodes") == {
        ("a100", GPU, "schedulable"): 3,
        ("a100", GPU, "unavailable"): 1,
        ("a100", TPU, "schedulable"): 0,
        ("a100", TPU, "unavailable"): 0,
    }


@pytest.mark.case("A-91")
def test_a_node_counts_once_and_a_solved_reason_is_gone(metrics: Metrics) -> None:
    strangers = [machine("n1", 4, "h100", tpus=2), machine("n2", 4, "h100", tpus=2)]
    twins = (Flavor("one", node_labels={"gpu": "h100"}), Flavor("two", node_labels={"gpu": "h100"}))

    seen(metrics, *strangers)
    assert series(metrics, "capacity_unattributed") == {
        ("NoMatchingFlavor", GPU): 8,
        ("NoMatchingFlavor", TPU): 4,
    }
    assert series(metrics, "capacity_unattributed_nodes") == {("NoMatchingFlavor",): 2}

    seen(metrics, *strangers, flavors=twins)
    assert series(metrics, "capacity_unattributed_nodes") == {("AmbiguousFlavor",): 2}

    seen(metrics, *strangers, flavors=twins[:1])
    assert series(metrics, "capacity_unattributed") == {}
    assert series(metrics, "capacity_unattributed_nodes") == {}
    assert series(metrics, "capacity_allocatable") == {("one", GPU): 8, ("one", TPU): 4}


@pytest.mark.case("FC-A10")
def test_without_a_measurement_the_last_one_stays_and_its_age_grows() -> None:
    steady = Steady()
    metrics = Metrics(steady)
    assert series(metrics, "capacity_measurement_age_seconds") == {}
    seen(metrics, machine("n1"))
    steady.now += 45

    metrics.observe(grow(()), {}, None)

    assert series(metrics, "capacity_allocatable")["a100", GPU] == 8
    assert series(metrics, "capacity_measurement_age_seconds") == {(): 45}


def guide() -> Tree:
    return grow((root(), node("ml", gpu=24), team("a", gpu=16, parent="ml")))


@pytest.mark.case("FC-K01")
def test_budgets_carry_role_and_plane_so_that_teams_can_be_summed_alone(metrics: Metrics) -> None:
    usage = {"ml": {A100: use(12, 13, 0)}, "a": {A100: use(12, 13, 4)}}

    metrics.observe(guide(), usage, None)

    def of(name: str) -> Series:
        return series(metrics, name)

    group = ("a100", "workload", "ml", GPU, "Cohort")
    leaf = ("a100", "workload", "a", GPU, "ClusterQueue")
    assert of("budget_nominal") == {group: 24, leaf: 16}
    assert of("budget_admitted") == {group: 12, leaf: 12}
    assert of("budget_reserved") == {group: 13, leaf: 13}
    assert of("budget_borrowed") == {group: 0, leaf: 4}
    assert sum(n for key, n in of("budget_admitted").items() if key[-1] == "ClusterQueue") == 12


def test_use_that_is_not_known_has_no_series_and_a_gone_node_leaves_none(metrics: Metrics) -> None:
    metrics.observe(guide(), {"a": {A100: use(1, 1, 0)}}, None)
    metrics.observe(guide(), {}, None)
    assert len(series(metrics, "budget_nominal")) == 2
    assert series(metrics, "budget_admitted") == {}

    metrics.observe(grow((root(), node("", gpu=8))), {}, None)
    assert series(metrics, "budget_nominal") == {}


def test_two_budgets_on_one_pair_make_one_series(metrics: Metrics) -> None:
    metrics.observe(grow((root(), team("a", "gpu a100 4", "gpu a100 9"))), {}, None)

    assert list(series(metrics, "budget_nominal").values()) == [4]


def test_requests_passes_and_sync_are_counted(metrics: Metrics) -> None:
    metrics.request("patch", "ClusterQueue", "200")
    metrics.request("patch", "ClusterQueue", "200")
    metrics.request("list", "Node", "TimeoutError")
    metrics.passed("done", 0.02)
    metrics.passed("failed")  # it took no time that would say anything
    metrics.sync("Node", True)
    metrics.sync("Cohort", True)
    metrics.sync("Cohort", False)

    assert series(metrics, "requests_total") == {
        ("200", "ClusterQueue", "patch"): 2,
        ("TimeoutError", "Node", "list"): 1,
    }
    assert series(metrics, "passes_total") == {("done",): 1, ("failed",): 1}
    assert series(metrics, "pass_duration_seconds_sum") == {(): 0.02}
    assert series(metrics, "synced") == {("Cohort",): 0, ("Node",): 1}
    assert list(series(metrics, "build_info").values()) == [1]


def test_each_instance_has_a_registry_of_its_own(metrics: Metrics) -> None:
    metrics.passed("done", 0.1)

    assert series(Metrics(Steady()), "passes_total") == {}


def test_every_name_has_the_prefix(metrics: Metrics) -> None:
    seen(metrics, machine("n1"))
    body, _ = metrics.exposition()

    names = [family.name for family in text_string_to_metric_families(body.decode())]
    assert names
    assert all(name.startswith("quota_translator_") for name in names)


def test_the_form_of_the_answer_is_negotiated(metrics: Metrics) -> None:
    body, content_type = metrics.exposition("application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_a_snapshot_is_a_value(metrics: Metrics) -> None:
    before = metrics.snapshot
    metrics.sync("Node", True)

    assert before.synced == {}
    assert msgspec.structs.asdict(metrics.snapshot)["synced"] == {"Node": True}
