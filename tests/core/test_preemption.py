"""Preemption: read in full, inherited from the nearest node that states it, rendered on queues."""

from typing import Any

import pytest

from quota_translator.core.names import CLUSTER_QUEUE, Key
from quota_translator.core.preemption import NO_PREEMPTION, Preemptions, read_preemption
from quota_translator.core.reading import read_quota
from quota_translator.core.tree import grow
from quota_translator.core.world import FieldFault, Memory
from tests.core.build import node, root, team
from tests.core.rendering import flavors, rendered

ANY = {**NO_PREEMPTION, "reclaimWithinCohort": "Any"}
LOWER = {**NO_PREEMPTION, "withinClusterQueue": "LowerPriority"}


def read(value: Any) -> tuple[Any, list[FieldFault]]:
    faults: list[FieldFault] = []
    return read_preemption(value, faults), faults


def test_what_is_left_out_is_kueues_default() -> None:
    assert read(None) == (None, [])
    assert read({}) == (NO_PREEMPTION, [])
    assert read({"reclaimWithinCohort": "Any"}) == (ANY, [])
    given = {
        "reclaimWithinCohort": "LowerPriority",
        "withinClusterQueue": "LowerOrNewerEqualPriority",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5},
    }
    assert read(given) == (given, [])


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        ("Any", "spec.preemption", "is not an object"),
        ({"reclaimWithinCohort": "any"}, ".reclaimWithinCohort", "Never, LowerPriority, Any"),
        ({"withinClusterQueue": True}, ".withinClusterQueue", "LowerOrNewerEqualPriority"),
        ({"borrowWithinCohort": "Any"}, ".borrowWithinCohort", "is not an object"),
        ({"borrowWithinCohort": {"policy": "Any"}}, ".borrowWithinCohort.policy", "LowerPriority"),
        (
            {"borrowWithinCohort": {"policy": "LowerPriority"}},
            ".borrowWithinCohort.policy",
            "needs a reclaimWithinCohort other than Never",
        ),
        (
            {"borrowWithinCohort": {"maxPriorityThreshold": 2**31}},
            ".borrowWithinCohort.maxPriorityThreshold",
            "2147483648 is not a 32-bit integer",
        ),
    ],
)
def test_what_cannot_be_read_is_a_fault_with_its_path(given: Any, path: str, words: str) -> None:
    _, faults = read(given)
    assert len(faults) == 1
    assert faults[0].path.endswith(path)
    assert words in faults[0].message


def test_a_fault_of_preemption_freezes_its_node_only() -> None:
    raw = {
        "metadata": {"name": "a"},
        "spec": {"role": "Cohort", "preemption": {"reclaimWithinCohort": "Maybe"}},
    }
    assert [fault.path for fault in read_quota(raw).faults] == [
        "spec.preemption.reclaimWithinCohort"
    ]


TREE = (
    root(preemption=ANY),
    node("ml", parent="root"),
    node("vision", parent="ml", preemption=LOWER),
    team("a", gpu="8", parent="ml"),
    team("b", gpu="8", parent="vision"),
    team("c", gpu="8", parent="vision", preemption=NO_PREEMPTION),
)


def test_the_nearest_node_that_states_it_decides_the_team_itself_first() -> None:
    found = Preemptions(grow(TREE))
    told = {name: (found.of(name), found.source(name)) for name in "abc"}
    assert told == {
        "a": (ANY, "root"),
        "b": (LOWER, "vision"),
        "c": (NO_PREEMPTION, "c"),
    }
    nowhere = Preemptions(grow((root(), team("a", gpu="8", parent="root"))))
    assert (nowhere.of("a"), nowhere.source("a")) == (NO_PREEMPTION, "")


def test_a_loop_of_parents_and_a_node_that_is_not_there_decide_nothing() -> None:
    loop = (root(preemption=ANY), node("x", parent="y"), node("y", parent="x"))
    found = Preemptions(grow(loop))
    assert found.of("x") == found.of("nobody") == NO_PREEMPTION


def preemption_of(result: Any, name: str) -> Any:
    return result.desired[Key(CLUSTER_QUEUE, "", name)].spec["preemption"]


def test_queues_carry_it_in_full() -> None:
    result = rendered(*TREE)
    assert {name: preemption_of(result, name) for name in "abc"} == {
        "a": ANY,
        "b": LOWER,
        "c": NO_PREEMPTION,
    }


def test_a_group_that_changes_its_mind_changes_the_queues_beneath_it_and_no_other() -> None:
    seen = flavors("a100")
    first = rendered(*TREE, flavors=seen)
    changed = (*TREE[:2], node("vision", parent="ml", preemption=ANY), *TREE[3:])
    again = rendered(*changed, flavors=seen, memory=Memory(rendered=first.queues))
    assert preemption_of(again, "b") == ANY
    for name in "ac":
        key = Key(CLUSTER_QUEUE, "", name)
        assert again.desired[key] is first.desired[key]
    assert again == rendered(*changed, flavors=seen)
