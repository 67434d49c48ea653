"""Planning: which writes are safe now, what they cost, and what is said of the rest."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from quota_translator.core import notes
from quota_translator.core.actions import Action, Plan
from quota_translator.core.compare import Change, changes, compare, differing, naming
from quota_translator.core.kueue import normal
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    KINDS,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    Key,
    Pair,
)
from quota_translator.core.plan import plan
from quota_translator.core.quantity import Quantity
from quota_translator.core.settling import settle_after, unsettled
from quota_translator.core.tree import grow
from quota_translator.core.world import Amount, Memory, Observed, QuotaNode, Refusal, Settling
from tests.core.build import node, pair, root, team
from tests.core.kueueworld import KueueWorld
from tests.core.rendering import MANAGER, a_world, an_option, as_live, at, rendered, stands, told

GPU = pair("gpu a100")
SMALL = (root(), team("a", "gpu a100 4", parent="root"), team("b", "gpu a100 4", parent="root"))
GROUP = (
    root("gpu a100 20"),
    node("ml", "gpu a100 10 !"),
    team("a", "gpu a100 4", parent="ml"),
    team("b", "gpu a100 4", parent="ml"),
)


def converged(*nodes: QuotaNode, live: Iterable[Observed] = ()) -> KueueWorld:
    """A world in which these nodes have been carried out and Kueue has taken everything."""
    world = KueueWorld(live)
    settle(world, nodes)
    world.writes.clear()
    return world


def settle(world: KueueWorld, nodes: Iterable[QuotaNode], frozen: Iterable[str] = ()) -> list[str]:
    """Carry out these nodes to the end; the writes that it took."""
    nodes, before = tuple(nodes), len(world.writes)
    for _ in range(20):
        planned = world.one_pass(nodes, frozen)
        world.wait()
        if not planned.actions and planned.wake_at is None:
            return [line(action) for action in world.writes[before:]]
    raise AssertionError("no end in sight")


def settle_frozen(world: KueueWorld, nodes: Iterable[QuotaNode], *frozen: str) -> list[str]:
    """As `settle`, with these nodes frozen; writes of one wave in the order of the plan."""
    found: list[str] = []
    for _ in range(10):
        found += lines(world.one_pass(nodes, frozen))
        world.wait()
    return found


def line(action: Action) -> str:
    """Such as `update ClusterQueue a 3: gpu a100 8 +0`, with the parent when it moves."""
    groups = told(action.spec.get("resourceGroups", []))
    cells = ", ".join(cell for group in groups for cell in group)
    text = f"{action.verb} {action.key} {action.stage}"
    if action.leaves and action.verb == "update":
        text += f" to {action.spec.get('cohortName') or action.spec.get('parentName')}"
    return f"{text}: {cells}" if cells else text


def lines(planned: Plan) -> list[str]:
    return [line(action) for action in planned.actions]


def said(planned: Plan, name: str) -> tuple[str, str]:
    """The foremost reason and message about a node."""
    note = notes.foremost(note for note in planned.notes if note.node == name)
    assert note is not None, f"nothing is said of {name}"
    return note.reason, note.message


def put(world: KueueWorld, *objects: Observed) -> None:
    for seen in objects:
        world.store[seen.key] = world.believed[seen.key] = seen


def edited(world: KueueWorld, key: Key, by: str = "kubectl-edit", **fields: Any) -> None:
    """Somebody changes a live object."""
    former = world.store[key]
    spec = {name: value for name, value in {**former.spec, **fields}.items() if value is not None}
    changed = msgspec.structs.replace(
        former, spec=spec, generation=former.generation + 1, last_manager=by
    )
    world.store[key] = changed
    world.take(key)


def used(world: KueueWorld, of: Pair, amount: int) -> None:
    """Kueue tells that team a uses and reserves so much."""
    use = {of: Amount(Quantity.of(amount), Quantity.of(0))}
    put(world, msgspec.structs.replace(world.store[QUEUE_A], usage=use, reservation=use))


QUEUE_A, COHORT_ML = Key(CLUSTER_QUEUE, "", "a"), Key(COHORT, "", "ml")


# --- what a change costs ----------------------------------------------------------------------


@pytest.mark.case("A-71", "FC-E04")
def test_a_fresh_tree_is_written_parents_first_and_in_two_waves() -> None:
    world = KueueWorld(())
    world.options = an_option()  # with the cover flavor
    tree = (team("a", "gpu a100 4", parent="ml"), node("ml", "gpu a100 6 !"), root())
    first = world.look(tree)[2]
    assert [str(action.key) for action in first.actions] == [
        f"ResourceFlavor {COVER_FLAVOR}",
        "Cohort root",
        "Cohort ml",
        "ClusterQueue a",
        "LocalQueue ml-serving/a",
    ]
    assert [str(action.requires) for action in first.actions] == [
        "None",
        "None",
        "Cohort root",
        "Cohort ml",
        "ClusterQueue a",
    ]
    world.one_pass(tree)
    assert lines(world.look(tree)[2]) == ["update Cohort ml 3: gpu a100 2 +0"]


@pytest.mark.case("A-37", "A-73")
def test_nothing_is_planned_when_nothing_differs() -> None:
    world = converged(*GROUP)
    assert world.look(GROUP)[2] == Plan()


@pytest.mark.case("FC-D01")
@pytest.mark.parametrize(
    ("written", "stored"), [("1000", "1k"), ("1024Mi", "1Gi"), ("0.5", "500m"), ("1e3", "1000")]
)
def test_another_spelling_of_the_same_amount_is_no_change(written: str, stored: str) -> None:
    tree = (root(), team("a", f"example.com/thing a100 {written}", parent="root"))
    world = converged(*tree)
    seen = world.store[QUEUE_A]
    groups = [
        {
            "coveredResources": ["example.com/thing"],
            "flavors": [
                {
                    "name": "a100",
                    "resources": [
                        {"name": "example.com/thing", "nominalQuota": stored, "borrowingLimit": "0"}
                    ],
                }
            ],
        }
    ]
    spec = {**seen.spec, "resourceGroups": normal(groups)}
    put(world, msgspec.structs.replace(seen, spec=spec))
    assert world.look(tree)[2].actions == ()


EDITS = [
    ("a raise with room", "gpu a100 6", ["update ClusterQueue a 3: gpu a100 6 +0"]),
    ("a cut", "gpu a100 2", ["update ClusterQueue a 1: gpu a100 2 +0"]),
    ("a limit up", "gpu a100 4 +3", ["update ClusterQueue a 3: gpu a100 4 +3"]),
    ("cut and limit up", "gpu a100 2 +9", ["update ClusterQueue a 3: gpu a100 2 +9"]),
    ("raise and lending", "gpu a100 6 -5", ["update ClusterQueue a 3: gpu a100 6 +0 -5"]),
]


@pytest.mark.parametrize(("budget", "writes"), [e[1:] for e in EDITS], ids=[e[0] for e in EDITS])
def test_an_edit_of_one_share_costs_one_final_write(budget: str, writes: list[str]) -> None:
    world = converged(*SMALL)
    assert settle(world, (*SMALL[:1], team("a", budget, parent="root"), SMALL[2])) == writes


@pytest.mark.case("FC-F05")
@pytest.mark.parametrize("budget", ["gpu a100 8 -8", "gpu a100 8"])
def test_nominal_falls_below_the_old_lending_limit_in_one_write(budget: str) -> None:
    world = converged(root(), team("a", "gpu a100 16 -12", parent="root"))
    writes = settle(world, (root(), team("a", budget, parent="root")))
    assert writes == [f"update ClusterQueue a 1: gpu a100 8 +0{budget[10:]}"]


def test_only_fields_that_differ_are_sent_and_lost_ones_are_named() -> None:
    world = converged(*SMALL)
    edited(world, QUEUE_A, namespaceSelector=None, cohortName="root")
    edited(world, Key(COHORT, "", "root"), parentName="elsewhere")
    found = {action.key: action for action in world.look(SMALL)[2].actions}
    assert found[QUEUE_A].fields == ("namespaceSelector",)
    assert found[Key(COHORT, "", "root")].fields == ("parentName",)
    assert "parentName" not in found[Key(COHORT, "", "root")].spec
    assert found[QUEUE_A].uid == world.store[QUEUE_A].uid != ""


def test_a_share_that_moves_between_two_goes_down_first_and_up_when_kueue_has_it() -> None:
    tree = (root("gpu a100 8"), *SMALL[1:])
    world = converged(*tree)
    swapped = (
        tree[0],
        team("a", "gpu a100 6", parent="root"),
        team("b", "gpu a100 2", parent="root"),
    )
    first = world.one_pass(swapped)
    assert lines(first) == ["update ClusterQueue b 1: gpu a100 2 +0"]
    reason, message = said(first, "a")
    assert reason == notes.WAITING_FOR_SHRINK
    assert "room for 0 of 2 nvidia.com/gpu on a100" in message
    assert "ClusterQueue b (4, shrinks first)" in message
    second = world.one_pass(swapped)
    assert second.actions == ()
    assert "ClusterQueue b (4, Kueue has not taken its last write yet)" in said(second, "a")[1]
    world.take(Key(CLUSTER_QUEUE, "", "b"))
    assert lines(world.one_pass(swapped)) == ["update ClusterQueue a 3: gpu a100 6 +0"]


def test_a_raise_in_a_full_group_waits_a_second_for_the_groups_own_share() -> None:
    world = converged(*GROUP)
    raised = (*GROUP[:2], team("a", "gpu a100 6", parent="ml"), GROUP[3])
    first = world.one_pass(raised)
    assert lines(first) == ["update Cohort ml 1: gpu a100 0 +0"]
    waiting = world.one_pass(raised)
    assert waiting.actions == ()
    assert waiting.wake_at == world.steady + 1.0
    assert said(waiting, "a")[0] == notes.WAITING_FOR_SHRINK
    world.steady += 1.0
    assert lines(world.one_pass(raised)) == ["update ClusterQueue a 3: gpu a100 6 +0"]


def test_what_grows_with_room_and_what_shrinks_go_in_one_write() -> None:
    two = "gpu h100 4"
    world = converged(root(), team("a", "gpu a100 4", two, parent="root"))
    writes = settle(world, (root(), team("a", "gpu a100 2", "gpu h100 6", parent="root")))
    assert writes == ["update ClusterQueue a 3: gpu a100 2 +0, gpu h100 6 +0"]


def test_a_cell_without_room_waits_while_the_others_go() -> None:
    tree = (root("gpu a100 8"), *SMALL[1:])
    world = converged(*tree)
    more = (tree[0], team("a", "gpu a100 5", "gpu h100 3", parent="root"), tree[2])
    assert lines(world.one_pass(more)) == ["update ClusterQueue a 3: gpu a100 4 +0, gpu h100 3 +0"]


def test_a_pair_that_is_new_and_has_no_room_is_listed_at_zero() -> None:
    frozen = team("b", "gpu h100 9", parent="root")
    world = converged(root(), SMALL[1], team("b", "gpu h100 4", parent="root"))
    more = (root("gpu h100 5"), team("a", "gpu a100 4", "gpu h100 3 +2 -1", parent="root"), frozen)
    planned = world.one_pass(more, frozen=["b"])
    assert lines(planned) == ["update ClusterQueue a 1: gpu a100 4 +0, gpu h100 0 +2 -0"]
    assert "ClusterQueue b (4, frozen)" in said(planned, "a")[1]


@pytest.mark.case("FC-G05")
def test_a_pair_that_is_dropped_goes_to_zero_at_once_and_away_when_nothing_uses_it() -> None:
    world = converged(root(), team("a", "gpu a100 8", "gpu h100 4", parent="root"))
    less = (root(), team("a", "gpu a100 8", parent="root"))
    h100 = pair("gpu h100")
    used(world, h100, 2)
    zero = "update ClusterQueue a 1: gpu a100 8 +0, gpu h100 0 +0"
    assert settle(world, less) == [zero]
    world.memory = msgspec.structs.replace(world.memory, zeroed={(QUEUE_A, h100): 0.0})
    assert world.look(less)[2].actions == ()
    used(world, h100, 0)
    assert lines(world.look(less)[2]) == ["update ClusterQueue a 1: gpu a100 8 +0"]


# --- enforced groups --------------------------------------------------------------------------


def test_a_limit_is_lowered_and_taken_before_shares_grow_into_its_place() -> None:
    before = (root(), node("ml", "gpu a100 4 +6 !"), team("a", "gpu a100 4", parent="ml"))
    after = (root(), node("ml", "gpu a100 10 !"), team("a", "gpu a100 10", parent="ml"))
    world = converged(*before)
    first = world.one_pass(after)
    assert lines(first) == ["update Cohort ml 1: gpu a100 0 +0"]
    assert "the borrowingLimit of Cohort ml, which is still being lowered" in said(first, "a")[1]
    assert world.one_pass(after).actions == ()
    world.steady += 1.0
    assert lines(world.one_pass(after)) == ["update ClusterQueue a 3: gpu a100 10 +0"]


def test_a_limit_gives_way_while_shares_beneath_are_still_too_large() -> None:
    before = (root(), node("ml", "gpu a100 8 +4 !"), team("a", "gpu a100 8", parent="ml"))
    after = (root(), node("ml", "gpu a100 6 +4 !"), team("a", "gpu a100 6", parent="ml"))
    world = converged(*before)
    first = world.one_pass(after)
    assert lines(first) == [
        "update Cohort ml 1: gpu a100 0 +2",
        "update ClusterQueue a 1: gpu a100 6 +0",
    ]
    assert (
        "the borrowingLimit of Cohort ml for nvidia.com/gpu on a100 is 2 instead of 4"
        in (said(first, "ml")[1])
    )
    assert settle(world, after) == ["update Cohort ml 3: gpu a100 0 +4"]


def test_a_budget_that_becomes_enforced_is_one_write() -> None:
    open_group = (root(), node("ml", "gpu a100 6"), team("a", "gpu a100 4", parent="ml"))
    world = converged(*open_group)
    capped = (root(), node("ml", "gpu a100 6 +1 !"), open_group[2])
    assert settle(world, capped) == ["update Cohort ml 3: gpu a100 2 +1"]


def test_a_budget_that_is_no_longer_enforced_leaves_no_quota() -> None:
    world = converged(*GROUP)
    plain = (GROUP[0], node("ml", "gpu a100 10"), *GROUP[2:])
    assert settle(world, plain) == ["update Cohort ml 1"]


def test_nothing_grows_beneath_a_queue_of_which_a_restart_forgot_what_it_held() -> None:
    world = converged(*GROUP)
    seen = world.store[Key(CLUSTER_QUEUE, "", "b")]
    put(world, msgspec.structs.replace(seen, generation=5, active_generation=4))
    world.memory = Memory()
    raised = (GROUP[0], node("ml", "gpu a100 12 !"), team("a", "gpu a100 6", parent="ml"), GROUP[3])
    waiting = world.one_pass(raised)
    assert waiting.actions == ()
    assert "ClusterQueue b (4, Kueue has not taken its last write yet)" in said(waiting, "a")[1]
    world.take(Key(CLUSTER_QUEUE, "", "b"))
    assert lines(world.one_pass(raised)) == ["update ClusterQueue a 3: gpu a100 6 +0"]


def test_a_limit_does_not_rise_above_what_nobody_remembers() -> None:
    before = (root(), node("ml", "gpu a100 4 +1 !"), team("a", "gpu a100 4", parent="ml"))
    world = converged(*before)
    seen = world.store[QUEUE_A]
    put(world, msgspec.structs.replace(seen, generation=5, active_generation=4))
    world.memory = Memory()
    after = (root(), node("ml", "gpu a100 4 +3 !"), before[2])
    assert world.one_pass(after).actions == ()
    world.take(QUEUE_A)
    assert lines(world.one_pass(after)) == ["update Cohort ml 3: gpu a100 0 +3"]


def test_a_limit_that_a_group_did_not_have_begins_at_0_over_what_nobody_remembers() -> None:
    tree = (root(), node("ml", "gpu a100 4 +1 !"), team("a", "gpu a100 4", parent="ml"))
    world = converged(*tree)
    queue = world.store[QUEUE_A]
    put(
        world,
        stands(COHORT, "ml"),
        msgspec.structs.replace(queue, generation=5, active_generation=4),
    )
    world.memory = Memory()
    assert lines(world.one_pass(tree)) == ["update Cohort ml 2: gpu a100 0 +0"]
    world.take(QUEUE_A)
    world.steady += 1.0
    assert lines(world.one_pass(tree)) == ["update Cohort ml 3: gpu a100 0 +1"]


WHO = [
    ("a stranger", {"ours": False}, "(5, not ours)"),
    ("one that goes", {"deleting": True}, "(5, terminating)"),
]


@pytest.mark.parametrize(("fields", "shown"), [w[1:] for w in WHO], ids=[w[0] for w in WHO])
def test_a_grow_names_who_keeps_the_sum_up(fields: dict[str, Any], shown: str) -> None:
    world = converged(*GROUP)
    put(world, stands(CLUSTER_QUEUE, "x", "gpu a100 5", parent="ml", **fields))
    raised = (*GROUP[:2], team("a", "gpu a100 6", parent="ml"), GROUP[3])
    world.one_pass(raised)
    world.wait()
    planned = world.one_pass(raised)
    assert planned.actions == ()
    assert f"ClusterQueue x {shown}" in said(planned, "a")[1]


# --- moves ------------------------------------------------------------------------------------

TWO = (
    root(),
    node("g", "gpu a100 4 !"),
    node("h", "gpu a100 4 !"),
    team("a", "gpu a100 4", parent="g"),
    team("b", "gpu a100 4", parent="h"),
)


def test_a_move_into_free_room_is_one_write_with_the_new_share() -> None:
    world = converged(root(), node("g"), node("h"), team("a", "gpu a100 4", parent="g"))
    moved = (root(), node("g"), node("h"), team("a", "gpu a100 6", parent="h"))
    planned = world.look(moved)[2]
    assert [str(action.requires) for action in planned.actions] == ["Cohort h"]
    assert settle(world, moved) == ["update ClusterQueue a 2 to h: gpu a100 6 +0"]


def test_of_two_that_change_places_only_one_gives_its_share_away_meanwhile() -> None:
    world = converged(*TWO)
    crossed = (*TWO[:3], team("a", "gpu a100 4", parent="h"), team("b", "gpu a100 4", parent="g"))
    first, *moves, last = settle(world, crossed)
    assert first == "update ClusterQueue a 1: gpu a100 0 +0"
    assert sorted(moves) == [
        "update ClusterQueue a 2 to h: gpu a100 0 +0",
        "update ClusterQueue b 2 to g: gpu a100 4 +0",
    ]
    assert last == "update ClusterQueue a 3: gpu a100 4 +0"


def test_a_group_that_moves_gives_up_what_does_not_fit_where_it_goes() -> None:
    before = (
        root(),
        node("h", "gpu a100 4 !"),
        node("x", parent="root"),
        team("a", "gpu a100 4", parent="x"),
        team("c", "gpu a100 3", parent="h"),
    )
    world = converged(*before)
    after = (*before[:2], node("x", parent="h"), *before[3:])
    assert settle_frozen(world, after, "c") == [
        "update Cohort h 1: gpu a100 0 +0",
        "update ClusterQueue a 1: gpu a100 1 +0",
        "update Cohort x 2 to h",
    ]
    planned = world.look(after, frozen=["c"])[2]
    assert said(planned, "a") == (
        notes.WAITING_FOR_SHRINK,
        (
            "ClusterQueue a cannot grow yet: Cohort h has room for 0 of 3 nvidia.com/gpu on a100, "
            "kept up by ClusterQueue c (3, frozen)"
        ),
    )


@pytest.mark.case("FC-E01")
def test_a_branch_turned_upside_down_never_is_a_cycle() -> None:
    world = converged(root(), node("a"), node("b", parent="a"))
    turned = (root(), node("b"), node("a", parent="b"))
    first = world.one_pass(turned)
    assert lines(first) == ["update Cohort b 2 to root"]
    assert said(first, "a")[0] == notes.PARENT_NOT_MATERIALIZED
    second = world.one_pass(turned)  # Kueue may still see b beneath a
    assert second.actions == ()
    assert second.wake_at == world.steady + 1.0
    assert said(second, "a") == (
        notes.PROGRESSING,
        "Cohort a waits until Kueue has taken the last move of Cohort b",
    )
    world.steady += 1.0
    assert lines(world.one_pass(turned)) == ["update Cohort a 2 to b"]


@pytest.mark.case("FC-E01")
def test_a_branch_is_not_turned_by_half_when_its_first_move_is_refused() -> None:
    world = converged(root(), node("a"), node("b", parent="a"))
    turned = (root(), node("b"), node("a", parent="b"))
    refused(world, world.look(turned)[2].actions[0])
    planned = world.one_pass(turned)
    assert planned.actions == ()
    assert said(planned, "b")[0] == notes.MATERIALIZATION_FAILED
    assert said(planned, "a")[0] == notes.PARENT_NOT_MATERIALIZED


def test_a_move_waits_for_frozen_shares_that_do_not_fit_and_keeps_the_others() -> None:
    before = (
        root(),
        node("x", parent="root"),
        node("h", "gpu a100 5 !"),
        team("a", "gpu a100 4", parent="x"),
        team("b", "gpu a100 6", parent="x"),
    )
    world = converged(*before)
    after = (root(), node("x", parent="h"), *before[2:])
    planned = world.one_pass(after, frozen=["b"])
    assert [action for action in planned.actions if action.key.name in "xab"] == []
    reason, message = said(planned, "x")
    assert reason == notes.WAITING_FOR_SHRINK
    assert "Cohort h has room for" in message


def test_a_cohort_that_nobody_wants_gives_its_quota_so_that_its_members_can_leave() -> None:
    before = (
        root(),
        node("x", parent="root"),
        node("old", "gpu a100 5 !", parent="x"),
        team("a", "gpu a100 1", parent="old"),
        node("h", "gpu a100 4"),
    )
    world = converged(*before)
    after = (root(), node("x", parent="h"), before[4], team("a", "gpu a100 1", parent="x"))
    writes = settle(world, after)
    assert writes[0] == "update Cohort old 1: gpu a100 3 +0"
    assert writes[1:] == [
        "update Cohort x 2 to h",
        "update ClusterQueue a 2 to x: gpu a100 1 +0",
        "delete Cohort old 4",
    ]


def test_a_team_beneath_a_group_that_is_still_elsewhere_does_not_grow() -> None:
    world = converged(root(), node("g"), node("x", parent="g"), team("a", "gpu a100 4", parent="x"))
    put(world, stands(COHORT, "h", ours=False))
    after = (root(), node("h"), node("x", parent="h"), team("a", "gpu a100 6", parent="x"))
    planned = world.one_pass(after)
    assert [line(action) for action in planned.actions if action.key.name in "ax"] == []
    assert said(planned, "x")[0] == notes.PARENT_NOT_MATERIALIZED
    assert said(planned, "a") == (
        notes.PARENT_NOT_MATERIALIZED,
        (
            "ClusterQueue a grows when Cohort x is in place: that one, or a Cohort above it, is "
            "not where the tree wants it yet"
        ),
    )


def test_a_cohort_made_anew_takes_in_those_that_still_name_it() -> None:
    world = converged(*GROUP)
    del world.store[COHORT_ML]
    del world.believed[COHORT_ML]
    assert settle(world, GROUP) == [
        "create Cohort ml 2: gpu a100 0 +0",
        "update Cohort ml 3: gpu a100 2 +0",
    ]


def test_a_queue_without_a_cohort_shrinks_without_limits_while_it_cannot_go_back() -> None:
    world = converged(*SMALL)
    edited(
        world,
        QUEUE_A,
        cohortName=None,
        resourceGroups=stands(CLUSTER_QUEUE, "a", "gpu a100 9").spec["resourceGroups"],
    )
    put(world, msgspec.structs.replace(world.store[Key(COHORT, "", "root")], managed_by=None))
    assert lines(world.one_pass(SMALL)) == ["update ClusterQueue a 1: gpu a100 4"]


# --- what is not ours, not known, or kept -----------------------------------------------------


@pytest.mark.case("A-67")
@pytest.mark.parametrize(
    ("key", "nodes"),
    [
        (Key(COHORT, "", "ml"), ["ml"]),
        (Key(CLUSTER_QUEUE, "", "a"), ["a"]),
        (Key(LOCAL_QUEUE, "ml-serving", "a"), ["a"]),
        (Key(RESOURCE_FLAVOR, "", COVER_FLAVOR), ["a", "b"]),
    ],
    ids=str,
)
def test_an_object_of_somebody_else_is_left_alone_and_the_rest_goes_on(
    key: Key, nodes: list[str]
) -> None:
    world = KueueWorld([Observed(key, spec={}, uid="theirs")])
    world.options = an_option()
    planned = world.look(GROUP)[2]
    assert key not in {action.key for action in planned.actions}
    assert list(planned.conflicts) == [key]
    for name in nodes:
        reason, message = said(planned, name)
        assert reason == notes.OBJECT_CONFLICT
        assert f"{key} exists and is not managed by {MANAGER}" in message
    assert Key(COHORT, "", "root") in {action.key for action in planned.actions}


@pytest.mark.case("A-67", "FC-E04")
def test_nothing_is_put_beneath_an_object_that_is_not_ours() -> None:
    world = KueueWorld([stands(COHORT, "ml", ours=False), stands(CLUSTER_QUEUE, "c", ours=False)])
    tree = (*GROUP, team("c", "gpu a100 1", parent="root"))
    planned = world.look(tree)[2]
    assert [str(action.key) for action in planned.actions] == ["Cohort root"]
    assert said(planned, "a")[0] == notes.PARENT_NOT_MATERIALIZED
    assert "that one exists and is not managed by quota-translator" in said(planned, "a")[1]
    assert Key(LOCAL_QUEUE, "ml-serving", "c") in planned.waiting
    assert Key(LOCAL_QUEUE, "ml-serving", "a") in planned.waiting


def test_what_hangs_beneath_a_cohort_that_a_stranger_took_over_says_so() -> None:
    world = converged(*GROUP)
    ml = Key(COHORT, "", "ml")
    put(world, msgspec.structs.replace(world.store[ml], managed_by=None, quota=None))
    planned = world.look(GROUP)[2]
    assert planned.actions == ()
    reason, message = said(planned, "a")
    assert reason == notes.PARENT_NOT_MATERIALIZED
    assert "ClusterQueue a stands beneath Cohort ml: that one exists and is not managed" in message


def test_a_copy_that_carries_our_labels_is_not_ours() -> None:
    copy = msgspec.structs.replace(
        stands(CLUSTER_QUEUE, "copy", "gpu a100 4"), quota="a", managed_by=MANAGER
    )
    world = converged(*SMALL, live=[copy])
    assert world.look(SMALL)[2] == Plan()


UNKNOWN = [
    (COHORT, {LOCAL_QUEUE, RESOURCE_FLAVOR}),
    (CLUSTER_QUEUE, set()),
    (RESOURCE_FLAVOR, {COHORT, LOCAL_QUEUE}),
    (LOCAL_QUEUE, {COHORT, CLUSTER_QUEUE, RESOURCE_FLAVOR}),
]


@pytest.mark.parametrize(("lacking", "written"), UNKNOWN, ids=[entry[0] for entry in UNKNOWN])
def test_a_kind_that_is_not_known_is_not_acted_on_nor_what_hangs_on_it(
    lacking: str, written: set[str]
) -> None:
    """There is something to create, to update and to delete of every kind."""
    world = converged(*SMALL)
    tree = (
        root(),
        node("new"),
        team("a", "gpu a100 3", parent="new"),
        team("n", "gpu a100 3", parent="root"),
    )
    old = stands(COHORT, "old"), stands(CLUSTER_QUEUE, "past")
    put(world, *old, Observed(Key(LOCAL_QUEUE, "x", "a"), managed_by=MANAGER, quota="a"))
    world.options = an_option()
    planned = world.look(tree, known=frozenset(KINDS) - {lacking})[2]
    assert {action.key.kind for action in planned.actions} <= written
    assert any(note.reason == notes.KUEUE_UNAVAILABLE for note in planned.notes)
    assert any(lacking in note.message for note in planned.notes)


def test_with_namespaces_unknown_no_localqueue_is_created_or_deleted() -> None:
    world = converged(*SMALL)
    tree = (*SMALL[:2], team("c", "gpu a100 1", parent="root"))
    planned = world.look(tree, namespaces=None)[2]
    assert {action.key.kind for action in planned.actions} == {CLUSTER_QUEUE}


@pytest.mark.case("A-68")
def test_objects_of_frozen_nodes_are_neither_written_nor_deleted() -> None:
    world = converged(*GROUP)
    changed = (GROUP[0], node("ml", "gpu a100 1 !"), team("a", "gpu a100 9", parent="ml"))
    assert world.look((*changed, GROUP[3]), frozen=["ml", "a", "b"])[2] == Plan()


@pytest.mark.case("A-64")
def test_with_no_namespace_enrolled_nothing_is_written_or_deleted() -> None:
    world = converged(*SMALL)
    world.options = an_option(enrolled_namespaces=())
    assert world.look(())[2] == Plan()


def test_an_object_on_its_way_out_is_waited_for() -> None:
    world = converged(*SMALL)
    put(world, msgspec.structs.replace(world.store[QUEUE_A], deleting=True))
    planned = world.look(SMALL)[2]
    assert planned.actions == ()
    assert said(planned, "a") == (
        notes.PROGRESSING,
        "ClusterQueue a is being deleted; it is created again when it is gone",
    )


# --- the sweep --------------------------------------------------------------------------------


@pytest.mark.case("A-70")
def test_what_nobody_wants_goes_localqueues_first_and_cohorts_when_they_are_empty() -> None:
    foreign = stands(CLUSTER_QUEUE, "theirs", "gpu a100 2", parent="root", ours=False)
    world = converged(*GROUP, live=[foreign])
    first = world.one_pass(GROUP[:1])
    assert [str(action.key) for action in first.actions] == [
        "LocalQueue ml-serving/a",
        "LocalQueue ml-serving/b",
        "ClusterQueue a",
        "ClusterQueue b",
    ]
    assert {action.stage for action in first.actions} == {4}
    assert first.held == {
        COHORT_ML: "Cohort ml is not wanted any more but stays as it is: ClusterQueue a, "
        "ClusterQueue b still use it"
    }
    assert said(first, "root")[1] == first.held[COHORT_ML]
    assert settle(world, GROUP[:1]) == ["delete Cohort ml 4"]
    assert foreign.key in world.store


def test_a_cohort_that_a_stranger_names_stays_with_its_last_quota() -> None:
    foreign = stands(CLUSTER_QUEUE, "theirs", "gpu a100 2", parent="ml", ours=False)
    world = converged(*GROUP, live=[foreign])
    settle(world, GROUP[:1])
    assert COHORT_ML in world.store
    planned = world.look(GROUP[:1])[2]
    assert planned.actions == ()
    assert "ClusterQueue theirs still uses it" in planned.held[COHORT_ML]
    assert naming("ml", world.store.values()) == (foreign.key,)


@pytest.mark.case("A-72")
def test_another_role_and_fewer_namespaces_leave_nothing_behind() -> None:
    world = converged(*SMALL)
    assert settle(world, (root(), node("a"), SMALL[2])) == [
        "create Cohort a 2",
        "delete LocalQueue ml-serving/a 4",
        "delete ClusterQueue a 4",
    ]
    world.options = an_option(cover=False, enrolled_namespaces=("other",))
    writes = settle(world, (root(), node("a"), SMALL[2]))
    assert "delete LocalQueue ml-serving/b 4" in writes


def test_the_cover_flavor_goes_when_no_queue_lists_it() -> None:
    world = KueueWorld(())
    world.options = an_option()
    settle(world, SMALL)
    world.options = an_option(cover=False)
    world.one_pass(SMALL)
    flavor = Key(RESOURCE_FLAVOR, "", COVER_FLAVOR)
    assert flavor in world.store
    for key in (QUEUE_A, Key(CLUSTER_QUEUE, "", "b")):  # as once the zeros may go
        seen = world.store[key]
        groups = [g for g in seen.spec["resourceGroups"] if g["flavors"][0]["name"] == "a100"]
        put(world, msgspec.structs.replace(seen, spec={**seen.spec, "resourceGroups": groups}))
    assert "delete ResourceFlavor quota-translator-cover 4" in lines(world.look(SMALL)[2])


def test_a_flavor_that_a_queue_lists_is_held() -> None:
    flavor = Observed(
        Key(RESOURCE_FLAVOR, "", COVER_FLAVOR), managed_by=MANAGER, quota="root", part="cover"
    )
    user = stands(CLUSTER_QUEUE, "x", f"cpu {COVER_FLAVOR} 1", ours=False)
    world = a_world(root(), live=[flavor, user])
    planned = plan({}, frozenset(), grow([root()]), world, Memory(), an_option(), at())
    assert planned.actions == ()
    assert "ClusterQueue x still uses it" in planned.held[flavor.key]


def test_unwanted_cohorts_that_stand_beneath_each_other_are_untied_first() -> None:
    loop = [
        stands(COHORT, "x", "gpu a100 1 +1", parent="y", uid="1"),
        stands(COHORT, "y", parent="x", uid="2"),
    ]
    world = KueueWorld(loop)
    assert settle(world, (root(),)) == [
        "create Cohort root 2",
        "update Cohort x 4 to None",
        "update Cohort y 4 to None",
        "delete Cohort x 4",
        "delete Cohort y 4",
    ]


# --- refusals ---------------------------------------------------------------------------------


def refused(world: KueueWorld, action: Action, message: str = "denied") -> None:
    entries = {**world.memory.refused, action.key: Refusal(action.spec, message)}
    world.memory = msgspec.structs.replace(world.memory, refused=entries)


def test_a_refused_write_is_not_sent_again_until_something_else_is_wanted() -> None:
    world = converged(*SMALL)
    raised = (root(), team("a", "gpu a100 6", parent="root"), SMALL[2])
    refused(world, world.look(raised)[2].actions[0], "no more than 5")
    planned = world.look(raised)[2]
    assert planned.actions == ()
    assert said(planned, "a") == (
        notes.MATERIALIZATION_FAILED,
        "ClusterQueue a was refused: no more than 5",
    )
    other = (root(), team("a", "gpu a100 5", parent="root"), SMALL[2])
    assert lines(world.look(other)[2]) == ["update ClusterQueue a 3: gpu a100 5 +0"]


def test_a_refused_grow_gives_its_room_to_others() -> None:
    tree = (root("gpu a100 10"), *SMALL[1:])
    world = converged(*tree)
    raised = (
        root("gpu a100 10"),
        team("a", "gpu a100 6", parent="root"),
        team("b", "gpu a100 6", parent="root"),
    )
    first = world.look(raised)[2]
    assert lines(first) == ["update ClusterQueue a 3: gpu a100 6 +0"]
    refused(world, first.actions[0])
    assert lines(world.look(raised)[2]) == ["update ClusterQueue b 3: gpu a100 6 +0"]


def test_what_hangs_on_a_refused_creation_is_not_sent() -> None:
    world = KueueWorld(())
    tree = (root(), node("ml"), team("a", "gpu a100 4", parent="ml"))
    for name in ("Cohort ml", "ClusterQueue a"):
        found = {str(action.key): action for action in world.look(tree)[2].actions}
        refused(world, found[name])
        left = [str(action.key) for action in world.look(tree)[2].actions]
        assert left == ["Cohort root"] if name == "Cohort ml" else ["Cohort root", "Cohort ml"]
        world.memory = Memory()


def test_a_refused_move_and_a_refused_delete_are_left_alone() -> None:
    world = converged(root(), node("g"), node("h"), team("a", "gpu a100 4", parent="g"))
    moved = (root(), node("g"), node("h"), team("a", "gpu a100 4", parent="h"))
    refused(world, world.look(moved)[2].actions[0])
    assert world.look(moved)[2].actions == ()
    world.memory = Memory()
    less = (root(), node("g"), team("a", "gpu a100 4", parent="g"))
    refused(world, world.look(less)[2].actions[0])
    planned = world.look(less)[2]
    assert planned.actions == ()
    assert planned.waiting == {Key(COHORT, "", "h"): "Cohort h was refused: denied"}


# --- drift ------------------------------------------------------------------------------------


def spoil(world: KueueWorld, by: str = "kubectl-edit") -> None:
    edited(world, QUEUE_A, by, namespaceSelector={})


def test_a_field_that_somebody_changed_is_put_back_once_and_reported() -> None:
    world = converged(*SMALL)
    spoil(world)
    planned = world.one_pass(SMALL)
    assert lines(planned) == ["update ClusterQueue a 1: gpu a100 4 +0"]
    drift = planned.repairs[QUEUE_A]
    assert (drift.manager, drift.fields) == ("kubectl-edit", ("namespaceSelector",))
    assert world.memory.drift == planned.repairs
    assert world.one_pass(SMALL).repairs == {}


def test_an_edit_of_the_tree_is_no_drift() -> None:
    world = converged(*SMALL)
    raised = (root(), team("a", "gpu a100 6", parent="root"), SMALL[2])
    assert world.one_pass(raised).repairs == {}


def test_our_own_interim_writes_are_no_drift() -> None:
    world = converged(*TWO)
    crossed = (*TWO[:3], team("a", "gpu a100 4", parent="h"), team("b", "gpu a100 4", parent="g"))
    world.one_pass(crossed)
    planned = world.one_pass(TWO)  # and back: a has to grow again
    assert Key(CLUSTER_QUEUE, "", "a") in {action.key for action in planned.actions}
    assert planned.repairs == {}


def test_a_dispute_is_named_and_fought_with_growing_pauses() -> None:
    world = converged(*SMALL)
    repairs, steady = [], world.steady
    for _ in range(300):
        spoil(world, "other-controller")
        if world.one_pass(SMALL).repairs:
            repairs.append(world.steady - steady)
        world.one_pass(SMALL)
        world.steady += 10.0
    gaps = [later - earlier for earlier, later in pairwise(repairs)]
    assert gaps == [10.0, 10.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]
    spoil(world, "other-controller")
    planned = world.look(SMALL)[2]
    reason, message = said(planned, "a")
    assert reason == notes.DRIFT_CONTESTED
    assert "other-controller keeps changing namespaceSelector of ClusterQueue a" in message
    assert planned.actions == ()
    assert planned.wake_at == repairs[-1] + steady + 600.0


def test_a_dispute_is_over_when_it_has_been_quiet() -> None:
    world = converged(*SMALL)
    for _ in range(3):
        spoil(world)
        world.one_pass(SMALL)
        world.one_pass(SMALL)
    assert said(world.look(SMALL)[2], "a")[0] == notes.DRIFT_CONTESTED
    world.steady += 1200.0
    assert world.look(SMALL)[2] == Plan()


def test_repairs_far_apart_are_no_dispute() -> None:
    world = converged(*SMALL)
    for _ in range(6):
        spoil(world, "")
        world.one_pass(SMALL)
        assert [note.reason for note in world.one_pass(SMALL).notes] == []
        world.steady += 400.0


# --- for people -------------------------------------------------------------------------------


def test_all_differences_at_once_for_people() -> None:
    world = converged(*SMALL)
    tree = (root(), team("a", "gpu a100 2", parent="root"), team("c", "gpu a100 1", parent="root"))
    rendering = world.look(tree)[1]
    compared = compare(rendering.desired, rendering.kept, world.world(tree), MANAGER)
    assert changes(compared, MANAGER) == (
        Change("create", Key(CLUSTER_QUEUE, "", "c")),
        Change("create", Key(LOCAL_QUEUE, "ml-serving", "c")),
        Change("update", QUEUE_A, ("resourceGroups",)),
        Change("delete", Key(CLUSTER_QUEUE, "", "b")),
        Change("delete", Key(LOCAL_QUEUE, "ml-serving", "b")),
    )


def test_labels_that_differ_are_named_as_such() -> None:
    world = converged(*SMALL)
    wanted = world.look(SMALL)[1].desired[QUEUE_A]
    other = msgspec.structs.replace(world.store[QUEUE_A], quota="x")
    assert differing(wanted.spec, wanted, other, MANAGER) == ("labels",)


# --- corners ----------------------------------------------------------------------------------


def test_a_queue_that_begins_to_list_a_new_flavor_is_written_after_it() -> None:
    world = converged(*SMALL)
    world.options = an_option()
    planned = world.look(SMALL)[2]
    assert [str(action.key) for action in planned.actions] == [
        f"ResourceFlavor {COVER_FLAVOR}",
        "ClusterQueue a",
        "ClusterQueue b",
    ]
    assert {str(action.requires) for action in planned.actions[1:]} == {
        f"ResourceFlavor {COVER_FLAVOR}"
    }


def test_a_localqueue_that_lost_its_queue_gets_it_back_unless_it_was_refused() -> None:
    world = converged(*SMALL)
    key = Key(LOCAL_QUEUE, "ml-serving", "a")
    edited(world, key, clusterQueue=None)
    action = world.look(SMALL)[2].actions[0]
    assert (action.key, action.fields, action.spec) == (
        key,
        ("clusterQueue",),
        {"clusterQueue": "a"},
    )
    refused(world, action)
    assert world.look(SMALL)[2].actions == ()


def test_a_refused_localqueue_and_a_refused_flavor_are_not_created() -> None:
    world = KueueWorld(())
    world.options = an_option()
    for action in world.look(SMALL)[2].actions:
        if action.key.kind in (LOCAL_QUEUE, RESOURCE_FLAVOR):
            refused(world, action)
    kinds = {action.key.kind for action in world.look(SMALL)[2].actions}
    assert kinds == {COHORT, CLUSTER_QUEUE}


def test_a_cohort_that_gives_its_quota_away_may_be_refused_that() -> None:
    before = (
        root(),
        node("x", parent="root"),
        node("old", "gpu a100 5 !", parent="x"),
        team("a", "gpu a100 1", parent="old"),
        node("h", "gpu a100 4"),
    )
    world = converged(*before)
    after = (root(), node("x", parent="h"), before[4], team("a", "gpu a100 1", parent="x"))
    (action,) = world.look(after)[2].actions
    refused(world, action)
    assert world.look(after)[2].actions == ()
    assert Key(COHORT, "", "old") in world.look(after)[2].waiting


def test_nothing_is_put_beneath_a_cohort_that_is_being_deleted() -> None:
    world = converged(root(), node("ml"))
    put(world, msgspec.structs.replace(world.store[COHORT_ML], deleting=True))
    planned = world.look((root(), node("ml"), team("a", "gpu a100 1", parent="ml")))[2]
    assert planned.actions == ()
    assert said(planned, "a") == (
        notes.PARENT_NOT_MATERIALIZED,
        "ClusterQueue a belongs beneath Cohort ml: that one is being deleted",
    )


def test_a_waiting_grow_names_a_neighbour_whose_shrink_was_refused() -> None:
    tree = (root("gpu a100 8"), *SMALL[1:])
    world = converged(*tree)
    swapped = (
        tree[0],
        team("a", "gpu a100 6", parent="root"),
        team("b", "gpu a100 2", parent="root"),
    )
    refused(world, world.look(swapped)[2].actions[0])
    planned = world.look(swapped)[2]
    assert planned.actions == ()
    assert "ClusterQueue b (4, refused by the server)" in said(planned, "a")[1]


def test_filler_cells_of_a_group_have_no_limit_to_wait_for() -> None:
    tree = (
        root(),
        node("ml", "gpu a100 4 !", "gpu h100 4 !", "tpu h100 2 !"),
        team("a", "gpu a100 1", parent="ml"),
    )
    assert settle(KueueWorld(()), tree)[-1] == (
        "update Cohort ml 3: tpu a100 0, gpu a100 3 +0, tpu h100 2 +0, gpu h100 4 +0"
    )


def test_a_queue_that_terminates_counts_from_the_store_and_not_from_memory() -> None:
    world = converged(*SMALL)
    (delete,) = (a for a in world.look(SMALL[:2])[2].actions if a.key.kind == CLUSTER_QUEUE)
    going = msgspec.structs.replace(world.store[delete.key], deleting=True)
    assert settle_after({}, [(delete, going)], at()) == {}
    gone = settle_after({}, [(delete, None)], at(5.0))[delete.key]
    assert (dict(gone.nominal), gone.parents, gone.until) == ({GPU: Quantity.of(4)}, ("root",), 6.0)


def test_a_queue_made_anew_has_settled_whatever_was_written_before() -> None:
    entry = Settling({GPU: Quantity.of(4)}, generation=7, until=0.0)
    anew = stands(CLUSTER_QUEUE, "a", "gpu a100 1", generation=1)
    assert unsettled({QUEUE_A: entry}, {QUEUE_A: anew}, at()) == {}
    same = stands(CLUSTER_QUEUE, "a", "gpu a100 1", generation=7, active_generation=6)
    assert unsettled({QUEUE_A: entry}, {QUEUE_A: same}, at()) == {QUEUE_A: entry}


def test_two_shrinks_in_a_row_are_remembered_with_the_larger_amounts() -> None:
    world = converged(*SMALL)
    for share in ("3", "2"):
        world.one_pass((root(), team("a", f"gpu a100 {share}", parent="root"), SMALL[2]))
    entry = world.memory.settling[QUEUE_A]
    assert dict(entry.nominal) == {GPU: Quantity.of(4)}
    assert entry.generation == world.store[QUEUE_A].generation


def test_a_wanted_object_of_a_kept_node_is_not_compared() -> None:
    world = converged(*SMALL)
    desired = world.look((root(), team("a", "gpu a100 9", parent="root")))[1].desired
    compared = compare(desired, frozenset({"a", "b"}), world.world(SMALL), MANAGER)
    assert changes(compared, MANAGER) == ()
    assert QUEUE_A not in compared.present


def test_a_queue_that_somebody_deleted_is_not_waited_for_as_if_it_were_not_there() -> None:
    """Its own reason says that it is being deleted, and what ends that."""
    there = {key: as_live(one) for key, one in rendered(*SMALL).desired.items()}
    queue = Key(CLUSTER_QUEUE, "", "a")
    there[queue] = msgspec.structs.replace(there[queue], deleting=True)
    live = [one for key, one in there.items() if key.kind != LOCAL_QUEUE]
    seen = a_world(*SMALL, live=live)
    wanted = rendered(*SMALL, live=live)
    options = an_option()
    planned = plan(wanted.desired, frozenset(), grow(SMALL), seen, Memory(), options, at(9.0))
    reasons = {note.reason for note in planned.notes if note.node == "a"}
    assert notes.PARENT_NOT_MATERIALIZED not in reasons
    assert any(key.kind == LOCAL_QUEUE and key.name == "a" for key in planned.waiting)
