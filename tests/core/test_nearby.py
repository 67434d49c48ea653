"""A decision looks at a part of the tree, and sees what it would see in the whole."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings

from quota_translator.core.check import Context, Verdict, check
from quota_translator.core.names import Pair
from quota_translator.core.nearby import Nearby, nearby
from quota_translator.core.quantity import Quantity
from quota_translator.core.sums import add_up
from quota_translator.core.tree import grow
from quota_translator.core.verdict import Violation
from quota_translator.core.world import QuotaNode
from tests.core.build import node, root, team
from tests.core.test_check_properties import contexts, quota_nodes, sound_shapes, wild


def cut_down(live: list[QuotaNode], incoming: QuotaNode) -> Nearby:
    tree = grow(live)
    counted: dict[str, dict[Pair, Quantity]] = {}
    add_up(tree, counted)  # type: ignore[arg-type]
    return nearby(tree, counted, incoming)


def of(verdict: Verdict, names: frozenset[str], *, among: bool = True) -> list[Violation]:
    return [found for found in verdict.violations if (found.node in names) == among]


def agrees(live: list[QuotaNode], incoming: QuotaNode, context: Context) -> None:
    named = {one.name: one for one in live}
    after = grow((named | {incoming.name: incoming}).values())
    before, whole = check(grow(named.values()), context), check(after, context)
    near = cut_down(list(named.values()), incoming)
    found = check(near.tree, context)
    assert of(found, near.touched) == of(whole, near.touched)
    rest = of(whole, near.touched, among=False)
    assert rest == of(before, near.touched, among=False)
    if "root" in near.touched:
        assert found.oversubscribed == whole.oversubscribed
    else:
        assert whole.oversubscribed == before.oversubscribed


@given(live=wild, incoming=quota_nodes(), context=contexts)
@settings(max_examples=80)
def test_in_any_tree_the_part_says_what_the_whole_says(
    live: list[QuotaNode], incoming: QuotaNode, context: Context
) -> None:
    agrees(live, incoming, context)


@given(live=sound_shapes(), incoming=sound_shapes(), context=contexts)
@settings(max_examples=80)
def test_in_a_tree_of_sound_shape_too(
    live: list[QuotaNode], incoming: list[QuotaNode], context: Context
) -> None:
    """Here nodes keep their places and change their shares, or come anew."""
    agrees(live, incoming[-1], context)
    places = {one.name: one.parent for one in live}
    last = incoming[-1]
    agrees(live, msgspec.structs.replace(last, parent=places.get(last.name, "root")), context)


def test_what_stands_beside_is_one_node_however_much_it_is() -> None:
    teams = [team(f"t-{number}", gpu=1, parent="ml") for number in range(100)]
    groups = [node(f"g-{number}", gpu=1) for number in range(100)]
    near = cut_down([root(), node("ml", gpu=100), *teams, *groups], team("t-7", gpu=2, parent="ml"))
    assert near.touched == {"root", "ml", "t-7"}
    assert len(near.tree.nodes) == 5
    (overrun,) = add_up(near.tree).overruns
    assert (overrun.node, overrun.children) == ("ml", Quantity.of(101))


def test_who_waited_for_a_node_is_touched_when_it_comes() -> None:
    near = cut_down([root(), team("early", gpu=1, parent="late")], node("late", gpu=4))
    assert near.touched == {"root", "late", "early"}
