"""Checking a tree: one table for each family of rules, then what a verdict says as a whole."""

import copy
from collections.abc import Sequence

import pytest

from quota_translator.core.check import Frozen, Verdict, by_node, node_message
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.reading import read_quota
from quota_translator.core.world import FieldFault, Flavor, QuotaNode
from tests.core.build import budget, judged, node, root, rows, team

A100 = "nvidia.com/gpu on a100"
FLAVORS = (Flavor("a100"), Flavor("h100"))


def identities(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [violation.identity for violation in verdict.violations]


def messages(verdict: Verdict, node_name: str) -> str:
    return " | ".join(v.message for v in verdict.violations if v.node == node_name)


def company() -> list[QuotaNode]:
    return [
        root(gpu="32"),
        node("ml", gpu="24"),
        team("vision", parent="ml", gpu="16 +4 -8"),
        team("audio", parent="ml", gpu="8"),
        team("web", gpu="8"),
    ]


# --- shape --------------------------------------------------------------------------------------


@pytest.mark.case("A-1")
def test_nothing_and_a_sound_tree_have_no_violations() -> None:
    assert judged() == Verdict()
    assert judged(*company(), capacity=rows(gpu=32), flavors=FLAVORS) == Verdict()


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
    assert messages(verdict, "ml") == '2 nodes have the name "ml" (a.yaml:1, b.yaml:4): keep one'


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
        assert f"maximum of {bound}" in deep[-1].message


@pytest.mark.parametrize(
    ("bad", "subject"),
    [
        pytest.param(team("x"), "spec.budgets", id="a team without a budget"),
        pytest.param(node("x", role="Queue"), "spec.role", id="an unknown role"),
        pytest.param(node("x", role=""), "spec.role", id="no role"),
        pytest.param(node("x", priority_tier="gold"), "spec.priorityTier", id="a group's tier"),
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


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word"),
    [
        pytest.param("n" * 63, "", id="63 characters fit"),
        pytest.param("team.alpha", "", id="a dot is legal in both"),
        pytest.param("restore", "", id="only the ending is reserved"),
        pytest.param("n" * 64, "at most 63", id="64 are one too many"),
        pytest.param("Team", "lowercase", id="capitals"),
        pytest.param("team_a", "lowercase", id="an underscore"),
        pytest.param("team-", "lowercase", id="a dash at the end"),
        pytest.param("a..b", "lowercase", id="an empty part"),
        pytest.param("", "lowercase", id="no name"),
        pytest.param("default", "without a queue name", id="the name that captures every job"),
        pytest.param("ml.rest", "reserved", id="an ending of ours"),
        pytest.param("ml.intake", "reserved", id="another"),
        pytest.param("ml.m-7", "reserved", id="a part of ours"),
    ],
)
@pytest.mark.case("A-21", "FC-E05", "FC-E07")
def test_names(name: str, word: str) -> None:
    verdict = judged(root(), team(name, gpu="1"))
    if not word:
        assert verdict == Verdict()
        return
    assert [v.reason for v in verdict.violations] == ["NameInvalid"]
    assert word in verdict.violations[0].message
    assert verdict.violations[0].field == "metadata.name"


@pytest.mark.case("A-21", "FC-E07")
def test_a_second_root_is_a_duplicate_and_freezes_everything() -> None:
    verdict = judged(root(gpu="8"), team("root", parent="ml", gpu="8"), node("ml"))
    assert ("root", "DuplicateNode", "root") in identities(verdict)
    assert verdict.frozen.keys() == {"root", "ml"}


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        pytest.param("gpu a100 8", "", "", id="a share"),
        pytest.param("gpu a100 0", "", "", id="none at all"),
        pytest.param("gpu a100 8 +0 -8", "", "", id="limits at their edges"),
        pytest.param("gpu a100 -0", "", "", id="a negative zero is zero"),
        pytest.param("gpu a100 -5", "nominal", "-5", id="a negative share"),
        pytest.param("gpu a100 8 +-1", "borrowingLimit", "-1", id="borrowing less than nothing"),
        pytest.param("gpu a100 8 --1", "lendingLimit", "-1", id="lending less than nothing"),
        pytest.param("gpu a100 8 -12", "lendingLimit", "is 12 and nominal is 8", id="lending more"),
        pytest.param("gpu a100 0.5", "nominal", "whole units", id="half a device"),
        pytest.param("gpu a100 500m", "nominal", "whole units", id="half a device in milli"),
        pytest.param("gpu a100 1500m", "nominal", "whole units", id="one and a half"),
        pytest.param("gpu a100 3000m", "", "", id="three, spelled in milli"),
        pytest.param("gpu a100 1Ki", "", "", id="1024 devices"),
        pytest.param("gpu a100 8.0", "", "", id="eight with a point"),
        pytest.param("cpu a100 1500m", "", "", id="half a core is fine"),
        pytest.param("memory a100 0.5", "", "", id="memory is no device"),
        pytest.param("gpu a100 1e15", "", "", id="at the maximum"),
        pytest.param(
            "gpu a100 1E", "nominal", "is 1000000000000000000, above", id="far above the maximum"
        ),
        pytest.param("cpu a100 1000000000000000.1", "nominal", "above", id="just above it"),
    ],
)
@pytest.mark.case("A-19", "FC-D04", "FC-F04")
def test_amounts(text: str, field: str, words: str) -> None:
    verdict = judged(root(), team("x", text))
    if not field:
        assert verdict == Verdict()
        return
    (only,) = verdict.violations
    assert only.reason == "BudgetInvalid"
    assert only.field == f"spec.budgets[0].{field}"
    assert only.subject.endswith(f": {field}")
    assert words in only.message


@pytest.mark.case("FC-D07")
def test_every_budget_is_judged_whatever_its_position() -> None:
    verdict = judged(root(), team("x", "gpu a100 8", "gpu h100 4 +-1", "gpu l4 -5 --0"))
    assert [(v.field, v.reason) for v in verdict.violations] == [
        ("spec.budgets[1].borrowingLimit", "BudgetInvalid"),
        ("spec.budgets[2].nominal", "BudgetInvalid"),
    ]


@pytest.mark.parametrize(
    ("texts", "accepted"),
    [
        pytest.param(["gpu a100 16 -12"], True, id="before"),
        pytest.param(["gpu a100 8 -8"], True, id="both lowered in one edit"),
        pytest.param(["gpu a100 8"], True, id="the limit dropped"),
        pytest.param(["gpu a100 8 -12"], False, id="only the share lowered"),
    ],
)
@pytest.mark.case("FC-F05")
def test_a_share_never_lends_more_than_it_has(texts: list[str], accepted: bool) -> None:
    assert (judged(root(), team("x", *texts)).violations == ()) is accepted


@pytest.mark.parametrize(
    ("bad", "subject", "field"),
    [
        pytest.param(
            team("x", "gpu a100 8", "gpu a100 4"), A100, "spec.budgets[1]", id="a pair twice"
        ),
        pytest.param(
            team("x", *(f"gpu f{i} 1" for i in range(17))),
            "spec.budgets",
            "spec.budgets",
            id="17 budgets",
        ),
        pytest.param(
            team("x", "gpu quota-translator-cover 1"),
            "nvidia.com/gpu on quota-translator-cover: resourceFlavor",
            "spec.budgets[0].resourceFlavor",
            id="the controller's own flavor",
        ),
        pytest.param(
            team("x", "gpu A100 1"),
            "nvidia.com/gpu on A100: resourceFlavor",
            "spec.budgets[0].resourceFlavor",
            id="a flavor that cannot be",
        ),
        pytest.param(
            team("x", "nvidia.com/ a100 1"),
            "nvidia.com/ on a100: resourceName",
            "spec.budgets[0].resourceName",
            id="a resource that cannot be",
        ),
    ],
)
def test_pairs(bad: QuotaNode, subject: str, field: str) -> None:
    (only,) = judged(root(), bad).violations
    assert (only.reason, only.subject, only.field) == ("BudgetInvalid", subject, field)


@pytest.mark.parametrize(
    ("nominal", "word"),
    [
        pytest.param(8, "", id="a bare integer"),
        pytest.param("1e3", "", id="text with an exponent is a quantity"),
        pytest.param(8.0, "8.0", id="a fraction of JSON"),
        pytest.param(True, "True", id="what YAML makes of yes"),
        pytest.param("eight", "eight", id="a word"),
        pytest.param(None, "required", id="nothing"),
    ],
)
@pytest.mark.case("A-19", "FC-D05")
def test_what_could_not_be_read_is_one_violation_with_its_path(nominal: object, word: str) -> None:
    entry = {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "nominal": nominal}
    spec = {
        "role": "ClusterQueue",
        "parentRef": {"name": "root"},
        "budgets": [entry | {"lendingLimit": 0}],
    }
    read = read_quota({"metadata": {"name": "x"}, "spec": spec}, "a.yaml:3")
    verdict = judged(root(), read, capacity=rows(gpu=2000), flavors=FLAVORS)
    if not word:
        assert verdict == Verdict()
        return
    (only,) = verdict.violations
    assert only.identity == ("x", "BudgetInvalid", f"{A100}: nominal")
    assert (only.field, only.source) == ("spec.budgets[0].nominal", "a.yaml:3")
    assert only.message.startswith("spec.budgets[0].nominal: ")
    assert word in only.message


def test_16_budgets_are_taken() -> None:
    assert judged(root(), team("x", *(f"gpu f{i} 1" for i in range(16)))) == Verdict()


def test_an_unreadable_share_is_not_compared_with_its_lending_limit() -> None:
    bad = read_quota(
        {
            "metadata": {"name": "x"},
            "spec": {
                "role": "ClusterQueue",
                "parentRef": {"name": "root"},
                "budgets": [
                    {
                        "resourceName": "nvidia.com/gpu",
                        "resourceFlavor": "a100",
                        "nominal": "eight",
                        "lendingLimit": 4,
                    }
                ],
            },
        }
    )
    assert len(judged(root(), bad).violations) == 1


def test_faults_outside_budgets_are_violations_too() -> None:
    def read(spec: dict[str, object], name: str = "x") -> QuotaNode:
        return read_quota({"metadata": {"name": name}, "spec": spec})

    lost = judged(root(), read({"role": "Cohort", "parentRef": {"name": 7}}))
    assert identities(lost) == [("x", "ParentMissing", "root")]
    assert lost.violations[0].message == "spec.parentRef.name: 7 is not the name of a node"
    odd = read({"role": "ClusterQueue", "parentRef": {"name": "root"}, "budgets": "many"})
    assert identities(judged(root(), odd)) == [("x", "BudgetInvalid", "spec.budgets")]
    top = judged(read({"role": "Cohort", "parentRef": {"name": 7}}, "root"))
    assert identities(top) == [("root", "NodeKindInvalid", "spec.parentRef.name")]
    tier = node("x", faults=(FieldFault("spec.priorityTier", "is not text"),))
    named = node("y", faults=(FieldFault("metadata.name", "is not text"),))
    assert identities(judged(root(), tier, named)) == [
        ("x", "NodeKindInvalid", "spec.priorityTier"),
        ("y", "NameInvalid", "metadata.name"),
    ]


# --- containment --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "numbers"),
    [
        pytest.param(
            [node("ml", gpu="50"), team("a", parent="ml", gpu="60")],
            ("50", "60", "10"),
            id="one child",
            marks=pytest.mark.case("A-9"),
        ),
        pytest.param(
            [
                node("ml", gpu="100"),
                team("a", parent="ml", gpu="60"),
                team("b", parent="ml", gpu="60"),
            ],
            ("100", "120", "20"),
            id="siblings are summed",
            marks=pytest.mark.case("A-9", "FC-E02"),
        ),
        pytest.param(
            [node("ml", gpu="24"), *(team(n, parent="ml", gpu="14") for n in ("a", "b"))],
            ("24", "28", "4"),
            id="two edits that were each valid",
            marks=pytest.mark.case("FC-E02"),
        ),
        pytest.param(
            [node("ml"), team("a", parent="ml", gpu="8")],
            None,
            id="a parent without budgets",
            marks=pytest.mark.case("A-10"),
        ),
        pytest.param(
            [node("ml", gpu="16"), team("a", "gpu a100 8", "gpu h100 400", parent="ml")],
            None,
            id="a parent without that pair",
            marks=pytest.mark.case("A-10", "FC-E08"),
        ),
        pytest.param(
            [
                node("ml", "gpu a100 8", "gpu h100 4"),
                team("a", "gpu a100 4", "gpu h100 8", parent="ml"),
            ],
            ("4", "8", "4"),
            id="only the pair at fault is told",
            marks=pytest.mark.case("A-10"),
        ),
        pytest.param(
            [node("ml", "gpu h100 0"), team("a", "gpu h100 4", parent="ml")],
            ("0", "4", "4"),
            id="zero is none, unlike absent",
            marks=pytest.mark.case("FC-E08"),
        ),
        pytest.param(
            [node("ml", gpu="8"), team("a", parent="ml", gpu="8 +100")],
            None,
            id="borrowing is not counted",
            marks=pytest.mark.case("A-11"),
        ),
        pytest.param(
            [
                node("ml", "cpu a100 2"),
                team("a", "cpu a100 1500m", parent="ml"),
                team("b", "cpu a100 0.5", parent="ml"),
            ],
            None,
            id="1500m and 0.5 are exactly 2",
            marks=pytest.mark.case("A-12"),
        ),
        pytest.param(
            [
                node("ml", "memory a100 2Gi"),
                team("a", "memory a100 2147483648", parent="ml"),
                team("b", "memory a100 1m", parent="ml"),
            ],
            ("2Gi", "2147483648001m", "1m"),
            id="a thousandth too much is too much",
            marks=pytest.mark.case("A-12"),
        ),
        pytest.param(
            [
                node("ml", gpu="8"),
                node("inner", "gpu h100 1", parent="ml"),
                team("a", parent="inner", gpu="5"),
                team("b", parent="inner", gpu="4"),
            ],
            ("8", "9", "1"),
            id="a group that does not budget the pair is seen through",
        ),
        pytest.param(
            [
                node("ml", gpu="8"),
                node("inner", gpu="8", parent="ml"),
                team("a", parent="inner", gpu="5"),
            ],
            None,
            id="a group that does counts with its own",
        ),
        pytest.param(
            [
                node("ml", gpu="8"),
                team("a", parent="ml", gpu="9"),
                team("b", parent="ml", gpu="-5"),
            ],
            ("8", "9", "1"),
            id="a negative share hides nothing",
        ),
        pytest.param(
            [
                node("ml", gpu="8"),
                node("inner", parent="ml", gpu="-1"),
                team("b", parent="inner", gpu="9"),
            ],
            ("8", "9", "1"),
            id="a group with a negative share is seen through",
        ),
        pytest.param(
            [node("ml", gpu="8"), team("a", "gpu a100 8", "gpu a100 9", parent="ml")],
            None,
            id="of a pair that is given twice the first counts",
        ),
    ],
)
def test_containment(nodes: list[QuotaNode], numbers: tuple[str, ...] | None) -> None:
    verdict = judged(root(), *nodes)
    found = [v for v in verdict.violations if v.reason == "ContainmentViolated"]
    if numbers is None:
        assert found == []
        return
    (only,) = found
    assert only.node == "ml"
    parent, children, excess = numbers
    assert f"is {parent} but its children total {children}: " in only.message
    assert only.message.endswith(f"by {excess}")
    assert only.field.endswith(".nominal")


@pytest.mark.case("A-9")
def test_the_subject_of_an_overrun_is_the_pair_and_only_the_parent_is_blamed() -> None:
    verdict = judged(root(), node("ml", gpu="50"), team("a", parent="ml", gpu="60"))
    assert identities(verdict) == [("ml", "ContainmentViolated", A100)]


def test_containment_is_told_of_nodes_without_a_place_too() -> None:
    verdict = judged(node("ml", parent="typo", gpu="1"), team("a", parent="ml", gpu="2"))
    assert ("ml", "ContainmentViolated", A100) in identities(verdict)


@pytest.mark.case("FC-E02")
def test_lowering_either_child_clears_an_overrun() -> None:
    group = node("ml", gpu="24")
    for a, b in (("10", "14"), ("14", "10")):
        children = [team("a", parent="ml", gpu=a), team("b", parent="ml", gpu=b)]
        assert judged(root(), group, *children) == Verdict()


# --- capacity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "capacity", "words"),
    [
        pytest.param("gpu a100 32", rows(gpu=32), "", id="equal to the mark"),
        pytest.param(
            "gpu a100 33", rows(gpu=32), "is 33 but the cluster's peak capacity is 32", id="above"
        ),
        pytest.param("gpu a100 26", rows(gpu=24), "is 26 but", id="the mark fell past the band"),
        pytest.param("gpu a100 32", rows(gpu=30), "lower it by 2", id="what to do about it"),
        pytest.param("gpu h100 1", rows(gpu=32), "no capacity is measured", id="no row"),
        pytest.param("amd.com/gpu a100 1", rows(gpu=32), "capacity.resources", id="not measured"),
        pytest.param("gpu h100 0", rows(gpu=32), "", id="nothing is promised of no row"),
        pytest.param("tpu a100 8", rows("tpu a100 never"), "never seen", id="never seen"),
        pytest.param("tpu a100 8", rows("tpu a100 0"), "peak capacity is 0", id="seen, but none"),
        pytest.param("gpu gone 8", rows(gpu=32), "", id="a flavor that does not exist"),
        pytest.param("gpu a100 8000", {}, "", id="no capacity at all"),
        pytest.param("gpu a100 8000", None, "", id="capacity not known"),
    ],
)
@pytest.mark.case("A-30", "A-32", "A-33")
def test_capacity(share: str, capacity: object, words: str) -> None:
    verdict = judged(root(), team("x", share), capacity=capacity, flavors=FLAVORS)
    if not words:
        assert verdict.violations == ()
        assert verdict.frozen == {}
        return
    (only,) = verdict.violations
    assert only.identity == ("x", "CapacityExceeded", str(budget(share).pair))
    assert only.field == "spec.budgets[0].nominal"
    assert words in only.message
    assert "exceeds 0" not in only.message


def test_a_missing_flavor_is_not_judged_even_where_a_row_of_it_is_left() -> None:
    left = rows("gpu gone 4")
    verdict = judged(root(), team("x", "gpu gone 8"), capacity=left, flavors=FLAVORS)
    assert verdict == Verdict()


@pytest.mark.parametrize(
    ("share", "violates"),
    [("gpu a100 33", True), ("tpu a100 1", True), ("gpu h100 1", False)],
    ids=["above its mark", "a pair of a measured flavor", "a flavor that may not exist"],
)
def test_while_flavors_cannot_be_read_those_that_were_measured_are_believed(
    share: str, violates: bool
) -> None:
    verdict = judged(root(), team("x", share), capacity=rows(gpu=32), flavors=None)
    assert bool(verdict.violations) is violates


@pytest.mark.case("A-34")
def test_groups_are_held_to_capacity_and_siblings_are_not_summed() -> None:
    nodes = [root(), node("ml", gpu="40"), *(team(n, gpu="24") for n in ("a", "b"))]
    verdict = judged(*nodes, capacity=rows(gpu=32), flavors=FLAVORS)
    assert identities(verdict) == [("ml", "CapacityExceeded", A100)]
    capped = judged(root(gpu="32"), *nodes[2:], capacity=rows(gpu=32), flavors=FLAVORS)
    assert identities(capped) == [("root", "ContainmentViolated", A100)]


@pytest.mark.case("A-30")
def test_what_the_mark_no_longer_covers_is_frozen_and_comes_back_with_it() -> None:
    nodes = [root(), node("ml", gpu="26"), team("a", parent="ml", gpu="20"), team("web", gpu="4")]
    for mark, frozen in ((32, set()), (24, {"ml", "a"}), (26, set())):
        verdict = judged(*nodes, capacity=rows(gpu=mark), flavors=FLAVORS)
        assert verdict.frozen.keys() == frozen


# --- oversubscription ---------------------------------------------------------------------------


@pytest.mark.case("FC-F07")
def test_five_teams_of_24_on_32_are_oversubscribed_and_none_is_singled_out() -> None:
    teams = [team(f"t{i}", gpu="24") for i in range(5)]
    verdict = judged(root(), *teams, capacity=rows(gpu=32), flavors=FLAVORS)
    assert verdict.violations == ()
    assert verdict.frozen == {}
    (only,) = verdict.oversubscribed
    assert str(only.pair) == A100
    assert (only.promised, only.mark, only.excess) == (
        Quantity.of(120),
        Quantity.of(32),
        Quantity.of(88),
    )
    assert "120" in only.message
    assert "32" in only.message


@pytest.mark.parametrize(
    ("nodes", "promised"),
    [
        pytest.param([root(gpu="32"), team("a", gpu="24")], None, id="root's budget counts"),
        pytest.param(
            [root(gpu="32"), team("a", gpu="24"), team("b", gpu="24")],
            None,
            id="root's budget counts, whatever its children say",
        ),
        pytest.param(
            [root(), node("ml", gpu="30"), team("a", parent="ml", gpu="1"), team("b", gpu="3")],
            33,
            id="a group counts with its budget",
        ),
        pytest.param(
            [root(), node("ml"), team("a", parent="ml", gpu="30"), team("b", gpu="3")],
            33,
            id="a group without one is seen through",
        ),
        pytest.param([root(), team("a", gpu="16"), team("b", gpu="16")], None, id="equal passes"),
        pytest.param([root(), *(team(n, "gpu gone 99") for n in "ab")], None, id="missing flavor"),
        pytest.param([root(), *(team(n, "gpu h100 99") for n in "ab")], None, id="no row"),
        pytest.param(
            [root(), team("a", gpu="30"), team("b", parent="typo", gpu="30")],
            None,
            id="what root does not reach promises nothing",
        ),
        pytest.param(
            [root(), team("a", gpu="40"), team("b", gpu="1")],
            41,
            id="a frozen team's promise counts",
        ),
    ],
)
@pytest.mark.case("FC-F07")
def test_what_the_tree_promises(nodes: list[QuotaNode], promised: int | None) -> None:
    verdict = judged(*nodes, capacity=rows(gpu=32), flavors=FLAVORS)
    found = [over.promised for over in verdict.oversubscribed]
    assert found == ([] if promised is None else [Quantity.of(promised)])


# --- freezing, messages, order ------------------------------------------------------------------


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
