"""What holds for every tree, however broken it is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.check import Context, check
from quota_translator.core.names import Pair
from quota_translator.core.options import Options
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.sums import add_up
from quota_translator.core.tree import Tree, grow
from quota_translator.core.world import Budget, Expected, FieldFault, Flavor, QuotaNode
from tests.core.build import rows

NAMES = ("root", "a", "b", "c", "d", "e", "f", "g")
NINE = Expected(Pair("nvidia.com/gpu", "a100"), Quantity.of(9))
CAPACITY = rows("gpu a100 32", "gpu h100 8", "tpu a100 never")

names = st.one_of(st.sampled_from(NAMES), st.text(max_size=70))
amounts = st.one_of(
    st.integers(-3, 40).map(Quantity.of),
    st.integers(-(10**30), 10**30).map(Quantity),
)
resources = st.sampled_from(["nvidia.com/gpu", "google.com/tpu", "cpu", ""]) | st.text(max_size=5)
flavors = st.sampled_from(["a100", "h100", "gone", "quota-translator-cover"]) | st.text(max_size=5)


@st.composite
def quota_nodes(draw: st.DrawFn) -> QuotaNode:
    entries = draw(
        st.lists(
            st.tuples(
                resources,
                flavors,
                amounts,
                st.none() | amounts,
                st.none() | amounts,
                st.none() | st.booleans(),
            ),
            max_size=4,
        )
    )
    faults = draw(
        st.lists(
            st.sampled_from(
                [
                    FieldFault("spec.budgets[0].nominal", "is required"),
                    FieldFault("spec.budgets[9]", "is not a mapping"),
                    FieldFault("spec.parentRef.name", "7 is not the name of a node"),
                    FieldFault("spec.role", "is not text"),
                ]
            ),
            max_size=2,
            unique=True,
        )
    )
    return QuotaNode(
        name=draw(names),
        role=draw(st.sampled_from(["Cohort", "ClusterQueue", "Queue", ""])),
        parent=draw(st.none() | names),
        budgets=tuple(
            Budget(resource, flavor, nominal, borrowing, lending, enforced, index=at)
            for at, (resource, flavor, nominal, borrowing, lending, enforced) in enumerate(entries)
        ),
        faults=tuple(faults),
        priority_tier=draw(st.none() | st.just("gold")),
        distribution=draw(st.booleans()),
        expected=draw(st.just(()) | st.just((NINE,))),
        stop_policy=draw(st.none() | st.just("Hold")),
        fair_weight=draw(st.none() | st.just(Quantity.of(2))),
        source=draw(st.sampled_from(["", "a.yaml:9", "a.yaml:10"])),
    )


wild = st.lists(quota_nodes(), max_size=12)
contexts = st.builds(
    Context,
    capacity=st.sampled_from([None, {}, CAPACITY]),
    flavors=st.sampled_from([None, (), (Flavor("a100", topology="racks"), Flavor("h100"))]),
    options=st.integers(0, 3).map(lambda most: Options(max_tree_depth=most)),
    kueue_release=st.sampled_from([None, (0, 17), (0, 19)]),
)


def beneath(tree: Tree, name: str) -> set[str]:
    """The subtree, found the slow way: every node whose parents lead to this one."""
    found = {name}
    while more := {n for n in tree.nodes if tree.parent(n) in found} - found:
        found |= more
    return found


@pytest.mark.case("A-22", "A-15")
@given(nodes=wild, context=contexts)
@settings(max_examples=60, deadline=None)
def test_the_frozen_nodes_are_the_subtrees_of_the_violators(
    nodes: list[QuotaNode], context: Context
) -> None:
    tree = grow(nodes)
    verdict = check(tree, context)
    violators = {violation.node for violation in verdict.violations}
    expected = set().union(*(beneath(tree, name) for name in violators))
    assert set(verdict.frozen) == expected
    assert {name for name in tree.nodes if not tree.is_reached(name)} <= violators
    for name, frozen in verdict.frozen.items():
        assert frozen.origin == name or name not in violators
        assert frozen.origin in violators
        assert name in beneath(tree, frozen.origin)


@pytest.mark.case("A-18")
@given(nodes=wild, context=contexts, data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_input_makes_no_difference(
    nodes: list[QuotaNode], context: Context, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(nodes))
    assert repr(check(grow(shuffled), context)) == repr(check(grow(nodes), context))


@given(nodes=wild, context=contexts)
@settings(max_examples=30, deadline=None)
def test_every_violation_can_be_read(nodes: list[QuotaNode], context: Context) -> None:
    tree = grow(nodes)
    verdict = check(tree, context)
    for violation in verdict.violations:
        assert violation.node in tree.nodes
        assert 0 < len(violation.message.encode()) < 2000
    ordered = sorted(verdict.violations, key=lambda v: (v.node, v.rank, v.subject))
    assert ordered == list(verdict.violations)


@st.composite
def sound_shapes(draw: st.DrawFn) -> list[QuotaNode]:
    """A tree without a fault in its shape: any group may budget any pair, or none."""
    nodes = [QuotaNode("root", "Cohort", budgets=draw(shares()))]
    groups = ["root"]
    for at in range(draw(st.integers(0, 12))):
        is_group = draw(st.booleans())
        name = f"{'g' if is_group else 't'}{at}"
        role = "Cohort" if is_group else "ClusterQueue"
        nodes.append(QuotaNode(name, role, draw(st.sampled_from(groups)), draw(shares())))
        if is_group:
            groups.append(name)
    return nodes


@st.composite
def shares(draw: st.DrawFn) -> tuple[Budget, ...]:
    pairs = draw(st.lists(st.sampled_from(sorted(CAPACITY)), unique=True, max_size=3))
    return tuple(
        Budget(of.resource, of.flavor, Quantity(draw(st.integers(0, 40)) * 10**8), index=at)
        for at, of in enumerate(pairs)
    )


def counted(tree: Tree, name: str, of: Pair) -> Quantity:
    """What a node counts for with its parent, straight from the rule."""
    own = [budget.nominal for budget in tree.nodes[name].budgets if budget.pair == of]
    return own[0] if own else children_count(tree, name, of)


def children_count(tree: Tree, name: str, of: Pair) -> Quantity:
    return sum((counted(tree, child, of) for child in tree.children(name)), ZERO)


@given(nodes=sound_shapes())
@settings(max_examples=60, deadline=None)
def test_sums_agree_with_the_rule_read_literally(nodes: list[QuotaNode]) -> None:
    tree = grow(nodes)
    sums = add_up(tree)
    overrun = {
        (name, budget.pair): children_count(tree, name, budget.pair)
        for name, one in tree.nodes.items()
        for budget in one.budgets
        if children_count(tree, name, budget.pair) > budget.nominal
    }
    assert {(o.node, o.budget.pair): o.children for o in sums.overruns} == overrun
    for of in CAPACITY:
        assert sums.promised.get(of, ZERO) == counted(tree, "root", of)
