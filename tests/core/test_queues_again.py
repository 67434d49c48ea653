"""What the last pass rendered is taken again only where rendering would give the same."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.names import CLUSTER_QUEUE, LOCAL_QUEUE, Key, Pair
from quota_translator.core.render import Rendering
from quota_translator.core.world import Flavor, Memory, Namespace, Observed, QuotaNode
from tests.core.build import root, team
from tests.core.rendering import as_live, flavors, rendered

A, B = Key(CLUSTER_QUEUE, "", "a"), Key(CLUSTER_QUEUE, "", "b")
TREE = (root(), team("a", gpu="8 +4", parent="root"), team("b", gpu="4", parent="root"))
FLAVORS = flavors("a100", "h100")


def remembered(result: Rendering) -> Memory:
    return Memory(rendered=result.queues)


def test_the_same_objects_give_the_very_same_queues() -> None:
    first = rendered(*TREE, flavors=FLAVORS)
    again = rendered(*TREE, flavors=FLAVORS, memory=remembered(first))
    assert again.desired[A] is first.desired[A]
    key = Key(LOCAL_QUEUE, "ml-serving", "a")
    assert again.desired[key] is first.desired[key]
    assert again == first


def test_an_edited_team_alone_is_rendered_anew() -> None:
    first = rendered(*TREE, flavors=FLAVORS)
    edited = team("a", gpu="6 +4", parent="root")
    again = rendered(TREE[0], edited, TREE[2], flavors=FLAVORS, memory=remembered(first))
    assert again.desired[A] != first.desired[A]
    assert again.desired[B] is first.desired[B]
    assert again == rendered(TREE[0], edited, TREE[2], flavors=FLAVORS)


def test_a_flavor_that_goes_and_namespaces_that_come_are_seen() -> None:
    first = rendered(*TREE, flavors=FLAVORS)
    for state in (
        {"flavors": FLAVORS[1:]},
        {"flavors": (Flavor("a100", topology="rack"), FLAVORS[1])},
        {"flavors": None},
        {"flavors": FLAVORS, "namespaces": ()},
        {"flavors": FLAVORS, "options": {}},
    ):
        fields: dict[str, Any] = dict(state)
        again = rendered(*TREE, memory=remembered(first), **fields)
        assert again == rendered(*TREE, **fields)
        assert again.queues.teams["a"] is not first.queues.teams["a"]


def test_a_pair_that_is_held_goes_when_its_time_has_come() -> None:
    """The same objects, but time has passed: such a queue is never taken again."""
    wide = team("a", "gpu a100 8", "gpu h100 4", parent="root")
    live = [as_live(rendered(root(), wide).desired[A])]
    narrow = (root(), team("a", "gpu a100 8", parent="root"))
    zeroed = {(A, Pair("nvidia.com/gpu", "h100")): 10.0}
    first = rendered(*narrow, live=live, memory=Memory(zeroed=zeroed), steady=11.0)
    assert first.held
    memory = msgspec.structs.replace(remembered(first), zeroed=zeroed)
    assert not rendered(*narrow, live=live, memory=memory, steady=14.0).held


moves = st.sampled_from(["edit", "flavors", "use", "live", "nothing"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(moves, st.integers(0, 5)), max_size=8))
def test_whatever_happens_it_is_as_if_nothing_were_remembered(
    history: list[tuple[str, int]],
) -> None:
    nodes: tuple[QuotaNode, ...] = TREE
    live: list[Observed] = []
    state: dict[str, Any] = {"flavors": FLAVORS, "namespaces": (Namespace("ml-serving"),)}
    memory, steady = Memory(), 0.0
    for move, number in history:
        steady += number
        last = rendered(*nodes, live=live, memory=memory, steady=steady, **state)
        if move == "edit":
            pairs = ["gpu a100 8", "gpu h100 4", "cpu a100 2"][number % 3 :]
            nodes = (TREE[0], team("a", *pairs, parent="root"), TREE[2])
        elif move == "flavors":
            state["flavors"] = FLAVORS[: number % 3]
        elif move in {"use", "live"}:
            uses = {pair: number for pair in [Pair("nvidia.com/gpu", "h100")] if move == "use"}
            live = [as_live(last.desired[key], uses) for key in (A, B)]
        fresh = rendered(*nodes, live=live, steady=steady, **state)
        again = rendered(*nodes, live=live, memory=memory, steady=steady, **state)
        assert again == fresh
        memory = remembered(again)
