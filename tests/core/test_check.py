"""The verdict as a whole: what freezes, in which words, and in which order."""

import copy

import pytest

from quota_translator.core.check import Frozen, Verdict, by_node, node_message
from quota_translator.core.world import QuotaNode
from tests.core.build import FLAVORS, judged, node, root, rows, team


def company() -> list[QuotaNode]:
    return [
        root(gpu="32"),
        node("ml", gpu="24"),
        team("vision", parent="ml", gpu="16 +4 -8"),
        team("audio", parent="ml", gpu="8"),
        team("web", gpu="8"),
    ]


@pytest.mark.case("A-1")
def test_nothing_and_a_sound_tree_have_no_violations() -> None:
    assert judged() == Verdict()
    assert judged(*company(), capacity=rows(gpu=32), flavors=FLAVORS) == Verdict()


@pytest.mark.case("A-15", "A-16")
def test_a_violator_and_its_descendants_freeze_with_its_own_words() -> None:
    nodes = [
        root(),
        node("ml", gpu="8"),
        node("inner", parent="ml", gpu="8"),
        team("deep", parent="inner", gpu="8"),
        team("bad", parent="inner", gpu="-1"),
        team("sibling", parent="ml", gpu="8"),
        team("web", gpu="8"),
    ]
    verdict = judged(*nodes)
    own = by_node(verdict.violations)
    assert list(verdict.frozen) == ["bad", "deep", "inner", "ml", "sibling"]
    overrun = Frozen("ContainmentViolated", own["ml"][0].message, "ml")
    for name in ("ml", "inner", "deep", "sibling"):
        assert verdict.frozen[name] == overrun
    assert verdict.frozen["bad"] == Frozen("BudgetInvalid", own["bad"][0].message, "bad")


@pytest.mark.case("A-16")
def test_the_nearest_violating_ancestor_is_the_one_that_is_inherited() -> None:
    nodes = [
        root(gpu="1"),
        node("ml", gpu="8"),
        team("a", parent="ml", gpu="9"),
        team("web", gpu="8"),
    ]
    origins = {name: frozen.origin for name, frozen in judged(*nodes).frozen.items()}
    assert origins == {"root": "root", "ml": "ml", "a": "ml", "web": "root"}


@pytest.mark.case("A-15")
def test_what_hangs_from_nowhere_is_frozen() -> None:
    nodes = [root(), node("ml", parent="x"), team("a", parent="ml", gpu="1"), team("web", gpu="1")]
    frozen = judged(*nodes).frozen
    assert {name: why.reason for name, why in frozen.items()} == {
        "ml": "ParentMissing",
        "a": "Unreachable",
    }


@pytest.mark.case("A-17")
def test_of_several_faults_the_structural_one_is_primary_and_all_are_told() -> None:
    bad = team("Bad", "gpu a100 -5", "gpu a100 99", "gpu h100 99", parent="web", priority_tier="x")
    verdict = judged(
        root(),
        team("web", gpu="1"),
        bad,
        capacity=rows("gpu a100 8", "gpu h100 8"),
        flavors=FLAVORS,
    )
    own = by_node(verdict.violations)["Bad"]
    assert [v.reason for v in own] == [
        "NodeKindInvalid",
        "NameInvalid",
        "BudgetInvalid",
        "BudgetInvalid",
        "CapacityExceeded",
        "CapacityExceeded",
    ]
    frozen = verdict.frozen["Bad"]
    assert frozen.reason == "NodeKindInvalid"
    assert frozen.message.startswith("6 invariants violated: ")
    assert all(v.message in frozen.message for v in own)


@pytest.mark.case("A-17")
def test_a_message_for_one_node() -> None:
    assert node_message([]) == ""
    (only,) = judged(root(), team("x")).violations
    assert node_message([only]) == only.message
    assert node_message([only, only]) == (f"2 invariants violated: {only.message}; {only.message}")
    many = node_message([only] * 1000)
    assert many.startswith("1000 invariants violated: ")
    assert many.endswith(" more)")
    assert len(many) < 9000


@pytest.mark.case("A-17", "A-18")
def test_violations_are_sorted_by_node_then_rank_then_subject() -> None:
    verdict = judged(
        root(),
        team("b", "gpu h100 -1", "gpu a100 -1", parent="x"),
        team("a", "tpu a100 -1"),
    )
    assert [(v.node, v.reason, v.subject) for v in verdict.violations] == [
        ("a", "BudgetInvalid", "google.com/tpu on a100: nominal"),
        ("b", "ParentMissing", "x"),
        ("b", "BudgetInvalid", "nvidia.com/gpu on a100: nominal"),
        ("b", "BudgetInvalid", "nvidia.com/gpu on h100: nominal"),
    ]


@pytest.mark.case("A-12")
def test_checking_leaves_its_input_alone() -> None:
    nodes, capacity = company(), dict(rows(gpu=4))
    before = copy.deepcopy((nodes, capacity))
    assert judged(*nodes, capacity=capacity, flavors=FLAVORS).violations
    assert (nodes, capacity) == before
