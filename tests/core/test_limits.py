"""Kueue's limits, on what is rendered and on what a tree would render to."""

from typing import Any

import pytest

from quota_translator.core.groups import Cell, merge
from quota_translator.core.limits import (
    Excess,
    Overflow,
    ceiling_overflow,
    exceeded,
    flavor_excess,
    most_flavors,
    queue_shapes,
    shapes_for,
    shapes_of,
)
from quota_translator.core.names import Pair
from quota_translator.core.options import DEFAULT_COVER, MaterializeOptions, Options
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.verdict import KUEUE_LIMIT_EXCEEDED as LIMIT
from quota_translator.core.world import Flavor, QuotaNode
from tests.core.build import judged, node, pair, root, team


def rendered(pairs: list[Pair]) -> list[dict[str, Any]]:
    return merge(Cell("x", of, ZERO) for of in pairs)


def limits(
    bad: QuotaNode, remedy: str = "spread them over several nodes", **context: Any
) -> list[tuple[str, str]]:
    """Subjects and messages; each message ends with the remedy, which is left out here."""
    found = [v for v in judged(root(), bad, **context).violations if v.reason == LIMIT]
    assert all(v.message.endswith(remedy) for v in found)
    return [(v.subject, v.message.rpartition(": ")[0]) for v in found]


GPU_20_TPU_20 = [pair(f"{kind} {kind}{i}") for kind in ("gpu", "tpu") for i in range(20)]


@pytest.mark.parametrize(
    ("pairs", "excess"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [Pair("r", f"f{i}") for i in range(65)], [Excess("flavors", 64, 65)], id="65 flavors"
        ),
        pytest.param([Pair("r", f"f{i}") for i in range(64)], [], id="64 flavors"),
        pytest.param(GPU_20_TPU_20, [], id="20 flavors of one resource and 20 of another"),
        pytest.param(
            [
                *GPU_20_TPU_20,
                *(pair(f"cpu {kind}{i}") for kind in ("gpu", "tpu") for i in range(20)),
            ],
            [],
            id="the same, joined to 40 flavors of 3 resources",
        ),
        pytest.param(
            [Pair(f"r{i}", f"f{i}") for i in range(17)],
            [Excess("resource groups", 16, 17)],
            id="17 groups",
        ),
        pytest.param([Pair(f"r{i}", f"f{i}") for i in range(16)], [], id="16 groups"),
        pytest.param(
            [Pair(f"r{i}", "f") for i in range(65)],
            [Excess("resources in one group", 64, 65)],
            id="65 resources on a flavor",
        ),
        pytest.param(
            [Pair(f"r{i % 27}", f"f{i % 19}") for i in range(513)],
            [Excess("flavor-resource pairs in one group", 512, 513)],
            id="513 pairs in a group",
        ),
        pytest.param(
            [Pair(f"r{i}", f"f{i % 5}") for i in range(257)],
            [Excess("resources", 256, 257)],
            id="257 resources in five groups",
        ),
    ],
)
@pytest.mark.case("A-20", "FC-H04")
def test_limits_of_a_rendered_object(pairs: list[Pair], excess: list[Excess]) -> None:
    assert list(exceeded(shapes_of(rendered(pairs)))) == excess
    assert list(exceeded(shapes_for(pairs))) == excess


@pytest.mark.case("FC-H04")
def test_the_order_in_which_budgets_are_written_makes_no_other_group() -> None:
    joined = [*GPU_20_TPU_20, *(pair(f"tpu gpu{i}") for i in range(20))]
    groups, again = rendered(joined), rendered(joined[::-1])
    assert groups == again
    assert [len(shape.flavors) for shape in shapes_of(groups)] == [40]
    assert {tuple(r["name"] for r in flavor["resources"]) for flavor in groups[0]["flavors"]} == {
        ("google.com/tpu", "nvidia.com/gpu")
    }


@pytest.mark.parametrize(
    ("release", "most"), [((0, 17), 16), ((0, 18), 64), ((0, 19), 64), ((1, 0), 64), (None, 64)]
)
@pytest.mark.case("A-20")
def test_a_local_queue_of_0_17_reports_16_flavors(
    release: tuple[int, int] | None, most: int
) -> None:
    assert most_flavors(release) == most


@pytest.mark.case("A-20", "FC-H04")
def test_the_cover_is_the_17th_group() -> None:
    apart = team("x", *(f"example.com/r{i} f{i} 1" for i in range(16)))
    expected = "its queue would have 17 resource groups, and Kueue takes at most 16"
    assert limits(apart) == [("spec.budgets: resource groups", expected)]
    bare = Options(materialize=MaterializeOptions(cover=False))
    assert limits(apart, options=bare) == []
    fewer = team("x", *(f"example.com/r{i} f{i} 1" for i in range(15)))
    assert limits(fewer) == []


@pytest.mark.case("A-20")
def test_the_cover_is_the_17th_flavor_where_local_queues_report_16() -> None:
    wide = team("x", *(f"gpu f{i} 1" for i in range(16)))
    assert limits(wide) == []
    assert limits(wide, kueue_release=(0, 19)) == []
    expected = "its queue would have 17 flavors, and Kueue takes at most 16"
    assert limits(wide, kueue_release=(0, 17)) == [("spec.budgets: flavors", expected)]
    assert limits(team("x", *(f"gpu f{i} 1" for i in range(15))), kueue_release=(0, 17)) == []


@pytest.mark.case("FC-H04")
def test_65_flavors_on_a_team_are_told_as_budgets_and_as_flavors() -> None:
    found = judged(root(), team("x", *(f"gpu f{i} 1" for i in range(65)))).violations
    assert [v.reason for v in found] == ["BudgetInvalid", "KueueLimitExceeded"]
    assert "66 flavors, and Kueue takes at most 64" in found[1].message


@pytest.mark.case("A-20")
def test_a_long_cover_on_flavors_with_a_topology_makes_too_many_pairs() -> None:
    cover = {f"example.com/c{i}": Quantity.of(1) for i in range(40)}
    options = Options(materialize=MaterializeOptions(cover_resources=cover))
    wide = team("x", *(f"gpu f{i} 1" for i in range(16)))
    assert limits(wide, options=options, flavors=(Flavor("f3"),)) == []
    told = limits(wide, options=options, flavors=(Flavor("f3", topology="racks"),))
    message = (
        "its queue would have 656 flavor-resource pairs in one group, and Kueue takes at most 512"
    )
    assert told == [("spec.budgets: flavor-resource pairs in one group", message)]


@pytest.mark.case("A-20")
def test_a_cover_that_is_too_long_is_told_on_every_team() -> None:
    cover = {f"example.com/c{i}": Quantity.of(1) for i in range(65)}
    options = Options(materialize=MaterializeOptions(cover_resources=cover))
    message = "its queue would have 65 resources in one group, and Kueue takes at most 64"
    told = limits(team("x", gpu="1"), options=options)
    assert told == [("spec.budgets: resources in one group", message)]
    fewer = Options(materialize=MaterializeOptions(cover_resources=dict(list(cover.items())[:54])))
    ten = team("x", *(f"gpu f{i} 1" for i in range(10)))
    assert limits(ten, options=fewer) == []
    (pairs,) = limits(ten, options=fewer, flavors=(Flavor("f3", topology="racks"),))
    assert "550 flavor-resource pairs in one group" in pairs[1]


def test_the_groups_of_a_team() -> None:
    budgets = [pair("gpu a100"), pair("tpu v5"), pair("memory a100")]
    apart = queue_shapes(budgets, DEFAULT_COVER, frozenset())
    assert [(shape.resources, shape.flavors) for shape in apart] == [
        (("memory", "nvidia.com/gpu"), ("a100",)),
        (("cpu", "ephemeral-storage"), ("quota-translator-cover",)),
        (("google.com/tpu",), ("v5",)),
    ]
    (one,) = queue_shapes(budgets, DEFAULT_COVER, frozenset({"v5"}))
    assert one.flavors == ("a100", "v5")
    assert len(one.resources) == 5


@pytest.mark.case("A-20")
def test_only_an_enforced_budget_puts_anything_on_a_cohort() -> None:
    texts = [f"example.com/r{i} f{i} 1" for i in range(17)]
    assert limits(node("x", *texts)) == []
    expected = "its Cohort would have 17 resource groups, and Kueue takes at most 16"
    told = limits(node("x", *(f"{text} !" for text in texts)))
    assert told == [("spec.budgets: resource groups", expected)]


@pytest.mark.case("A-20")
def test_a_flavor_has_eight_labels_taints_and_tolerations_at_most() -> None:
    labels = {f"l{i}": "x" for i in range(9)}
    assert flavor_excess(Flavor("a100", taints=8, tolerations=8)) == ()
    assert [excess.counted for excess in flavor_excess(Flavor("a100", "", labels, "", 9, 9))] == [
        "node labels",
        "node taints",
        "tolerations",
    ]
    flavors = (Flavor("a100", node_labels=labels), Flavor("h100"))
    message = 'the ResourceFlavor "a100" would have 9 node labels, and Kueue takes at most 8'
    assert limits(team("x", gpu="1"), "remove some", flavors=flavors) == [
        ("flavor a100: node labels", message)
    ]
    assert limits(team("x", "gpu h100 1"), flavors=flavors) == []
    assert limits(node("x", gpu="1"), flavors=flavors) == []


@pytest.mark.parametrize(
    ("ceilings", "release", "expected"),
    [
        pytest.param(DEFAULT_COVER, (0, 19), None, id="sums saturate from 0.18 on"),
        pytest.param(DEFAULT_COVER, (0, 18), None, id="0.18 itself"),
        pytest.param(DEFAULT_COVER, None, None, id="an unknown release is believed to"),
        pytest.param(
            DEFAULT_COVER,
            (0, 17),
            Overflow("ephemeral-storage", 512),
            id="512 times 16Pi is 2^63",
        ),
        pytest.param(
            {"cpu": Quantity.parse("16M")},
            (0, 17),
            Overflow("cpu", 576460753),
            id="cpu counts in thousandths",
        ),
        pytest.param({"cpu": Quantity.parse("10P")}, (0, 17), Overflow("cpu", 1), id="one alone"),
        pytest.param(
            {"example.com/x": Quantity.of(2**63 - 1)},
            (0, 17),
            Overflow("example.com/x", 2),
            id="the largest number alone still fits",
        ),
        pytest.param(
            {"example.com/x": Quantity.parse("1500m")},
            (0, 17),
            Overflow("example.com/x", (2**63 - 1) // 2 + 1),
            id="other resources are rounded up",
        ),
        pytest.param({"cpu": ZERO}, (0, 17), None, id="nothing never overflows"),
        pytest.param({}, (0, 17), None, id="no ceilings"),
    ],
)
@pytest.mark.case("A-78")
def test_ceilings_that_overflow(
    ceilings: dict[str, Quantity], release: tuple[int, int] | None, expected: Overflow | None
) -> None:
    assert ceiling_overflow(ceilings, release) == expected
    if expected is not None:
        per_unit = 1000 if expected.resource == "cpu" else 1
        units = (ceilings[expected.resource] * per_unit).ceil()
        assert units * (expected.teams - 1) <= 2**63 - 1 < units * expected.teams
