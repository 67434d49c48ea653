"""What happened, told from stored statuses and the ones that were written over them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from quota_translator.core.actions import Plan
from quota_translator.core.happenings import (
    MOST_ALIKE,
    Change,
    Happening,
    drained,
    happenings,
    repaired,
)
from quota_translator.core.names import Key
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.core.rootstatus import capacity_rows
from quota_translator.core.tree import Tree, grow
from quota_translator.core.world import Drift, QuotaNode
from tests.core.build import node, root, rows, team

Status = dict[str, Any]
OVERRUN = "24 but its children total 28"


def says(**conditions: str) -> Status:
    """A status; a condition is written `False ContainmentViolated its message`."""
    found = []
    for kind, text in conditions.items():
        status, reason, message = (*text.split(" ", 2), "", "")[:3]
        found.append({"type": kind, "status": status, "reason": reason, "message": message})
    return {"conditions": found}


SOUND = says(Ready="True Admitted", Materialized="True Admitted")


def frozen(reason: str = "ContainmentViolated", message: str = OVERRUN) -> Status:
    ready = f"False {reason} {message}"
    return says(Ready=ready, Degraded=f"True {reason} {message}", Materialized="False Frozen held")


def told(before: Mapping[str, Status], after: Mapping[str, Status], *nodes: QuotaNode) -> list[str]:
    """`node reason: message` of all that happened."""
    tree, changes = changed(before, after, nodes or guide())
    return [
        f"{one.node} {one.reason}: {one.message}"
        for one in happenings(changes, tree, Plan(), Results())
    ]


def changed(
    before: Mapping[str, Status], after: Mapping[str, Status], nodes: tuple[QuotaNode, ...]
) -> tuple[Tree, list[Change]]:
    held = [msgspec.structs.replace(one, status=before.get(one.name, {})) for one in nodes]
    tree = grow(held)
    return tree, [Change(tree.nodes[name], status) for name, status in after.items()]


def guide() -> tuple[QuotaNode, ...]:
    ml = node("ml", gpu=24, uid="ml-uid")
    return (root(), ml, team("a", gpu=16, parent="ml"), team("b", gpu=8, parent="ml"))


def all_of(status: Status) -> dict[str, Status]:
    return dict.fromkeys(("ml", "a", "b"), status)


@pytest.mark.case("A-96")
def test_a_subtree_that_freezes_and_thaws_is_told_of_at_its_top() -> None:
    assert told(all_of(SOUND), all_of(frozen())) == [
        f"ml ContainmentViolated: frozen: {OVERRUN} (and 2 beneath)"
    ]
    assert told(all_of(frozen()), all_of(SOUND)) == [
        "ml Thawed: sound again; it was ContainmentViolated (and 2 beneath)"
    ]


def test_a_restart_repeats_nothing() -> None:
    assert told(all_of(frozen()), all_of(frozen())) == []
    broken = says(Materialized="False ObjectConflict taken", Oversubscribed="True Oversubscribed x")
    assert told({"a": broken}, {"a": broken}) == []


def test_a_node_that_is_broken_from_the_start_is_told_of_and_a_sound_one_is_not() -> None:
    assert told({}, {"a": frozen("BudgetInvalid", "is -4"), "b": SOUND}) == [
        "a BudgetInvalid: frozen: is -4"
    ]


def test_another_reason_is_news_and_another_number_is_not() -> None:
    more = frozen(message="24 but its children total 30")
    assert told({"ml": frozen()}, {"ml": more}) == []
    other = frozen("CapacityExceeded", "24 exceeds the mark")
    assert told({"ml": frozen()}, {"ml": other}) == [
        "ml CapacityExceeded: frozen: 24 exceeds the mark"
    ]


def test_two_siblings_are_two_and_a_loop_is_one() -> None:
    after = {"a": frozen(), "b": frozen()}
    assert [line.split()[0] for line in told({}, after)] == ["a", "b"]
    loop = frozen("ParentCycle", "x, y, z hang from each other")
    ring = (node("y", parent="z"), node("z", parent="x"), node("x", parent="y"))
    beneath = team("leaf", parent="x")
    found = told({}, dict.fromkeys("xyz", loop) | {"leaf": loop}, root(), *ring, beneath)
    assert found == ["x ParentCycle: frozen: x, y, z hang from each other (and 3 beneath)"]


@pytest.mark.parametrize(
    "reason",
    ["ObjectConflict", "KueueUnavailable", "MaterializationFailed", "FlavorMissing", "Draining"],
)
def test_what_kueue_does_not_have_is_told_in_the_words_of_the_condition(reason: str) -> None:
    after = says(Ready="True Admitted", Materialized=f"False {reason} because of this")
    tree, changes = changed({"a": SOUND}, {"a": after}, guide())
    (found,) = happenings(changes, tree, Plan(), Results())
    assert (found.node, found.reason, found.message) == ("a", reason, "because of this")
    assert found.is_warning is (reason != "Draining")


def test_writes_on_their_way_are_no_event_and_the_end_of_a_fault_is_one() -> None:
    under_way = says(Ready="True Admitted", Materialized="False Progressing being written")
    failed = says(Ready="True Admitted", Materialized="False MaterializationFailed no")
    assert told({"a": SOUND}, {"a": under_way}) == []
    assert told({"a": under_way}, {"a": SOUND}) == []
    assert told({"a": failed}, {"a": SOUND}) == [
        "a Materialized: Kueue has it as written; it was MaterializationFailed"
    ]


@pytest.mark.case("A-96")
def test_a_mark_that_falls_is_told_on_root_and_one_that_rises_is_not() -> None:
    def measured(gpus: int) -> Status:
        return SOUND | {"capacity": capacity_rows(rows(f"gpu a100 {gpus}", "tpu a100 4"))}

    assert told({"root": measured(32)}, {"root": measured(24)}) == [
        "root CapacityFell: the high-water mark of nvidia.com/gpu on a100 fell from 32 to 24"
    ]
    assert told({"root": measured(24)}, {"root": measured(32)}) == []
    assert told({}, {"root": measured(32)}) == []


def test_a_condition_that_appears_is_told_when_it_appears() -> None:
    over = says(Ready="True Admitted", Oversubscribed="True Oversubscribed 40 of 32")
    assert told({"root": SOUND}, {"root": over}) == ["root Oversubscribed: 40 of 32"]
    assert told({"root": over}, {"root": SOUND}) == []


def written(name: str, outcome: Outcome = "written", *nodes: str) -> Result:
    key = Key("ClusterQueue", "", name)
    return Result(key, "update", 1, frozenset(nodes or (name,)), {}, outcome)


def test_drift_is_told_when_it_was_put_back_once_for_an_object_and_with_its_author() -> None:
    drift = Drift((1.0,), "kubectl-edit", ("cohortName", "resourceGroups"))
    plan = Plan(repairs={Key("ClusterQueue", "", name): drift for name in "ab"})
    results = Results((written("a"), written("a"), written("b", "refused"), written("c")))

    assert [result.key.name for result in repaired(plan.repairs, results)] == ["a"]
    (found,) = happenings([], grow(guide()), plan, results)
    assert (found.node, found.reason) == ("a", "DriftRepaired")
    assert found.message == (
        "ClusterQueue a: put back cohortName, resourceGroups, changed by 'kubectl-edit'"
    )
    assert found.is_warning


def test_a_crowd_is_told_in_part_and_the_rest_is_one_more_on_root() -> None:
    crowd = tuple(team(f"t{i:03}", gpu=1) for i in range(100))
    after = {one.name: says(Materialized="False KueueUnavailable away") for one in crowd}
    found = told({}, after, root(), *crowd)
    assert len(found) == MOST_ALIKE + 1
    assert found[-1] == "root KueueUnavailable: and 80 more nodes of the tree"


def test_the_object_is_named_with_its_uid() -> None:
    tree, changes = changed({}, {"ml": frozen()}, guide())
    (found,) = happenings(changes, tree, Plan(), Results())
    assert found.uid == "ml-uid"
    assert drained(tree.nodes["ml"]) == Happening(
        "ml", "ml-uid", "Drained", "nothing of it is left in Kueue; the node goes"
    )
    assert not drained(tree.nodes["ml"]).is_warning


def test_a_stored_status_that_makes_no_sense_is_as_good_as_none() -> None:
    assert told({"a": {"conditions": "?", "capacity": 7}}, {"a": SOUND, "root": SOUND}) == []
