"""The tree: its shape, whatever nodes it is made of."""

import copy
import itertools

import pytest

from quota_translator.core.tree import Tree, grow
from tests.core.build import node, root, team


@pytest.fixture
def orchard() -> Tree:
    """Two groups under root, one nested; `lost` dangles, and a and b are a loop with a tail."""
    return grow(
        [
            team("vision", parent="ml", gpu="8"),
            team("audio", parent="ml", gpu="8"),
            node("ml", parent="research"),
            node("research"),
            team("web", gpu="1"),
            root(),
            node("lost", parent="nowhere"),
            team("stray", parent="lost", gpu="1"),
            node("a", parent="b"),
            node("b", parent="a"),
            team("tail", parent="b", gpu="1"),
        ]
    )


@pytest.mark.case("A-1")
def test_an_empty_set_is_a_tree_and_every_question_has_an_answer() -> None:
    tree = grow([])
    assert tree.nodes == {}
    assert tree.duplicates == {}
    assert tree.order == tree.tops == tree.forest == tree.leaves == ()
    assert tree.children("x") == tree.ancestors("x") == tree.subtree("x") == ()
    assert tree.parent("x") is None
    assert (tree.depth("x"), tree.path("x")) == (-1, "")
    assert not tree.is_reached("x")
    assert not tree.is_leaf("x")


@pytest.mark.parametrize(
    ("name", "parent", "depth", "path"),
    [
        ("root", None, 0, "root"),
        ("research", "root", 1, "root/research"),
        ("ml", "research", 2, "root/research/ml"),
        ("vision", "ml", 3, "root/research/ml/vision"),
        ("web", "root", 1, "root/web"),
        ("lost", None, -1, ""),
        ("stray", "lost", -1, ""),
        ("a", "b", -1, ""),
        ("tail", "b", -1, ""),
        ("nobody", None, -1, ""),
    ],
)
def test_every_node_knows_its_place(
    orchard: Tree, name: str, parent: str | None, depth: int, path: str
) -> None:
    assert orchard.parent(name) == parent
    assert orchard.depth(name) == depth
    assert orchard.path(name) == path
    assert orchard.is_reached(name) == (depth >= 0)


def test_order_is_pre_order_with_siblings_by_name_and_only_what_root_reaches(
    orchard: Tree,
) -> None:
    assert orchard.order == ("root", "research", "ml", "audio", "vision", "web")
    assert orchard.tops == ("root", "lost")
    assert orchard.forest == (*orchard.order, "lost", "stray")
    assert orchard.leaves == ("audio", "stray", "tail", "vision", "web")


def test_children_ancestors_and_subtrees(orchard: Tree) -> None:
    assert orchard.children("root") == ("research", "web")
    assert orchard.children("ml") == ("audio", "vision")
    assert orchard.children("vision") == ()
    assert orchard.ancestors("vision") == ("root", "research", "ml")
    assert orchard.ancestors("root") == ()
    assert orchard.subtree("research") == ("research", "ml", "audio", "vision")


def test_walks_end_in_loops(orchard: Tree) -> None:
    assert orchard.ancestors("a") == ("b",)
    assert orchard.ancestors("tail") == ("a", "b")
    assert orchard.subtree("a") == ("a", "b", "tail")
    own = grow([root(), node("x", parent="x")])
    assert own.ancestors("x") == ()
    assert own.subtree("x") == ("x",)
    assert own.children("x") == ("x",)


def test_root_has_no_parent_even_when_it_says_so() -> None:
    tree = grow([root(parent="ml"), node("ml")])
    assert tree.parent("root") is None
    assert tree.order == ("root", "ml")
    assert tree.path("ml") == "root/ml"


def test_a_role_and_not_the_lack_of_children_makes_a_leaf() -> None:
    tree = grow([root(role="ClusterQueue"), node("empty"), team("team"), node("odd", role="Queue")])
    assert tree.leaves == ("team",)
    assert not tree.is_leaf("root")


def test_nodes_beneath_a_leaf_are_reached() -> None:
    tree = grow([root(), team("team"), team("inner", parent="team")])
    assert tree.depth("inner") == 2


@pytest.mark.case("A-6", "A-18")
def test_of_several_nodes_with_one_name_the_first_is_chosen_whatever_the_order() -> None:
    old = node("ml", created="2026-01-01T00:00:00Z", source="b.yaml:1")
    young = node("ml", created="2026-02-01T00:00:00Z", source="a.yaml:1")
    ninth, tenth = node("web", source="a.yaml:9"), node("web", source="a.yaml:10")
    for order in itertools.permutations([root(), old, young, ninth, tenth]):
        tree = grow(order)
        assert tree.nodes["ml"] is old
        assert tree.nodes["web"] is ninth
        assert tree.duplicates == {"ml": (old, young), "web": (ninth, tenth)}


@pytest.mark.case("A-18")
def test_the_order_of_nodes_makes_no_difference(orchard: Tree) -> None:
    again = grow(reversed(list(orchard.nodes.values())))
    assert list(again.nodes) == list(orchard.nodes)
    assert again.forest == orchard.forest
    assert again.subtree("a") == orchard.subtree("a")


@pytest.mark.case("A-12")
def test_growing_leaves_its_input_alone() -> None:
    nodes = [team("b", gpu="1500m"), root(gpu="2"), node("a", parent="b")]
    before = copy.deepcopy(nodes)
    grow(nodes)
    assert nodes == before


def test_very_deep_and_very_wide_trees_are_walked_without_recursion() -> None:
    deep = grow([root(), node("n0"), *(node(f"n{i}", parent=f"n{i - 1}") for i in range(1, 5000))])
    assert deep.depth("n4999") == 5000
    assert len(deep.ancestors("n4999")) == 5000
    assert len(deep.subtree("root")) == 5001
    wide = grow([root(), *(team(f"t{i}") for i in range(5000))])
    assert len(wide.order) == 5001
