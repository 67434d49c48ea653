"""The series that a scrape gets."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from quota_translator.core.actions import Action, Plan
from quota_translator.core.capacity import measure
from quota_translator.core.names import Key, Kind, Pair
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.core.translate import translate
from quota_translator.core.tree import Tree, grow
from quota_translator.core.usage import Usage, Use
from quota_translator.core.verdict import Frozen, Oversubscription, Verdict, Violation
from quota_translator.core.world import Clock, Drift, Flavor, Memory, Node, World
from quota_translator.families import FAMILIES
from quota_translator.metrics import Metrics
from tests.core.build import node, root, rows, team

GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
A100 = Pair(GPU, "a100")
FLAVOR = Flavor("a100", node_labels={"gpu": "a100"})

Series = dict[tuple[str, ...], float]


class Time:
    """Both clocks, moved by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> Clock:
        return Clock(datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.now), self.now)


def machine(
    name: str, gpus: int = 8, label: str = "a100", cordoned: bool = False, tpus: int | None = None
) -> Node:
    devices = {GPU: Quantity.of(gpus)} | ({TPU: Quantity.of(tpus)} if tpus is not None else {})
    return Node(name, {"gpu": label}, devices, devices, cordoned)


def series(metrics: Metrics, name: str) -> Series:
    """Label values (in the order of the labels' names) → value, of one family."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if sample.name == f"quota_translator_{name}"
    }


def use(admitted: int, reserved: int, borrowed: int) -> Use:
    return Use(Quantity.of(admitted), Quantity.of(reserved), Quantity.of(borrowed))


EMPTY = translate(World(quotas=()), Memory(), Options(), Time()())


def passed(metrics: Metrics, tree: Tree, usage: Usage | None = None, **fields: Any) -> None:
    """A pass of this result; fields are those of the translation, and `results`, `statuses`."""
    results = fields.pop("results", Results())
    statuses = fields.pop("statuses", None)
    found = msgspec.structs.replace(EMPTY, tree=tree, usage=usage or {}, **fields)
    metrics.observe(found, results, statuses)


def seen(metrics: Metrics, *nodes: Node, flavors: tuple[Flavor, ...] = (FLAVOR,)) -> None:
    reading = measure(nodes, flavors, (GPU, TPU), frozenset())
    passed(metrics, grow(()), reading=reading, measured=True)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def metrics(time: Time) -> Metrics:
    found = Metrics(time)
    found.leading(True, 0)
    return found


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
def test_without_a_measurement_the_last_one_stays_and_its_age_grows(
    metrics: Metrics, time: Time
) -> None:
    seen(metrics, machine("n1"))
    time.now += 45

    passed(metrics, grow(()), reading=None)

    assert series(metrics, "capacity_allocatable")["a100", GPU] == 8
    assert series(metrics, "capacity_measurement_age_seconds") == {(): 45}


@pytest.mark.case("fault 6")
def test_what_silent_watches_show_is_no_good_measurement(metrics: Metrics, time: Time) -> None:
    time.now += 30  # nothing was measured since it leads
    assert series(metrics, "capacity_measurement_age_seconds") == {(): 30}
    seen(metrics, machine("n1"))
    time.now += 200
    reading = measure([machine("n1")], (FLAVOR,), (GPU,), frozenset())
    passed(metrics, grow(()), reading=reading, measured=False)

    assert series(metrics, "capacity_measurement_age_seconds") == {(): 200}


def test_where_nothing_is_measured_there_is_no_age_and_no_mark(time: Time) -> None:
    metrics = Metrics(time, measures=False)
    metrics.leading(True, 0)
    passed(metrics, grow(()), capacity=rows(gpu=32))

    assert series(metrics, "capacity_measurement_age_seconds") == {}
    assert series(metrics, "capacity_high_water_mark") == {}


@pytest.mark.case("fault 6")
def test_the_age_of_a_watch_rises_until_it_is_heard(metrics: Metrics, time: Time) -> None:
    metrics.sync("Node", True, 90.0)
    metrics.sync("Cohort", True)
    assert series(metrics, "watch_age_seconds") == {("Node",): 10}
    time.now += 100
    metrics.sync("Node", True, 90.0)
    assert series(metrics, "watch_age_seconds") == {("Node",): 110}
    metrics.sync("Node", True, 200.0)
    assert series(metrics, "watch_age_seconds") == {("Node",): 0}


def guide() -> Tree:
    return grow((root(), node("ml", gpu=24), team("a", gpu=16, parent="ml")))


@pytest.mark.case("FC-K01")
def test_budgets_carry_role_and_plane_so_that_teams_can_be_summed_alone(metrics: Metrics) -> None:
    usage = {"ml": {A100: use(12, 13, 0)}, "a": {A100: use(12, 13, 4)}}

    passed(metrics, guide(), usage)

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
    passed(metrics, guide(), {"a": {A100: use(1, 1, 0)}})
    passed(metrics, guide())
    assert len(series(metrics, "budget_nominal")) == 2
    assert series(metrics, "budget_admitted") == {}

    passed(metrics, grow((root(), node("", gpu=8))))
    assert series(metrics, "budget_nominal") == {}


def test_two_budgets_on_one_pair_make_one_series(metrics: Metrics) -> None:
    passed(metrics, grow((root(), team("a", "gpu a100 4", "gpu a100 9"))))

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
    assert series(metrics, "passes_total") == {("done",): 1, ("failed",): 1, ("incomplete",): 0}
    assert series(metrics, "pass_duration_seconds_sum") == {(): 0.02}
    assert series(metrics, "synced") == {("Cohort",): 0, ("Node",): 1}
    assert list(series(metrics, "build_info").values()) == [1]


def test_each_instance_has_a_registry_of_its_own(metrics: Metrics) -> None:
    metrics.passed("done", 0.1)

    assert sum(series(Metrics(Time()), "passes_total").values()) == 0


async def test_every_name_has_the_prefix_or_is_the_processes(metrics: Metrics) -> None:
    seen(metrics, machine("n1"))
    body, content_type = await metrics.exposition()

    assert content_type.startswith("text/plain")
    names = [family.name for family in text_string_to_metric_families(body.decode())]
    assert {"quota_translator_leader", "process_open_fds"} <= set(names)
    assert all(name.startswith(("quota_translator_", "process_")) for name in names)


async def test_the_form_of_the_answer_is_negotiated(metrics: Metrics) -> None:
    body, content_type = await metrics.exposition("application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_a_snapshot_is_a_value(metrics: Metrics) -> None:
    before = metrics.snapshot
    metrics.sync("Node", True)

    assert before.synced == {}
    assert msgspec.structs.asdict(metrics.snapshot)["synced"] == {"Node": True}


async def test_tasks_are_counted_where_there_are_any(metrics: Metrics) -> None:
    async def tasks() -> float:
        await metrics.exposition()
        return series(metrics, "tasks")[()]

    alone = await tasks()
    other = asyncio.create_task(asyncio.sleep(60))
    assert await tasks() == alone + 1
    other.cancel()


# --- what the tree says ---------------------------------------------------------------------------


@pytest.mark.case("A-90")
def test_a_node_that_is_deleted_moved_or_given_the_other_role_leaves_no_series_behind(
    metrics: Metrics,
) -> None:
    use_of_a = {"a": {A100: use(3, 4, 0)}}
    figures = ("nominal", "limit", "admitted", "reserved", "borrowed", "idle")

    def of_a() -> list[Series]:
        found = [series(metrics, f"budget_{figure}") for figure in figures]
        return [{key: n for key, n in one.items() if "a" in key} for one in found]

    passed(metrics, guide(), use_of_a, statuses=status_of("a", Ready="Admitted"))
    before = of_a()
    assert [list(one.values()) for one in before] == [[16], [16], [3], [4], [0], [13]]
    passed(metrics, grow((root(), team("a", gpu=16))), use_of_a)  # under root now
    assert of_a() == before
    passed(metrics, grow((root(), node("a", gpu=16))), use_of_a)
    assert [list(one) for one in of_a() if one] == [[("a100", "workload", "a", GPU, "Cohort")]] * 4
    passed(metrics, grow((root(),)))
    assert of_a() == [{}] * 6
    assert series(metrics, "node_reason") == {}


def test_one_who_does_not_lead_any_more_shows_nothing_of_the_tree(
    metrics: Metrics, time: Time
) -> None:
    stops: tuple[Callable[[], None], ...] = (
        lambda: metrics.leading(False, 1),
        lambda: metrics.rival(True),
    )
    for stop in stops:
        metrics.leading(True, 1)
        metrics.rival(False)
        seen(metrics, machine("n1"))
        passed(metrics, guide(), capacity=rows(gpu=32))
        assert series(metrics, "budget_nominal")
        stop()
        for name in ("budget_nominal", "capacity_allocatable", "capacity_high_water_mark"):
            assert series(metrics, name) == {}
        for name in ("capacity_measurement_age_seconds", "work_waiting_seconds"):
            assert series(metrics, name) == {}
    time.now += 500
    metrics.rival(False)
    time.now += 5
    assert series(metrics, "capacity_measurement_age_seconds") == {(): 5}


def status_of(name: str, **reasons: str) -> Mapping[str, Mapping[str, object]]:
    rows = [{"type": kind, "reason": reason} for kind, reason in reasons.items()]
    return {name: {"conditions": rows}}


def test_every_condition_has_its_reason_and_no_other(metrics: Metrics) -> None:
    broken = status_of("a", Ready="ParentMissing", Degraded="ParentMissing", Materialized="Frozen")
    passed(metrics, guide(), statuses=broken)
    assert series(metrics, "node_reason") == {
        ("Ready", "a", "ParentMissing"): 1,
        ("Materialized", "a", "Frozen"): 1,
    }
    passed(metrics, guide(), statuses=status_of("a", Ready="Admitted", Oversubscribed="Over"))
    assert set(series(metrics, "node_reason")) == {
        ("Ready", "a", "Admitted"),
        ("Oversubscribed", "a", "Over"),
    }


def test_the_mark_and_what_is_promised_beyond_it(metrics: Metrics) -> None:
    over = Verdict(oversubscribed=(Oversubscription(A100, Quantity.of(40), Quantity.of(32)),))
    passed(metrics, guide(), capacity=rows(gpu=32), verdict=over)
    assert series(metrics, "capacity_high_water_mark") == {("a100", GPU): 32}
    assert series(metrics, "oversubscribed") == {("a100", GPU): 8}
    passed(metrics, guide(), capacity=rows(gpu=32))
    assert series(metrics, "oversubscribed") == {}


def test_how_long_a_budget_is_over_the_mark_and_over_its_share(
    metrics: Metrics, time: Time
) -> None:
    froze, cut = time().wall - timedelta(seconds=60), time().wall - timedelta(seconds=7)
    reason = "CapacityExceeded"
    verdict = Verdict(
        violations=(Violation("ml", reason, str(A100), "24 but the peak is 16"),),
        frozen={"ml": Frozen(reason, "24", "ml"), "a": Frozen(reason, "24", "ml")},
    )
    memory = Memory(frozen_since={"ml": froze, "a": froze}, over_since={("a", A100): cut})
    passed(metrics, guide(), verdict=verdict, memory=memory)

    group, leaf = (
        ("a100", "workload", name, GPU, role)
        for name, role in (("ml", "Cohort"), ("a", "ClusterQueue"))
    )
    assert series(metrics, "budget_over_mark_seconds") == {group: 60}
    assert series(metrics, "budget_over_share_seconds") == {leaf: 7}
    passed(metrics, guide())
    assert series(metrics, "budget_over_mark_seconds") == {}
    assert series(metrics, "budget_over_share_seconds") == {}


@pytest.mark.case("A-94")
def test_a_team_at_its_limit_is_shown_with_how_long_it_has_been(
    metrics: Metrics, time: Time
) -> None:
    tree = grow((root(), team("a", gpu="8 +4"), team("b", gpu=8)))
    pinned = ("a100", "workload", "a", GPU, "ClusterQueue")

    def scraped(of_a: int) -> Series:
        passed(metrics, tree, {"a": {A100: use(of_a, 12, 4)}, "b": {A100: use(0, 0, 0)}})
        return series(metrics, "budget_at_limit_seconds")

    assert scraped(11) == {}
    assert scraped(12) == {pinned: 0}
    time.now += 86400
    assert scraped(13) == {pinned: 86400}  # over it, after a cut, is at it too
    assert scraped(11) == {}
    assert scraped(12) == {pinned: 0}


@pytest.mark.case("A-94")
def test_a_share_that_is_not_used_is_shown_for_teams_alone(metrics: Metrics) -> None:
    usage = {"ml": {A100: use(20, 20, 0)}, "a": {A100: use(20, 20, 4)}}
    passed(metrics, guide(), usage)
    assert series(metrics, "budget_idle") == {("a100", "workload", "a", GPU, "ClusterQueue"): 0}
    passed(metrics, guide(), {"a": {A100: use(4, 16, 0)}})
    assert list(series(metrics, "budget_idle").values()) == [12]


def test_a_limit_is_that_of_teams_and_of_enforced_groups(metrics: Metrics) -> None:
    passed(metrics, grow((root(), node("ml", gpu="24 +6 !"), node("web", gpu=9), team("a", gpu=8))))
    found = {key[2]: value for key, value in series(metrics, "budget_limit").items()}
    assert found == {"ml": 30, "a": 8}


# --- what the writes were -------------------------------------------------------------------------


def result(name: str, outcome: Outcome = "written", kind: Kind = "ClusterQueue") -> Result:
    key = Key(kind, "", name)
    return Result(key, "update", 1, frozenset({name}), {}, outcome)


def deleted(name: str, outcome: Outcome = "written") -> Result:
    return msgspec.structs.replace(result(name, outcome), verb="delete")


def wrote(metrics: Metrics, *results: Result, planned: str = "", **plan: Any) -> None:
    actions = tuple(Action("update", Key("ClusterQueue", "", name), 1) for name in planned)
    passed(metrics, guide(), results=Results(results), plan=Plan(actions, **plan))


@pytest.mark.case("A-73")
def test_real_writes_are_counted_and_a_pass_without_any_counts_as_a_pass_alone(
    metrics: Metrics,
) -> None:
    wrote(metrics)
    wrote(metrics, result("a", "unchanged"), result("b", "skipped"))
    assert sum(series(metrics, "backend_applied_total").values()) == 0

    wrote(metrics, result("a"), result("b"), result("ml", "refused", "Cohort"))

    found = series(metrics, "backend_applied_total")
    assert {key: n for key, n in found.items() if n} == {
        ("ClusterQueue", "written"): 2,
        ("Cohort", "refused"): 1,
    }
    assert sum(series(metrics, "backend_swept_total").values()) == 0


@pytest.mark.case("A-92")
def test_sweeping_counts_what_was_deleted_by_why(metrics: Metrics) -> None:
    wrote(metrics, deleted("gone", "unchanged"), deleted("a", "refused"))
    assert series(metrics, "backend_swept_total") == {("finalize",): 0, ("materialize",): 0}
    wrote(metrics, deleted("gone"), deleted("a"))
    wrote(metrics, deleted("gone too"))
    assert series(metrics, "backend_swept_total") == {("finalize",): 2, ("materialize",): 1}


def test_what_failed_is_shown_while_it_is_tried_again(metrics: Metrics) -> None:
    wrote(metrics, result("a", "unavailable"), result("b", "conflict"), planned="ab")
    assert series(metrics, "writes_retrying") == {(): 2}
    wrote(metrics, planned="ab")  # they wait
    assert series(metrics, "writes_retrying") == {(): 2}
    assert series(metrics, "retries_total")["ClusterQueue",] == 0
    wrote(metrics, result("a"), result("b", "throttled"), planned="ab")
    assert series(metrics, "retries_total")["ClusterQueue",] == 2
    assert series(metrics, "writes_retrying") == {(): 1}
    wrote(metrics)  # it is not wanted any more
    assert series(metrics, "writes_retrying") == {(): 0}
    wrote(metrics, result("a", "refused"), planned="a")  # for good
    assert series(metrics, "writes_retrying") == {(): 0}


def test_repairs_are_counted_when_they_were_made(metrics: Metrics) -> None:
    drift = Drift((1.0,), "kubectl-edit", ("cohortName",))
    repairs = {Key("ClusterQueue", "", name): drift for name in "ab"}
    wrote(metrics, result("a"), result("b", "refused"), result("c"), repairs=repairs)
    assert {key: n for key, n in series(metrics, "drift_repairs_total").items() if n} == {
        ("ClusterQueue",): 1
    }


def test_what_waits_is_shown(metrics: Metrics, time: Time) -> None:
    assert series(metrics, "work_waiting_seconds") == {(): 0}
    metrics.follow(lambda: 97.0)
    assert series(metrics, "work_waiting_seconds") == {(): 3}
    wrote(metrics, waiting={Key("Cohort", "", "ml"): "waits for a shrink"})
    assert series(metrics, "objects_waiting") == {(): 1}
    metrics.leading(False, 1)  # a standby looks at nothing, and need not
    assert series(metrics, "work_waiting_seconds") == {}


def test_events_are_counted_by_what_became_of_them(metrics: Metrics) -> None:
    metrics.event("created")
    metrics.event("dropped", 5)
    found = {("created",): 1, ("counted",): 0, ("dropped",): 5}
    assert series(metrics, "events_total") == found


# --- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("teams", "is_in_loop"), [pytest.param(10, True, id="small"), pytest.param(3000, False, id="L")]
)
async def test_a_large_tree_is_written_out_beside_the_event_loop(
    metrics: Metrics, teams: int, is_in_loop: bool
) -> None:
    threads = []

    class Spy:
        def collect(self) -> list[Any]:
            threads.append(threading.current_thread())
            return []

    metrics.registry.register(Spy())
    threads.clear()
    passed(metrics, grow((root(), *(team(f"t{number}", gpu=1) for number in range(teams)))))

    body, _ = await metrics.exposition()

    assert body.count(b"quota_translator_budget_nominal{") == teams
    assert [thread is threading.current_thread() for thread in threads] == [is_in_loop]


def test_every_series_is_one_of_the_table_with_its_labels(metrics: Metrics) -> None:
    metrics.request("get", "Node", "200")
    metrics.webhook("CREATE", "denied", "ContainmentViolated", 0.1)
    metrics.certificate(datetime(2027, 1, 1, tzinfo=UTC))
    metrics.sync("Node", True, 1.0)
    seen(metrics, machine("n1"))
    passed(metrics, guide(), {"a": {A100: use(1, 1, 0)}}, statuses=status_of("a", Ready="Admitted"))
    text = generate_latest(metrics.registry).decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for family in FAMILIES.values():
        if family.name == "tasks":  # outside of an event loop nobody runs any
            continue
        shown = found[f"quota_translator_{family.name}"]
        assert (shown.documentation, shown.type) == (family.text, family.kind)
        for sample in shown.samples:
            assert set(sample.labels) - {"le"} == set(family.labels), sample
