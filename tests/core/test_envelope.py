"""Enforced group budgets: what the group's Cohort holds, and that it is a cap."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.arithmetic import build, from_live, solve, subtree_bound
from quota_translator.core.envelope import Overdraft
from quota_translator.core.kueue import cells
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    KINDS,
    LOCAL_QUEUE,
    Key,
    Pair,
)
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.render import Rendering
from quota_translator.core.world import Memory, Observed, QuotaNode, Refusal
from tests.core.build import node, pair, root, team
from tests.core.rendering import as_live, cohort, queue, rendered, spec_of, stands

GPU = pair("gpu a100")
CAPACITY = stands(CLUSTER_QUEUE, "pool", "gpu a100 1000", parent="root", ours=False)


def ml(*budgets: str, **fields: Any) -> QuotaNode:
    return node("ml", *budgets, **fields)


def tree(budget: str, *teams: str, **fields: Any) -> tuple[QuotaNode, ...]:
    """A group `ml` of this budget over teams t0, t1, …"""
    members = [team(f"t{n}", text, parent="ml") for n, text in enumerate(teams)]
    return (root(), ml(budget, **fields), *members)


def whole(text: str) -> Quantity:
    return Quantity.parse(text)


RESTS = [
    ("gpu a100 24 !", ["gpu a100 16", "gpu a100 8"], ["gpu a100 0 +0"]),
    ("gpu a100 24 !", ["gpu a100 8", "gpu a100 4 +9"], ["gpu a100 12 +0"]),
    ("gpu a100 24 +4 -2 !", ["gpu a100 8"], ["gpu a100 16 +4 -2"]),
    ("gpu a100 24 !", [], ["gpu a100 24 +0"]),
    ("gpu a100 24 !", ["gpu h100 8"], ["gpu a100 24 +0"]),
    ("cpu a100 10 !", ["cpu a100 1500m"], ["cpu a100 8500m +0"]),
    ("memory a100 16Gi !", ["memory a100 1Gi"], ["memory a100 15Gi +0"]),
]


@pytest.mark.case("A-74")
@pytest.mark.parametrize(("budget", "teams", "held"), RESTS)
def test_the_cohort_holds_what_is_left(budget: str, teams: list[str], held: list[str]) -> None:
    assert cohort(rendered(*tree(budget, *teams)), "ml") == [held]


@pytest.mark.case("A-60", "FC-F02")
def test_a_budget_that_is_not_enforced_puts_nothing_on_its_cohort() -> None:
    result = rendered(*tree("gpu a100 24 +1 -1", "gpu a100 16", "gpu a100 8"))
    assert spec_of(result, COHORT, "ml") == {"parentName": "root"}
    assert spec_of(rendered(root("gpu a100 32 !")), COHORT, "root") == {}


def test_only_enforced_pairs_stand_on_the_cohort() -> None:
    group = ml("gpu a100 24 !", "tpu v5 8", "tpu a100 4 !", "gpu h100 2 !")
    # The filler (tpu on h100) has no limits: to Kueue it is no entry.
    assert cohort(rendered(root(), group), "ml") == [
        ["tpu a100 4 +0", "gpu a100 24 +0", "tpu h100 0", "gpu h100 2 +0"]
    ]


def test_inner_groups_count_with_what_their_cohorts_hold() -> None:
    inner = node("inner", "gpu a100 10 +3 !", parent="ml")
    loose = node("loose", "gpu a100 9", parent="ml")
    result = rendered(
        root(),
        ml("gpu a100 24 !"),
        inner,
        loose,
        team("a", "gpu a100 4", parent="inner"),
        team("b", "gpu a100 5", parent="loose"),
    )
    assert cohort(result, "inner") == [["gpu a100 6 +3"]]
    assert cohort(result, "ml") == [["gpu a100 9 +0"]]  # 24 - (4 + 6) - 5


def test_a_missing_flavor_holds_nothing_beneath() -> None:
    result = rendered(*tree("gpu a100 24 !", "gpu a100 16"), flavors=())
    assert cohort(result, "ml") == [["gpu a100 24 +0"]]


# --- what does not stand there as the tree wants it -------------------------------------------

T0 = stands(CLUSTER_QUEUE, "t0", "gpu a100 12", parent="ml")


@pytest.mark.parametrize(
    ("fields", "live", "held"),
    [
        pytest.param({}, [T0], ["gpu a100 20 +0"], id="written: as it will be"),
        pytest.param(
            {}, [T0, stands(LOCAL_QUEUE, "t0")], ["gpu a100 20 +0"], id="and its LocalQueue"
        ),
        pytest.param({"frozen": ["t0"]}, [T0], ["gpu a100 12 +0"], id="frozen: as it is"),
        pytest.param({"frozen": ["t0"]}, [], ["gpu a100 24 +0"], id="frozen and never written"),
        pytest.param(
            {},
            [stands(CLUSTER_QUEUE, "t0", "gpu a100 12", parent="ml", deleting=True)],
            ["gpu a100 12 +0"],
            id="terminating: as it is",
        ),
        pytest.param(
            {},
            [stands(CLUSTER_QUEUE, "t0", "gpu a100 12", parent="ml", ours=False)],
            ["gpu a100 12 +0"],
            id="a stranger has its name: the stranger counts",
        ),
        pytest.param(
            {},
            [stands(CLUSTER_QUEUE, "t0", "gpu a100 12", ours=False)],
            ["gpu a100 24 +0"],
            id="a stranger has its name elsewhere: nothing stands here",
        ),
        pytest.param(
            {},
            [T0, stands(CLUSTER_QUEUE, "gone", "gpu a100 3", parent="ml")],
            ["gpu a100 17 +0"],
            id="no longer wanted, still there",
        ),
        pytest.param(
            {},
            [stands(CLUSTER_QUEUE, "t0", "gpu a100 12", parent="old")],
            ["gpu a100 20 +0"],
            id="moving in: as it will be",
        ),
        pytest.param(
            {"frozen": ["t0"]},
            [stands(CLUSTER_QUEUE, "t0", "gpu a100 12", parent="old")],
            ["gpu a100 24 +0"],
            id="frozen elsewhere",
        ),
        pytest.param(
            {},
            [stands(CLUSTER_QUEUE, "x", "gpu a100 1500m", parent="ml", ours=False)],
            ["gpu a100 18 +0"],
            id="a stranger, counted as Kueue counts it",
        ),
        pytest.param(
            {},
            [
                stands(COHORT, "x", "gpu a100 2", parent="ml", ours=False),
                stands(CLUSTER_QUEUE, "y", "gpu a100 3", parent="x", ours=False),
                stands(CLUSTER_QUEUE, "z", "gpu a100 5", parent="nobody", ours=False),
            ],
            ["gpu a100 15 +0"],
            id="a stranger's Cohort and what stands beneath it",
        ),
    ],
)
def test_what_stands_beneath(fields: dict[str, Any], live: list[Observed], held: list[str]) -> None:
    result = rendered(*tree("gpu a100 24 !", "gpu a100 4"), live=live, **fields)
    assert cohort(result, "ml") == [held]


def test_an_unreachable_node_counts_as_it_stands() -> None:
    lost = team("t0", "gpu a100 4", parent="nowhere")
    result = rendered(root(), ml("gpu a100 24 !"), lost, live=[T0])
    assert cohort(result, "ml") == [["gpu a100 12 +0"]]
    assert result.kept == {"t0"}


def test_a_refused_queue_counts_as_it_stands_until_it_is_wanted_otherwise() -> None:
    nodes = tree("gpu a100 24 !", "gpu a100 4")
    key = Key(CLUSTER_QUEUE, "", "t0")
    refusal = Refusal(rendered(*nodes).desired[key].spec, "denied")
    memory = Memory(refused={key: refusal})
    assert cohort(rendered(*nodes, live=[T0], memory=memory), "ml") == [["gpu a100 12 +0"]]
    edited = tree("gpu a100 24 !", "gpu a100 5")
    assert cohort(rendered(*edited, live=[T0], memory=memory), "ml") == [["gpu a100 19 +0"]]


def test_a_refused_inner_cohort_counts_as_it_stands() -> None:
    nodes = (root(), ml("gpu a100 24 !"), node("inner", "gpu a100 10 !", parent="ml"))
    key = Key(COHORT, "", "inner")
    live = [stands(COHORT, "inner", "gpu a100 3 +0", parent="ml")]
    assert cohort(rendered(*nodes, live=live), "ml") == [["gpu a100 14 +0"]]
    memory = Memory(refused={key: Refusal(rendered(*nodes).desired[key].spec, "denied")})
    result = rendered(*nodes, live=live, memory=memory)
    assert cohort(result, "ml") == [["gpu a100 21 +0"]]
    assert cohort(result, "inner") == [["gpu a100 10 +0"]]


def test_foreign_members_are_named_where_they_count() -> None:
    live = [
        stands(COHORT, "x", parent="ml", ours=False),
        stands(CLUSTER_QUEUE, "y", "gpu a100 3", parent="x", ours=False),
        stands(CLUSTER_QUEUE, "elsewhere", "gpu a100 3", parent="root", ours=False),
        stands(CLUSTER_QUEUE, "copy", parent="ml", quota="t0"),  # our labels on another name
        T0,
    ]
    names = {
        "ml": ("ClusterQueue copy", "ClusterQueue y", "Cohort x"),
        "root": ("ClusterQueue elsewhere",),
    }
    nodes = tree("gpu a100 24 !", "gpu a100 4")
    assert rendered(*nodes, live=live).foreign_members == names
    # Where nothing is enforced they add to what teams may borrow, which nobody promised.
    assert rendered(*tree("gpu a100 24", "gpu a100 4"), live=live).foreign_members == names


def test_a_loop_of_foreign_cohorts_ends() -> None:
    live = [
        stands(COHORT, "x", "gpu a100 1", parent="y", ours=False),
        stands(COHORT, "y", "gpu a100 1", parent="x", ours=False),
        stands(COHORT, "z", "gpu a100 2", parent="ml", ours=False),
    ]
    result = rendered(*tree("gpu a100 24 !", "gpu a100 4"), live=live)
    assert cohort(result, "ml") == [["gpu a100 18 +0"]]


@pytest.mark.parametrize("unknown", [COHORT, CLUSTER_QUEUE])
def test_nothing_grows_on_what_is_not_known(unknown: str) -> None:
    known = frozenset(KINDS) - {unknown}
    nodes = tree("gpu a100 24 +2 !", "gpu a100 4")
    live = [stands(COHORT, "ml", "gpu a100 7 +1", parent="root")]
    assert cohort(rendered(*nodes, live=live, known=known), "ml") == [["gpu a100 7 +1"]]
    assert cohort(rendered(*nodes, known=known), "ml") == [["gpu a100 0 +0"]]


# --- more beneath than the budget -------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "standing", "held", "left"),
    [
        ("gpu a100 24 +10 !", "gpu a100 30", "gpu a100 0 +4", 4),
        ("gpu a100 24 +6 !", "gpu a100 30", "gpu a100 0 +0", 0),
        ("gpu a100 24 +2 -1 !", "gpu a100 30", "gpu a100 0 +0 -1", 0),
        ("gpu a100 24 !", "gpu a100 30", "gpu a100 0 +0", 0),
    ],
)
def test_an_overdrawn_envelope(budget: str, standing: str, held: str, left: int) -> None:
    live = [stands(CLUSTER_QUEUE, "t0", standing, parent="ml")]
    result = rendered(*tree(budget, "gpu a100 4"), live=live, frozen=["t0"])
    assert cohort(result, "ml") == [[held]]
    limit = next((whole(w[1:]) for w in budget.split() if w.startswith("+")), ZERO)
    numbers = Overdraft(whole("24"), whole("30"), whole("6"), limit, Quantity.of(left))
    assert result.overdrawn == {("ml", GPU): numbers}


def test_the_numbers_are_told() -> None:
    overdraft = Overdraft(whole("24"), whole("30"), whole("6"), whole("10"), whole("4"))
    for number in ("24", "30", "6 less", "borrowingLimit 10 counts as 4"):
        assert number in overdraft.message
    assert str(overdraft) == overdraft.message
    unlent = Overdraft(whole("24"), whole("30"), whole("6"), ZERO, ZERO)
    assert "borrowingLimit" not in unlent.message


def test_a_full_envelope_is_not_overdrawn() -> None:
    assert rendered(*tree("gpu a100 24 !", "gpu a100 16", "gpu a100 8")).overdrawn == {}


# --- the cap ----------------------------------------------------------------------------------


def in_kueue(result: Rendering, *others: Observed) -> dict[Key, Observed]:
    ours = [as_live(one) for key, one in result.desired.items() if key.kind != "LocalQueue"]
    return {one.key: one for one in (*ours, *others)}


@pytest.mark.case("A-74", "A-76")
def test_a_group_of_24_with_16_and_8_never_exceeds_24() -> None:
    """The team of 8 may borrow from anywhere in the tree; its group's 24 hold it all the same."""
    nodes = tree("gpu a100 24 !", "gpu a100 16", "gpu a100 8 +100")
    beta = Key(CLUSTER_QUEUE, "", "t1")
    enforced = from_live(in_kueue(rendered(*nodes), CAPACITY), GPU)
    assert solve(enforced)[beta].potential == 24
    assert subtree_bound(enforced, Key(COHORT, "", "ml")) == 24
    # Not enforced, it reaches the pool beside the group, far beyond its siblings.
    loose = tree("gpu a100 24", "gpu a100 16", "gpu a100 8 +100")
    assert solve(from_live(in_kueue(rendered(*loose), CAPACITY), GPU))[beta].potential == 108


team_texts = st.builds(
    lambda nominal, more, lent: f"gpu a100 {nominal}{more}" + (f" -{min(lent, nominal)}"),
    st.integers(0, 9),
    st.sampled_from(["", " +3", " +50"]),
    st.integers(0, 9),
)


@settings(max_examples=60)
@given(
    st.lists(team_texts, min_size=1, max_size=3),
    st.lists(team_texts, max_size=2),
    st.integers(0, 12),
    st.integers(0, 5),
    st.data(),
)
@pytest.mark.case("A-74")
def test_no_admission_takes_a_group_over_its_budget(
    teams: list[str], inner: list[str], spare: int, limit: int, data: st.DataObject
) -> None:
    promised = sum(int(text.split()[2]) for text in (*teams, *inner))
    nodes = [
        *tree(f"gpu a100 {promised + spare} +{limit} !", *teams),
        node("inner", parent="ml"),
        *(team(f"i{n}", text, parent="inner") for n, text in enumerate(inner)),
    ]
    live = from_live(in_kueue(rendered(*nodes), CAPACITY), GPU)
    names = sorted(n.name for n in nodes if n.role == CLUSTER_QUEUE)
    use: dict[Key, int] = {}
    for name in data.draw(st.lists(st.sampled_from(names), max_size=8)):
        key = Key(CLUSTER_QUEUE, "", name)
        members = build(_using(live.members, use))
        use[key] = use.get(key, 0) + data.draw(st.integers(0, solve(members)[key].available))
    assert sum(use.values()) <= promised + spare + limit
    # And Kueue's own rules say so of any history.
    assert subtree_bound(live, Key(COHORT, "", "ml")) == promised + spare + limit


def _using(members: Mapping[Key, Any], use: Mapping[Key, int]) -> list[Any]:
    return [msgspec.structs.replace(m, usage=use.get(key, 0)) for key, m in members.items()]


def test_the_cover_is_in_no_envelope() -> None:
    result = rendered(*tree("gpu a100 24 !", "gpu a100 4"), options={})
    assert [row for group in queue(result, "t0") for row in group if COVER_FLAVOR in row]
    assert set(cells(spec_of(result, COHORT, "ml"))) == {Pair("nvidia.com/gpu", "a100")}
