"""Objects whose node is gone: how long they stay, and when many of them stay for good."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from quota_translator.core.lifecycle import muster
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    LOCAL_QUEUE,
    ROOT,
    SWEEP_ORPHANS,
    Key,
)
from quota_translator.core.orphans import Orphans, find_orphans
from quota_translator.core.translate import translate
from quota_translator.core.world import Departed, Memory, Observed, QuotaNode
from tests.core.build import root, team
from tests.core.rendering import BARE, MANAGER, a_world, an_option, at, stands

OPTIONS = an_option(**BARE, orphan_after=60.0)


def queues(*names: str) -> list[Observed]:
    return [stands(CLUSTER_QUEUE, name, "gpu a100 1", parent=ROOT) for name in names]


class Life:
    """One look after the other, with what is remembered in between."""

    def __init__(self, options: Any = OPTIONS) -> None:
        self.departed = Departed()
        self.options = options
        self.steady = 1000.0

    def look(
        self,
        *nodes: QuotaNode,
        live: Iterable[Observed] = (),
        after: float = 0.0,
        **world: Any,
    ) -> Orphans:
        self.steady += after
        seen = a_world(*nodes, live=live, **world)
        self.departed, found = find_orphans(
            self.departed, muster(nodes), seen, self.options.materialize, at(self.steady)
        )
        return found


def test_a_few_stay_for_a_while_and_then_go() -> None:
    life, live = Life(), queues("a", "b", ROOT)
    found = life.look(root(), team("b"), live=live)
    assert found.kept == {"a"}
    assert found.held == ()
    assert found.wake_at == 1060.0
    assert life.look(root(), team("b"), live=live, after=59).kept == {"a"}
    assert life.look(root(), team("b"), live=live, after=2).kept == frozenset()


def test_a_node_that_comes_back_in_time_loses_nothing() -> None:
    life, live = Life(), queues("a", ROOT)
    life.look(root(), live=live)
    assert life.look(root(), team("a"), live=live, after=50).kept == frozenset()
    assert life.look(root(), live=live, after=50).kept == {"a"}  # and is waited for anew


@pytest.mark.case("A-97")
def test_what_was_deleted_in_the_usual_way_is_no_orphan() -> None:
    """Also when somebody stripped its finalizer before all of it was gone."""
    life, live = Life(), queues("a", ROOT)
    assert life.look(root(), team("a", deleting=True), live=live) == Orphans()
    assert life.look(root(), live=live, after=1) == Orphans()
    # A create that nobody answered may come much later; not for ever.
    assert life.look(root(), live=live, after=700).kept == {"a"}


def test_a_node_deleted_made_again_and_lost_is_an_orphan() -> None:
    life, live = Life(), queues("a", ROOT)
    life.look(root(), team("a", deleting=True), live=live)
    life.look(root(), team("a"), live=live, after=1)
    assert life.look(root(), live=live, after=1).kept == {"a"}


NODES = [team(f"t{number}") for number in range(40)]
ALL = queues(ROOT, *(one.name for one in NODES))


def held(*left: QuotaNode, **fields: Any) -> tuple[str, ...]:
    return Life().look(root(), *left, live=ALL, **fields).held


@pytest.mark.case("fault 11")
def test_many_at_once_are_an_accident() -> None:
    """41 nodes have objects. More than three and more than a tenth of them are too many."""
    assert held(*NODES[4:]) == ()
    assert held(*NODES[5:]) == ("t0", "t1", "t2", "t3", "t4")
    small = queues(ROOT, "a", "b", "c", "d")
    assert Life().look(root(), team("d"), live=small).held == ()
    assert Life().look(root(), live=small).held == ("a", "b", "c", "d")


@pytest.mark.case("fault 11")
def test_a_small_tree_that_is_gone_as_a_whole_is_an_accident_too() -> None:
    """Its CRD was deleted and installed again. One node alone may have been one's whole trial."""
    assert Life().look(root(), live=queues(ROOT, "a", "b")).held == ("a", "b")
    assert Life().look(root(), team("b"), live=queues(ROOT, "a", "b")).held == ()
    assert Life().look(root(), live=queues(ROOT, "a")).held == ()


def test_held_objects_stay_however_long_it_takes() -> None:
    life = Life()
    for _ in range(3):
        found = life.look(root(), live=ALL, after=1000)
        assert len(found.held) == 40
        assert found.kept == frozenset(found.held)
        assert found.wake_at is None
    text = life.look(root(), live=ALL).message
    assert text.startswith("40 of the 41 nodes behind our objects in Kueue are gone")
    assert "t0, t1, t10 and 37 more" in text
    assert f"{SWEEP_ORPHANS}=40" in text


def test_after_a_hold_the_rest_is_waited_for_anew() -> None:
    """A backup is restored: when three are still missing the others came back a moment ago."""
    life = Life()
    life.look(root(), live=ALL)
    found = life.look(root(), *NODES[3:], live=ALL, after=1000)
    assert found.held == ()
    assert found.kept == {"t0", "t1", "t2"}
    assert life.look(root(), *NODES[3:], live=ALL, after=61).kept == frozenset()


def confirming(number: object) -> QuotaNode:
    return root(annotations={SWEEP_ORPHANS: str(number)})


def test_the_exact_number_confirms_those_that_are_held_then() -> None:
    life = Life()
    life.look(root(), live=ALL)
    wrong = life.look(confirming(39), live=ALL)
    assert len(wrong.held) == 40
    assert "it says '39' now" in wrong.message
    assert not wrong.spent
    right = life.look(confirming(40), live=ALL)
    assert (right.held, right.kept, right.spent) == ((), frozenset(), True)
    # The confirmation is taken off; what is left of them goes on going, and nobody else.
    fewer = life.look(root(), live=ALL[:20])
    assert (fewer.held, fewer.kept) == ((), frozenset())
    others = life.look(root(), live=[*ALL[:20], *queues("u", "v", "w", "x")])
    assert others.held == ("u", "v", "w", "x")


def test_a_confirmation_of_nothing_is_spent() -> None:
    """Or it would confirm an accident to come."""
    assert Life().look(confirming(5), team("t0"), live=ALL[:2]).spent


def test_what_is_going_or_not_ours_is_no_orphan() -> None:
    gone = msgspec.structs.replace(queues("a")[0], deleting=True)
    foreign = stands(CLUSTER_QUEUE, "b", "gpu a100 1", ours=False)
    copy = Observed(Key(CLUSTER_QUEUE, "", "c"), managed_by=MANAGER, quota="another")
    assert Life().look(root(), live=[gone, foreign, copy]) == Orphans()


def test_objects_of_a_node_that_is_there_are_no_orphans() -> None:
    """An un-enrolled namespace, a role that changed: the node is there to say so."""
    old = Observed(Key(LOCAL_QUEUE, "old", "a"), managed_by=MANAGER, quota="a")
    assert Life().look(root(), team("a"), live=[old, stands(COHORT, "a")]) == Orphans()


def test_while_kueue_is_half_known_nobody_is_judged() -> None:
    life = Life()
    life.look(root(), live=queues("a"))
    half = life.look(root(), live=queues("a"), after=100, known=frozenset(KINDS) - {COHORT})
    assert half.kept == {"a"}
    assert life.look(root(), live=queues("a"), after=1).kept == {"a"}  # the count began anew
    assert life.look(root(), live=queues("a"), after=61).kept == frozenset()


@pytest.mark.parametrize(
    "switch",
    [
        pytest.param({"options": an_option(**BARE, orphan_after=0.0)}, id="turned off"),
        pytest.param({"has_finalizers": False}, id="files"),
    ],
)
def test_without_finalizers_what_is_not_there_is_not_wanted(switch: dict[str, Any]) -> None:
    life = Life(switch.pop("options", OPTIONS))
    assert life.look(root(), live=ALL, **switch) == Orphans()


def test_the_plan_leaves_orphans_alone_until_they_are_due() -> None:
    live = [stands(COHORT, ROOT), *queues("a", "b")]
    seen = a_world(root(), team("b", "gpu a100 1"), live=live)
    first = translate(seen, Memory(), OPTIONS, at(100.0))
    assert [str(a.key) for a in first.plan.actions if a.verb == "delete"] == []
    assert first.wake_at is not None
    assert first.wake_at <= 160.0
    later = translate(seen, first.memory, OPTIONS, at(161.0))
    assert [str(a.key) for a in later.plan.actions if a.verb == "delete"] == ["ClusterQueue a"]
