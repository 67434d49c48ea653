"""The shape of a tree: names, parents, loops, depth, and kinds of node."""

from collections.abc import Sequence

import pytest

from quota_translator.core.check import Verdict
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import QuotaNode
from tests.core.build import A100, budget, identities, judged, node, root, team


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(
            [root(), node("ml", parent="nowhere"), team("vision", parent="ml", gpu="1")],
            [("ml", "ParentMissing", "nowhere"), ("vision", "Unreachable", "ml")],
            id="an unknown parent blames the child, and what hangs from it has no place",
            marks=pytest.mark.case("A-2"),
        ),
        pytest.param(
            [root(), node("second", parent=None)],
            [("second", "ParentMissing", "root")],
            id="only root may have no parent",
            marks=pytest.mark.case("A-3"),
        ),
        pytest.param(
            [node("ml"), team("vision", parent="ml", gpu="1"), team("web", gpu="1")],
            [
                ("ml", "ParentMissing", "root"),
                ("vision", "Unreachable", "ml"),
                ("web", "ParentMissing", "root"),
            ],
            id="without root every node reports",
        ),
        pytest.param(
            [root(), node("a", parent="b"), node("b", parent="c"), node("c", parent="x")],
            [("a", "Unreachable", "c"), ("b", "Unreachable", "c"), ("c", "ParentMissing", "x")],
            id="the topmost ancestor is named, where the chain breaks",
        ),
        pytest.param(
            [root(), node("ml", parent="ml"), team("web", gpu="1")],
            [("ml", "ParentCycle", "ml")],
            id="a node that is its own parent is a loop",
            marks=pytest.mark.case("A-4"),
        ),
        pytest.param(
            [
                root(),
                node("b", parent="a"),
                node("a", parent="b"),
                node("tail", parent="b"),
                team("end", parent="tail", gpu="1"),
                team("web", gpu="1"),
            ],
            [(name, "ParentCycle", "a") for name in ("a", "b", "end", "tail")],
            id="a loop of two and all that hangs from it share a subject",
            marks=pytest.mark.case("A-4", "A-5"),
        ),
        pytest.param(
            [root(), node("b", parent="c"), node("c", parent="b"), node("a", parent="c")],
            [(name, "ParentCycle", "b") for name in ("a", "b", "c")],
            id="the subject is a member of the loop, whatever hangs from it",
            marks=pytest.mark.case("A-5"),
        ),
        pytest.param(
            [root(), node("ml", source="a.yaml:1"), node("ml", source="b.yaml:4")],
            [("ml", "DuplicateNode", "ml")],
            id="a name is given once",
            marks=pytest.mark.case("A-6"),
        ),
        pytest.param(
            [root(), team("web", gpu="8"), team("inner", parent="web", gpu="12")],
            [("inner", "NodeKindInvalid", "web")],
            id="a child beneath a team is blamed, and the team is not judged for containment",
            marks=pytest.mark.case("A-7"),
        ),
        pytest.param(
            [root(parent="ml", role="ClusterQueue"), node("ml")],
            [
                ("root", "NodeKindInvalid", "spec.parentRef"),
                ("root", "NodeKindInvalid", "spec.role"),
            ],
            id="root is a Cohort without a parent, and its children are not blamed",
        ),
    ],
)
def test_shape(nodes: Sequence[QuotaNode], expected: list[tuple[str, str, str]]) -> None:
    assert identities(judged(*nodes)) == expected


@pytest.mark.case("A-3", "A-4", "A-8")
def test_a_shape_that_is_wrong_is_told_with_its_remedy() -> None:
    verdict = judged(
        root(),
        node("orphan", parent=None),
        node("lost", parent="nowhere"),
        node("beneath", parent="lost"),
        team("leaf", gpu="1"),
        node("child", parent="leaf"),
    )
    told = {v.node: v.message for v in verdict.violations}
    assert told["orphan"] == "only the reserved root may omit parentRef: name a parent"
    assert told["beneath"] == (
        'has no position because its ancestor "lost" is unresolved: repair that one'
    )
    assert told["child"] == (
        'parent "leaf" is a ClusterQueue, which takes no children: name a Cohort'
    )


@pytest.mark.case("A-5")
def test_a_loop_is_spelled_out_once_and_briefly() -> None:
    ring = [node(f"n{i:03}", parent=f"n{(i + 1) % 300:03}") for i in range(300)]
    verdict = judged(root(), *ring)
    assert {v.subject for v in verdict.violations} == {"n000"}
    assert len(verdict.violations) == 300
    spelled = [v for v in verdict.violations if "→" in v.message]
    assert [v.node for v in spelled] == ["n000"]
    assert "n000 → n001 → " in spelled[0].message
    assert spelled[0].message.endswith("n007 → (292 more) → n000")
    assert max(len(v.message.encode()) for v in verdict.violations) < 2000


@pytest.mark.case("A-5")
def test_even_absurd_names_make_no_long_messages() -> None:
    names = ["x" * 250 + f"{i:03}" for i in range(300)]
    ring = [node(name, parent=names[i - 1]) for i, name in enumerate(names)]
    lost = node("lost", parent="y" * 5000, role="z" * 5000)
    odd = team("odd", budget(f"{'r' * 3000} {'f' * 3000} -1"))
    verdict = judged(root(), *ring, lost, odd, team("x" * 4000, gpu="1"))
    assert max(len(v.message.encode()) for v in verdict.violations) < 2000
    assert max(len(f.message.encode()) for f in verdict.frozen.values()) < 6000


@pytest.mark.case("A-6")
def test_a_duplicate_says_where_its_nodes_stand() -> None:
    verdict = judged(root(), node("ml", source="a.yaml:1"), node("ml", source="b.yaml:4"))
    assert (
        verdict.violations[0].message == '2 nodes have the name "ml" (a.yaml:1, b.yaml:4): keep one'
    )


@pytest.mark.parametrize(
    ("bound", "reported"),
    [
        pytest.param(4, [], id="at the bound"),
        pytest.param(3, ["n4"], id="one past it"),
        pytest.param(2, ["n3", "n4"], id="two past it"),
        pytest.param(0, [], id="0 is no bound"),
    ],
)
@pytest.mark.case("A-13", "A-14")
def test_depth_is_bounded_for_nodes_that_have_a_place(bound: int, reported: list[str]) -> None:
    chain = [node("n1"), *(node(f"n{i}", parent=f"n{i - 1}") for i in (2, 3))]
    nodes = [*chain, team("n4", parent="n3", gpu="1"), node("lost", parent="x")]
    verdict = judged(root(), *nodes, options=Options(max_tree_depth=bound))
    deep = [v for v in verdict.violations if v.reason == "DepthExceeded"]
    assert [v.node for v in deep] == reported
    assert verdict.frozen.keys() == {*reported, "lost"}
    if reported:
        assert "4 levels below the root" in deep[-1].message
        assert f"maximum of {bound}: move it up or raise --max-tree-depth" in deep[-1].message


@pytest.mark.parametrize(
    ("bad", "subject"),
    [
        pytest.param(team("x"), "spec.budgets", id="a team without a budget"),
        pytest.param(node("x", role="Queue"), "spec.role", id="an unknown role"),
        pytest.param(node("x", role=""), "spec.role", id="no role"),
        pytest.param(node("x", priority_tier="gold"), "spec.priorityTier", id="a group's tier"),
        pytest.param(node("x", stop_policy="Hold"), "spec.stopPolicy", id="a stopped group"),
        pytest.param(node("x", distribution=True), "spec.distribution", id="a group's policy"),
        pytest.param(
            node("x", budget("gpu a100 8", policy="Explicit")),
            f"{A100}: policy",
            id="a group's budget with a policy",
        ),
        pytest.param(
            node("x", budget("gpu a100 8", per_cluster=True)),
            f"{A100}: perCluster",
            id="a group's budget with shares per cluster",
        ),
        pytest.param(
            node("x", gpu="8 +4"), f"{A100}: borrowingLimit", id="a limit where nothing enforces it"
        ),
        pytest.param(
            node("x", gpu="8 -4"),
            f"{A100}: lendingLimit",
            id="a lending limit where nothing enforces it",
        ),
        pytest.param(team("x", gpu="8 !"), f"{A100}: enforced", id="enforced on a team"),
        pytest.param(root(gpu="8 !"), f"{A100}: enforced", id="enforced on root"),
        pytest.param(root(fair_weight=Quantity.of(2)), "spec.fairSharing", id="a weight on root"),
        pytest.param(root(gpu="8 +4"), f"{A100}: borrowingLimit", id="a limit on root"),
        pytest.param(root(gpu="8 -4"), f"{A100}: lendingLimit", id="a lending limit on root"),
    ],
)
@pytest.mark.case("A-8")
def test_a_node_has_only_the_fields_of_its_kind(bad: QuotaNode, subject: str) -> None:
    rest = [] if bad.name == "root" else [root()]
    assert identities(judged(*rest, bad)) == [(bad.name, "NodeKindInvalid", subject)]


@pytest.mark.case("A-8")
def test_an_enforced_group_budget_carries_limits() -> None:
    assert judged(root(), node("ml", gpu="8 +4 -4 !")) == Verdict()


@pytest.mark.case("A-8")
def test_enforced_makes_no_limit_good_on_root() -> None:
    assert identities(judged(root(gpu="8 +4 !"))) == [
        ("root", "NodeKindInvalid", f"{A100}: borrowingLimit"),
        ("root", "NodeKindInvalid", f"{A100}: enforced"),
    ]
