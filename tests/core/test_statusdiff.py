"""When a status is written, and what is sent."""

import copy
from typing import Any

import pytest

from quota_translator.core.options import Options
from quota_translator.core.statusdiff import Due, merge_patch, needs_write, same
from quota_translator.core.world import Clock
from tests.core.test_rootstatus import WALL

STATUS: dict[str, Any] = {
    "observedGeneration": 3,
    "parent": "ml",
    "summary": "nvidia.com/gpu a100 4/8",
    "conditions": [{"type": "Ready", "status": "True"}],
    "budgets": [{"resourceName": "nvidia.com/gpu", "nominal": "8", "admitted": "4", "over": "0"}],
    "materialization": {"frozen": False, "lastAppliedGeneration": 3},
    "capacity": [
        {
            "resourceName": "nvidia.com/gpu",
            "allocatable": "32",
            "observedAt": "2026-10-05T09:41:12Z",
            "pending": [{"kind": "Drop", "value": "24", "elapsed": 3}],
        }
    ],
}
INTERVAL = Options(usage_interval=5.0)


def edited(*path: Any, to: Any) -> dict[str, Any]:
    status = copy.deepcopy(STATUS)
    place: Any = status
    for step in path[:-1]:
        place = place[step]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return status


def at(steady: float) -> Clock:
    return Clock(WALL, steady)


@pytest.mark.case("A-37")
@pytest.mark.parametrize(
    ("new", "stamped", "expected"),
    [
        pytest.param(copy.deepcopy(STATUS), False, True, id="the same again"),
        pytest.param(
            edited("capacity", 0, "pending", 0, "elapsed", to=9), True, True, id="time was counted"
        ),
        pytest.param(
            edited("capacity", 0, "observedAt", to="2026-10-05T09:42:12Z"),
            False,
            True,
            id="a stamp that nobody set anew",
        ),
        pytest.param(
            edited("capacity", 0, "observedAt", to="2026-10-05T09:42:12Z"),
            True,
            False,
            id="a stamp set anew",
        ),
        pytest.param(
            edited("capacity", 0, "pending", 0, "value", to="16"), False, False, id="a deeper fall"
        ),
        pytest.param(
            edited("capacity", 0, "pending", to=None), False, False, id="a wait that ended"
        ),
        pytest.param(edited("capacity", to=None), False, False, id="rows that are gone"),
        pytest.param(edited("summary", to="another"), False, False, id="another summary"),
        pytest.param(STATUS | {"clusters": []}, False, True, id="a field that is not ours"),
        pytest.param(STATUS | {"capacity": "odd"}, False, False, id="rows that are none"),
        pytest.param(STATUS | {"capacity": ["odd"]}, False, False, id="a row that is none"),
        pytest.param(
            edited("capacity", 0, "pending", to=["odd"]), False, False, id="a wait that is none"
        ),
    ],
)
def test_only_what_can_be_seen_makes_a_difference(new: Any, stamped: bool, expected: bool) -> None:
    assert same(STATUS, new, stamped) is expected
    assert same(new, STATUS, stamped) is expected


VERDICT = edited("conditions", 0, "status", to="False")
USE = edited("budgets", 0, "admitted", to="5") | {"summary": "nvidia.com/gpu a100 5/8"}


@pytest.mark.parametrize(
    ("new", "last", "now", "expected"),
    [
        pytest.param(STATUS, 100.0, 200.0, Due(), id="nothing differs, nothing is due"),
        pytest.param(VERDICT, 100.0, 100.1, Due(now=True), id="a verdict at once"),
        pytest.param(USE, 100.0, 101.0, Due(at=105.0), id="use waits for its interval"),
        pytest.param(USE, 100.0, 105.0, Due(now=True), id="use when it is due"),
        pytest.param(USE, None, 0.0, Due(now=True), id="use that was never written"),
        pytest.param(
            USE | {"conditions": []}, 100.0, 100.1, Due(now=True), id="use along with a verdict"
        ),
        pytest.param(
            edited("budgets", 0, "nominal", to="9"), 100.0, 100.1, Due(now=True), id="a share"
        ),
        pytest.param(
            edited("budgets", 0, "admitted", to=None), 1.0, 2.0, Due(at=6.0), id="unknown"
        ),
        pytest.param(edited("budgets", to="odd"), 1.0, 2.0, Due(now=True), id="no list of budgets"),
        pytest.param(edited("budgets", to=[]), 1.0, 2.0, Due(now=True), id="a budget that is gone"),
    ],
)
@pytest.mark.case("A-89")
def test_a_verdict_is_written_at_once_and_use_at_most_once_an_interval(
    new: Any, last: float | None, now: float, expected: Due
) -> None:
    assert needs_write(STATUS, new, last, at(now), INTERVAL) == expected


def test_an_interval_of_nothing_writes_use_at_once() -> None:
    assert needs_write(STATUS, USE, 1.0, at(1.0), Options(usage_interval=0.0)) == Due(now=True)


def test_a_first_status_is_written_at_once() -> None:
    assert needs_write({}, STATUS, None, at(0.0), INTERVAL) == Due(now=True)


@pytest.mark.parametrize(
    ("new", "patch"),
    [
        pytest.param(STATUS, {}, id="nothing"),
        pytest.param(USE, {"summary": USE["summary"], "budgets": USE["budgets"]}, id="whole lists"),
        pytest.param(edited("parent", to=None), {"parent": None}, id="null for what is gone"),
        pytest.param(
            edited("materialization", to={"frozen": True, "reason": "ParentMissing"}),
            {
                "materialization": {
                    "frozen": True,
                    "reason": "ParentMissing",
                    "lastAppliedGeneration": None,
                }
            },
            id="inside an object too",
        ),
    ],
)
def test_a_patch_holds_only_what_differs(new: Any, patch: Any) -> None:
    assert merge_patch(STATUS, new) == patch


def test_a_patch_of_nothing_is_the_whole_status_and_leaves_alone_what_is_not_ours() -> None:
    assert merge_patch({}, STATUS) == STATUS
    assert merge_patch(STATUS | {"clusters": [1]}, STATUS) == {}


CLAIM = {"uid": "u", "seenAt": "2026-11-30T00:00:00Z"}


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param({"controller": CLAIM}, {}, {}, id="not spoken of: it stays"),
        pytest.param({"controller": CLAIM}, {"controller": CLAIM}, {}, id="the same"),
        pytest.param({}, {"controller": CLAIM}, {"controller": CLAIM}, id="new"),
        pytest.param(
            {"controller": CLAIM | {"lease": "other"}},
            {"controller": CLAIM | {"uid": "v"}},
            {"controller": {"lease": None, "uid": "v"}},
            id="another's",
        ),
    ],
)
def test_who_holds_the_tree_is_written_by_those_who_say_it(old: Any, new: Any, patch: Any) -> None:
    assert merge_patch(old, new) == patch
    assert same(old, new) is not bool(patch)
    assert needs_write(old, new, 1.0, at(1.1), INTERVAL).now is bool(patch)
