"""Deleted nodes: which are still of the tree, which may go, and what of one name is remembered."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota_translator.core.lifecycle import (
    Roster,
    claimed,
    muster,
    releasable,
    released,
    staying_message,
    unclaimed,
    without_former,
)
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    COVER_PART,
    FINALIZER,
    KINDS,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
    Pair,
)
from quota_translator.core.world import Departed, Facts, Memory, Observed, QuotaNode, World
from tests.core.build import node, root, team
from tests.core.rendering import MANAGER, a_world, stands

OTHER = "example.com/hold"


def going(node_: QuotaNode, *finalizers: str) -> QuotaNode:
    return msgspec.structs.replace(node_, deleting=True, finalizers=finalizers or (FINALIZER,))


def names(nodes: Any) -> set[str]:
    return {one.name for one in nodes}


# --- who is of the tree -----------------------------------------------------------------------


def test_a_deleted_team_leaves_at_once() -> None:
    found = muster((root(), node("ml"), going(team("a", parent="ml")), team("b", parent="ml")))
    assert names(found.members) == {ROOT, "ml", "b"}
    assert found.leaving.keys() == {"a"}
    assert found.staying == {}


@pytest.mark.case("fault 40", "A-48")
def test_a_deleted_group_stays_for_what_was_not_deleted_beneath_it() -> None:
    tree = (
        root(),
        going(node("ml")),
        going(node("vision", parent="ml")),
        going(team("a", parent="vision")),
        team("b", parent="vision"),
        team("c", parent="vision"),
    )
    found = muster(tree)
    assert names(found.members) == {ROOT, "ml", "vision", "b", "c"}
    assert found.staying == {"ml": ("vision",), "vision": ("b", "c")}
    assert "delete b, c too" in staying_message("vision", found.staying["vision"])


@pytest.mark.case("FC-G08")
def test_root_is_the_last_to_leave() -> None:
    some = muster((going(root()), going(node("ml")), going(team("a", parent="ml"))))
    assert names(some.members) == {ROOT}
    assert some.leaving.keys() == {"a", "ml"}
    assert some.staying == {ROOT: ("a", "ml")}
    assert "there are a, ml" in staying_message(ROOT, some.staying[ROOT])
    last = muster((going(root()),))
    assert last == Roster(leaving={ROOT: going(root())})


def test_a_tree_of_which_nothing_was_deleted_is_its_own_roster() -> None:
    nodes = (root(), node("ml"))
    assert muster(nodes).members == nodes


NAMES = [ROOT, "a", "b", "c", "d", "e"]


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(st.sampled_from(NAMES), st.booleans())))
def test_nothing_that_is_alive_ever_loses_an_ancestor(drawn: dict[str, tuple[str, bool]]) -> None:
    """Whatever the links, loops included; and nothing stays for nobody."""
    nodes = [node(name, parent=above, deleting=gone) for name, (above, gone) in drawn.items()]
    found = muster(nodes)
    there, named = names(found.members), {one.name: one for one in nodes}
    assert there | found.leaving.keys() == drawn.keys()
    assert not there & found.leaving.keys()
    for one in nodes:
        assert one.deleting or one.name in there
        if one.name in there and one.name != ROOT and one.parent in named:
            assert one.parent in there
    for name, why in found.staying.items():
        assert named[name].deleting
        assert why
        if name != ROOT:
            assert all(named[child].parent == name for child in why)
            assert _has_living(name, named)


def _has_living(top: str, named: dict[str, QuotaNode]) -> bool:
    seen, todo = set(), [top]
    while todo:
        at = todo.pop()
        for child in named.values():
            if child.parent == at and child.name not in seen and child.name != ROOT:
                seen.add(child.name)
                todo.append(child.name)
    return any(not named[name].deleting for name in seen)


# --- finalizers -------------------------------------------------------------------------------


def test_only_our_own_finalizer_comes_and_goes() -> None:
    held = team("a", finalizers=(OTHER,))
    assert claimed(held) == (OTHER, FINALIZER)
    assert released(team("a", finalizers=(OTHER, FINALIZER))) == (OTHER,)


def test_what_is_deleted_or_claimed_is_not_claimed() -> None:
    """A server lets nobody add a finalizer to what is being deleted."""
    nodes = (root(), going(team("a"), OTHER), team("b", finalizers=(FINALIZER,)))
    assert names(unclaimed(nodes)) == {ROOT}


def let_go(*live: Observed, nodes: tuple[QuotaNode, ...] = (), **fields: Any) -> set[str]:
    nodes = nodes or (root(), going(team("a")))
    materializes = fields.pop("materializes", True)
    seen = a_world(*nodes, live=live, **fields)
    return names(releasable(muster(nodes), seen, MANAGER, materializes=materializes))


QUEUE = stands(CLUSTER_QUEUE, "a", "gpu a100 4")


@pytest.mark.case("A-97")
def test_a_node_is_held_while_something_of_it_is_left() -> None:
    assert let_go(QUEUE) == set()
    assert let_go(msgspec.structs.replace(QUEUE, deleting=True)) == set()
    assert let_go() == {"a"}
    assert let_go(stands(CLUSTER_QUEUE, "b", "gpu a100 4")) == {"a"}
    assert let_go(stands(CLUSTER_QUEUE, "a", "gpu a100 4", ours=False)) == {"a"}


def test_the_cover_flavor_is_of_root() -> None:
    key = Key(RESOURCE_FLAVOR, "", COVER_FLAVOR)
    cover = Observed(key, managed_by=MANAGER, quota=ROOT, part=COVER_PART)
    assert let_go(cover, nodes=(going(root()),)) == set()
    assert let_go(nodes=(going(root()),)) == {ROOT}


def test_a_node_that_others_hold_alone_is_theirs() -> None:
    assert let_go(nodes=(root(), going(team("a"), OTHER))) == set()


def test_what_cannot_be_read_may_be_there() -> None:
    assert let_go(known=frozenset(KINDS) - {COHORT}) == set()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(Facts(served=frozenset()), {"a"}, id="Kueue is gone"),
        pytest.param(
            Facts(served=frozenset(KINDS) - {COHORT}, kueue_versions=("v1beta2",)),
            {"a"},
            id="one kind is gone",
        ),
        pytest.param(
            Facts(served=frozenset(), kueue_versions=("v1beta1",)), set(), id="an older Kueue"
        ),
        pytest.param(Facts(served=frozenset(KINDS)), set(), id="not read yet"),
        pytest.param(Facts(), set(), id="nobody knows what is served"),
    ],
)
def test_a_kind_that_is_not_served_holds_nobody(facts: Facts, expected: set[str]) -> None:
    known = (facts.served or frozenset()) - {COHORT} if facts.served else frozenset()
    assert let_go(known=known, facts=facts) == expected


def test_last_records_of_a_kind_that_is_gone_do_not_count() -> None:
    facts = Facts(served=frozenset())
    assert let_go(QUEUE, known=frozenset(), facts=facts) == {"a"}


def test_where_nothing_is_written_to_kueue_nobody_waits() -> None:
    assert let_go(QUEUE, materializes=False) == {"a"}


# --- one name, two objects --------------------------------------------------------------------


def test_what_was_believed_of_a_former_object_of_a_name_is_forgotten() -> None:
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    pair = Pair("gpu", "a100")
    memory = Memory(
        frozen_since={"a": moment, "b": moment},
        over_since={("a", pair): moment, ("b", pair): moment},
        departed=Departed(uids={"a": "1", "b": "2"}),
    )
    found = without_former(memory, (team("a", uid="9"), team("b", uid="2"), team("c", uid="3")))
    assert found.frozen_since == {"b": moment}
    assert found.over_since == {("b", pair): moment}
    assert found.departed.uids == {"a": "9", "b": "2", "c": "3"}
    assert isinstance(a_world(), World)
