"""Kueue's quota arithmetic: examples that were run on Kueue 0.17 and 0.19, and what holds always.

Members are written `cohort NAME < PARENT N +BORROWING -LENDING` and `queue NAME < PARENT ... @USE`.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.arithmetic import (
    Member,
    QuotaTree,
    binding,
    build,
    charged,
    from_live,
    solve,
    subtree_bound,
    units,
)
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Amount
from tests.core.build import pair
from tests.core.rendering import stands

GPU = pair("gpu a100")


def member(text: str) -> Member:
    kind, name, *rest = text.split()
    parent = rest[rest.index("<") + 1] if "<" in rest else None
    marks = {word[0]: int(word[1:]) for word in rest if word[0] in "+-@" and word[1:].isdigit()}
    nominal = next((int(word) for word in rest if word.isdigit()), 0)
    return Member(
        COHORT if kind == "cohort" else CLUSTER_QUEUE,
        name,
        parent,
        nominal,
        marks.get("+"),
        marks.get("-"),
        marks.get("@", 0),
    )


def tree(*texts: str) -> QuotaTree:
    return build(member(text) for text in texts)


def queue(name: str) -> Key:
    return Key(CLUSTER_QUEUE, "", name)


def cohort(name: str) -> Key:
    return Key(COHORT, "", name)


B1 = ["cohort root 100", "cohort mid < root 0 +0", "queue A < mid 4 @8", "queue B < mid 4"]
B3 = [
    "cohort root 100",
    "cohort mid < root 0 +5 -0",
    "queue A < mid 4",
    "queue B < mid 4",
    "queue Z < root 0",
]
B4 = [
    "cohort root 10",
    "cohort t1 < root 0 +6",
    "cohort t2 < root 0 +8",
    "queue A1 < t1 0 +4 @4",
    "queue A2 < t1 0 +4 @1",
    "queue B < t2 0 +9 @4",
]
G1 = ["cohort root 4", "queue A < root 3 +3 -0", "queue B < root 3 +5 @7"]
G2 = [
    "cohort root 100",
    "cohort org < root 0 +0",
    "queue A < org 6 +0 -0 @6",
    "queue B < org 8 +0 -0 @4",
]
L1 = [
    "cohort root",
    "cohort t1 < root 10 +0 -4",
    "cohort t2 < root 10",
    "queue A < t1 0",
    "queue B < t2 0 @14",
]
E1 = [
    "cohort root",
    "cohort g < root 4 +4",
    "queue a < g 8 +100",
    "queue b < g 8 +0",
    "queue z < root 10 +100",
]
E1_FULL = [*E1[:2], "queue a < g 8 +100 @24", *E1[3:]]

EXAMPLES = [
    ("a1: a queue reaches its own limit",
     ["cohort root 10", "queue A < root 0 +6", "queue B < root 0 +8"],
     {"A": (6, 6), "B": (8, 8)}),
    ("a2: own limit used up, the other has the rest of the pool",
     ["cohort root 10", "queue A < root 0 +6 @6", "queue B < root 0 +8"],
     {"A": (0, 6), "B": (4, 8)}),
    ("a3: the pool is used up",
     ["cohort root 10", "queue A < root 0 +6 @5", "queue B < root 0 +8 @5"],
     {"A": (0, 6), "B": (0, 8)}),
    ("b1: a subtree without borrowing has the sum of its quotas", B1, {"A": (0, 8), "B": (0, 8)}),
    ("b2: a Cohort without the pair limits nothing",
     ["cohort root 100", "cohort mid < root", "queue A < mid 0"], {"A": (100, 100)}),
    ("b3: a subtree that lends nothing", B3, {"A": (13, 13), "B": (13, 13), "Z": (100, 100)}),
    ("b4: limits of Cohorts bind before the queues' own", B4,
     {"A1": (0, 4), "A2": (1, 4), "B": (1, 8)}),
    ("g1: a quota that is not lent is always there", G1, {"A": (3, 6), "B": (0, 7)}),
    ("g2: a limit below the quotas beneath holds nobody", G2, {"A": (0, 6), "B": (4, 8)}),
    ("l1: a Cohort keeps what it does not lend", L1, {"A": (6, 10), "B": (0, 14)}),
    ("e1: an envelope, idle", E1, {"a": (24, 24), "b": (8, 8), "z": (30, 30)}),
    ("e1: an envelope, full", E1_FULL, {"a": (0, 24), "b": (0, 8), "z": (6, 30)}),
    ("2.4: a lowered limit blocks its own queue only",
     ["cohort root 10", "queue A < root 0 +2 @6", "queue B < root 0 +8"],
     {"A": (0, 2), "B": (4, 8)}),
    ("2.4: an overdraft takes even what is not lent",
     ["cohort root", "queue A < root 2 @8", "queue B < root 4 +0 -0"],
     {"A": (0, 2), "B": (0, 4)}),
    ("2.5: a Cohort that does not exist is an unlimited root",
     ["queue A < gone 2", "queue B < gone 3 +1"], {"A": (5, 5), "B": (4, 4)}),
    ("2.7: a pair that only the queues list is shared all the same",
     ["cohort root", "queue A < root 5", "queue B < root 0 +9"], {"A": (5, 5), "B": (5, 5)}),
    ("a queue in no Cohort has its quota", ["queue A 5 @2"], {"A": (3, 5)}),
    ("an overdrawn queue in no Cohort has nothing", ["queue A 5 @7"], {"A": (0, 5)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "expected"), [case[1:] for case in EXAMPLES], ids=[case[0] for case in EXAMPLES]
)
def test_worked_examples(texts: list[str], expected: dict[str, tuple[int, int]]) -> None:
    figures = solve(tree(*texts))
    found = {
        name: (figures[queue(name)].available, figures[queue(name)].potential) for name in expected
    }
    assert found == expected


def test_what_stays_local_is_not_in_the_quota_above() -> None:
    figures = solve(tree(*L1))
    assert figures[cohort("root")].subtree == 14
    assert (figures[cohort("t1")].subtree, figures[cohort("t1")].local) == (10, 6)


@pytest.mark.parametrize(
    ("texts", "top", "bound"),
    [
        (B1, cohort("root"), 108),
        (B1, cohort("mid"), 8),
        (B3, cohort("mid"), 13),
        (G2, cohort("org"), 14),
        (E1, cohort("g"), 24),
        (E1, queue("b"), 8),
        (["cohort root 1", "cohort g < root 5"], cohort("g"), None),
    ],
)
def test_bound_of_a_subtree(texts: list[str], top: Key, bound: int | None) -> None:
    assert subtree_bound(tree(*texts), top) == bound


@pytest.mark.parametrize(
    ("texts", "of", "binds"),
    [
        (B4, queue("B"), cohort("t2")),
        (B4, queue("A1"), queue("A1")),
        (E1, queue("a"), cohort("g")),
        (E1, queue("b"), queue("b")),
        (E1, queue("z"), cohort("root")),
        (B3, queue("Z"), cohort("root")),
    ],
)
def test_which_limit_binds(texts: list[str], of: Key, binds: Key) -> None:
    grown = tree(*texts)
    assert binding(grown, solve(grown), of) == binds


def test_a_loop_of_cohorts_has_no_figures_and_ends() -> None:
    looped = tree(
        "cohort a < b 4", "cohort b < a 4", "queue A < a 1", "cohort c < c 2", "queue B < root 3"
    )
    assert set(solve(looped)) == {cohort("root"), queue("B")}
    assert subtree_bound(looped, cohort("a")) is None


@pytest.mark.parametrize(
    ("resource", "amount", "counted", "as_text"),
    [
        ("cpu", "1500m", 1500, "1500m"),
        ("cpu", "100u", 1, "1m"),
        ("nvidia.com/gpu", "1500m", 2, "2"),
        ("nvidia.com/gpu", "8", 8, "8"),
        ("memory", "1Gi", 2**30, "1Gi"),
    ],
)
def test_kueue_counts_in_whole_numbers_and_rounds_up(
    resource: str, amount: str, counted: int, as_text: str
) -> None:
    read = Quantity.parse(amount)
    assert units(resource, read) == counted
    assert charged(resource, read).canonical() == as_text


def test_from_live_objects() -> None:
    reserved = {GPU: Amount(Quantity.of(3), Quantity.of(1))}
    live = [
        stands(COHORT, "ml", "gpu a100 4 +2", parent="root"),
        stands(CLUSTER_QUEUE, "ml", "gpu a100 2 +1", parent="ml", reservation=reserved),
        stands(CLUSTER_QUEUE, "other", "gpu l4 7", parent="ml", ours=False),
    ]
    grown = from_live({one.key: one for one in live}, GPU)
    assert grown.members[cohort("ml")] == member("cohort ml < root 4 +2")
    assert grown.members[queue("ml")] == member("queue ml < ml 2 +1 @3")
    assert grown.members[queue("other")] == member("queue other < ml")
    assert grown.members[cohort("root")] == member("cohort root")


# --- what holds in every tree -----------------------------------------------------------------

small = st.integers(0, 9)
limit = st.none() | small


@st.composite
def trees(draw: st.DrawFn) -> list[Member]:
    """Up to five Cohorts beneath a root, and up to five queues anywhere."""
    cohorts = [Member(COHORT, "c0", None, draw(small))]
    for number in range(1, draw(st.integers(1, 5))):
        above = draw(st.sampled_from(cohorts)).name
        cohorts.append(Member(COHORT, f"c{number}", above, draw(small), draw(limit), draw(limit)))
    queues = []
    for number in range(draw(st.integers(1, 5))):
        above = draw(st.sampled_from(cohorts)).name
        nominal = draw(small)
        lending = draw(st.none() | st.integers(0, nominal))
        queues.append(Member(CLUSTER_QUEUE, f"q{number}", above, nominal, draw(limit), lending))
    return [*cohorts, *queues]


def with_use(members: list[Member], use: dict[str, int]) -> QuotaTree:
    return build(
        Member(m.kind, m.name, m.parent, m.nominal, m.borrowing, m.lending, use.get(m.name, 0))
        for m in members
    )


def used_beneath(grown: QuotaTree, key: Key) -> int:
    beneath = sum(used_beneath(grown, child) for child in grown.beneath(key))
    return grown.members[key].usage + beneath


@settings(max_examples=100)
@given(trees())
def test_idle_everything_that_is_possible_is_available(members: list[Member]) -> None:
    for figures in solve(build(members)).values():
        assert figures.available == figures.potential


@settings(max_examples=80)
@given(trees(), st.data())
def test_admitting_what_is_available_exceeds_no_bound(
    members: list[Member], data: st.DataObject
) -> None:
    names = [m.name for m in members if m.kind == CLUSTER_QUEUE]
    use: dict[str, int] = {}
    for name in data.draw(st.lists(st.sampled_from(names), max_size=8)):
        figures = solve(with_use(members, use))[queue(name)]
        more = data.draw(st.integers(0, figures.available))
        assert use.get(name, 0) + more <= figures.potential
        use[name] = use.get(name, 0) + more
    grown = with_use(members, use)
    for key in grown.members:
        bound = subtree_bound(grown, key)
        assert bound is None or used_beneath(grown, key) <= bound
