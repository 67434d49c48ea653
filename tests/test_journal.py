"""What the log says of a pass's writes."""

import structlog

from quota_translator.core.actions import Plan
from quota_translator.core.names import Key
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.journal import tell


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
            "reason": "no answer",
            "alike": 3,
        },
    ]


def test_a_crowd_of_causes_is_cut() -> None:
    lines = told(*(result("a", "refused", f"cause {number}") for number in range(25)))
    assert [line["event"] for line in lines].count("not written") == 10
    assert lines[-1] == {"event": "more was not written", "log_level": "warning", "causes": 15}
