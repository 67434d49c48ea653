"""What the tree promises, added up: containment, capacity, and oversubscription."""

import pytest

from quota_translator.core.check import Verdict
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import QuotaNode
from tests.core.build import A100, FLAVORS, budget, identities, judged, node, root, rows, team


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


# --- capacity -------------------------------------------------------------------------------------


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


# --- oversubscription -----------------------------------------------------------------------------


@pytest.mark.case("FC-F07")
def test_five_teams_of_24_on_32_are_oversubscribed_and_none_is_singled_out() -> None:
    teams = [team(f"t{i}", gpu="24") for i in range(5)]
    verdict = judged(root(), *teams, capacity=rows(gpu=32), flavors=FLAVORS)
    assert verdict.violations == ()
    assert verdict.frozen == {}
    (only,) = verdict.oversubscribed
    assert str(only.pair) == A100
    assert (only.promised, only.ceiling, only.excess) == (
        Quantity.of(120),
        Quantity.of(32),
        Quantity.of(88),
    )
    assert "promises 120 of" in only.message
    assert "mark is 32: lower shares by 88" in only.message


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
