"""What the log says of a pass: its verdict and its writes."""

import msgspec
import structlog

from quota_translator.core.actions import Plan
from quota_translator.core.happenings import Happening
from quota_translator.core.names import Key
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.core.tree import grow
from quota_translator.core.verdict import Frozen, Verdict
from quota_translator.core.world import Drift
from quota_translator.journal import tell, tell_happenings, tell_verdict
from tests.core.build import node, root, team


def result(name: str, outcome: Outcome, message: str = "") -> Result:
    key = Key("ClusterQueue", "", name)
    return Result(key, "update", 1, frozenset({name}), {}, outcome, message)


def told(*results: Result) -> list[dict[str, object]]:
    with structlog.testing.capture_logs() as logs:
        tell(structlog.get_logger(), Plan(), Results(results))
    return [dict(line) for line in logs]


def test_a_pass_without_writes_is_silent() -> None:
    assert told() == []


def test_writes_are_counted_and_what_failed_of_one_cause_is_one_line() -> None:
    down = [result(name, "unavailable", "no answer") for name in ("b", "c", "d")]
    assert told(result("a", "written"), *down) == [
        {"event": "wrote", "log_level": "info", "written": 1, "of": 4},
        {
            "event": "not written",
            "log_level": "warning",
            "object": "ClusterQueue b",
            "quota": ["b"],
            "verb": "update",
            "outcome": "unavailable",
            "reason": "MaterializationFailed",
            "message": "no answer",
            "alike": 3,
        },
    ]


def test_a_crowd_of_causes_is_cut() -> None:
    lines = told(*(result("a", "refused", f"cause {number}") for number in range(25)))
    assert [line["event"] for line in lines].count("not written") == 10
    assert lines[-1] == {"event": "more was not written", "log_level": "warning", "causes": 15}


TREE = grow((root(), node("ml", gpu=24), team("a", parent="ml"), team("b", parent="ml")))
BROKEN = Frozen("ContainmentViolated", "24 but its children total 28", "ml")


def told_of(before: set[str], **frozen: Frozen) -> list[dict[str, object]]:
    with structlog.testing.capture_logs() as logs:
        tell_verdict(structlog.get_logger(), before, TREE, Verdict(frozen=frozen))
    return [dict(line) for line in logs]


def test_what_froze_is_one_line_for_the_node_that_is_at_fault() -> None:
    assert told_of(set(), ml=BROKEN, a=BROKEN, b=BROKEN) == [
        {
            "event": "frozen",
            "log_level": "warning",
            "quota": "ml",
            "reason": "ContainmentViolated",
            "message": "24 but its children total 28",
            "nodes": 3,
        }
    ]


def test_what_was_frozen_already_is_not_told_again() -> None:
    assert told_of({"ml", "a", "b"}, ml=BROKEN, a=BROKEN, b=BROKEN) == []


def test_what_thawed_is_told_and_what_is_gone_is_not() -> None:
    assert told_of({"ml", "a", "gone"}) == [
        {"event": "thawed", "log_level": "info", "quota": ["a", "ml"], "nodes": 2}
    ]


def test_a_crowd_of_violations_is_cut() -> None:
    crowd = {f"n{i:02}": Frozen("BudgetInvalid", "is -4", f"n{i:02}") for i in range(25)}
    lines = told_of(set(), **crowd)
    assert len(lines) == 11
    assert lines[-1] == {"event": "more is frozen", "log_level": "warning", "causes": 15}


def test_a_failure_is_named_as_its_condition_is_else_by_its_outcome() -> None:
    lost = msgspec.structs.replace(result("a", "unavailable", "failed calling"), kueue_down=True)
    lines = told(lost, result("b", "throttled", "later"), result("c", "refused", "no"))
    assert [line["reason"] for line in lines[1:]] == [
        "KueueUnavailable",
        "throttled",
        "MaterializationFailed",
    ]


def test_a_repair_says_who_changed_what() -> None:
    key = Key("ClusterQueue", "", "a")
    plan = Plan(repairs={key: Drift((1.0,), "kubectl-edit", ("cohortName",))})
    with structlog.testing.capture_logs() as logs:
        tell(structlog.get_logger(), plan, Results((result("a", "written"),) * 2))
    assert logs[1:] == [
        {
            "event": "put back what somebody changed",
            "log_level": "warning",
            "object": "ClusterQueue a",
            "quota": ["a"],
            "reason": "DriftRepaired",
            "manager": "kubectl-edit",
            "fields": ["cohortName"],
        }
    ]


def test_what_happened_is_told_once_and_not_what_the_verdict_told_already() -> None:
    found = [
        Happening("a", "u", "ObjectConflict", "ClusterQueue a is not ours"),
        Happening("a", "u", "Materialized", "Kueue has it as written; it was ObjectConflict"),
        Happening("ml", "u", "ContainmentViolated", "frozen: 24 but its children total 28"),
    ]
    with structlog.testing.capture_logs() as logs:
        tell_happenings(structlog.get_logger(), found)
    assert [(line["log_level"], line["reason"]) for line in logs] == [
        ("warning", "ObjectConflict"),
        ("info", "Materialized"),
    ]
