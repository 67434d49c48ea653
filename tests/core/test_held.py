"""A pair that leaves a queue stays at 0 until nothing can still be using it."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.held import HOLD_SECONDS
from quota_translator.core.limits import exceeded, shapes_of
from quota_translator.core.names import CLUSTER_QUEUE, COVER_FLAVOR, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.render import Rendering
from quota_translator.core.world import Amount, Memory, Observed, QuotaNode
from tests.core.build import pair, root, team
from tests.core.rendering import (
    as_live,
    flavors,
    queue,
    rendered,
    seen_zero,
    spec_of,
    stands,
)

L4 = pair("gpu l4")
A = Key(CLUSTER_QUEUE, "", "a")
TWO = (root(), team("a", "gpu a100 8", "gpu l4 4", parent="root"))
ONE = (root(), team("a", "gpu a100 8", parent="root"))
AT_ZERO = [["gpu a100 8 +0", "gpu l4 0 +0"]]


def live_of(rendering: Rendering, l4: int = 0, **fields: object) -> Observed:
    return as_live(rendering.desired[A], {L4: l4}, **fields)


@pytest.mark.case("FC-G05")
def test_a_removed_pair_goes_in_two_steps() -> None:
    before = live_of(rendered(*TWO), l4=4)
    first = rendered(*ONE, live=[before], memory=seen_zero([before], Memory(), 10))
    assert queue(first, "a") == AT_ZERO
    assert first.held == {("a", L4): Quantity.of(4)}
    assert first.wake_at is None  # the end of the use is an event of its own

    busy = live_of(first, l4=4, generation=2, active_generation=2)
    memory = seen_zero([busy], Memory(), 20)
    assert queue(rendered(*ONE, live=[busy], memory=memory, steady=60), "a") == AT_ZERO

    idle = live_of(first, generation=2, active_generation=2)
    memory = seen_zero([idle], memory, 61)
    last = rendered(*ONE, live=[idle], memory=memory, steady=61)
    assert queue(last, "a") == [["gpu a100 8 +0"]]
    assert last.held == {}


def test_three_seconds_pass_between_the_zero_and_the_end() -> None:
    zero = live_of(rendered(*ONE, live=[live_of(rendered(*TWO))]), generation=2)
    behind = [zero]  # Kueue speaks of the first generation still
    memory = seen_zero(behind, Memory(), 100)
    waiting = rendered(*ONE, live=behind, memory=memory, steady=100)
    assert queue(waiting, "a") == AT_ZERO
    assert waiting.wake_at is None

    taken = [live_of(waiting, generation=2, active_generation=2)]
    memory = seen_zero(taken, memory, 101)
    early = rendered(*ONE, live=taken, memory=memory, steady=101 + HOLD_SECONDS - 0.1)
    assert queue(early, "a") == AT_ZERO
    assert early.wake_at == 101 + HOLD_SECONDS
    due = rendered(*ONE, live=taken, memory=memory, steady=101 + HOLD_SECONDS)
    assert queue(due, "a") == [["gpu a100 8 +0"]]
    assert due.wake_at is None


def test_a_newer_spec_with_the_same_zero_does_not_start_the_wait_anew() -> None:
    zero = rendered(*ONE, live=[live_of(rendered(*TWO))])
    memory = seen_zero([live_of(zero)], Memory(), 5)
    assert memory.zeroed == {(A, L4): 5}
    memory = seen_zero([live_of(zero, generation=2)], memory, 6)
    assert memory.zeroed == {(A, L4): 5}
    assert seen_zero([live_of(rendered(*TWO))], memory, 7).zeroed == {}


def test_zero_that_may_borrow_is_no_zero() -> None:
    lender = stands(CLUSTER_QUEUE, "a", "gpu l4 0 +2", active=True, active_generation=1)
    unlimited = stands(CLUSTER_QUEUE, "b", "gpu l4 0", active=True, active_generation=1)
    assert seen_zero([lender, unlimited], Memory(), 1).zeroed == {}


@pytest.mark.parametrize("field", ["usage", "reservation"])
def test_what_kueue_has_not_told_is_not_nothing(field: str) -> None:
    zero = live_of(rendered(*ONE, live=[live_of(rendered(*TWO))]))
    zero = msgspec.structs.replace(zero, **{field: None})
    memory = seen_zero([zero], Memory(), 0)
    late = rendered(*ONE, live=[zero], memory=memory, steady=100)
    assert queue(late, "a") == AT_ZERO
    assert late.held == {("a", L4): None}


@pytest.mark.parametrize("field", ["usage", "reservation"])
def test_what_is_reserved_or_admitted_is_in_use(field: str) -> None:
    zero = live_of(rendered(*ONE, live=[live_of(rendered(*TWO))]))
    zero = msgspec.structs.replace(zero, **{field: {L4: Amount(Quantity.of(2), ZERO)}})
    memory = seen_zero([zero], Memory(), 0)
    late = rendered(*ONE, live=[zero], memory=memory, steady=100)
    assert (queue(late, "a"), late.held) == (AT_ZERO, {("a", L4): Quantity.of(2)})


def test_a_pair_whose_flavor_is_gone_goes_at_once() -> None:
    before = live_of(rendered(*TWO), l4=4)
    assert queue(rendered(*ONE, live=[before], flavors=flavors("a100")), "a") == [["gpu a100 8 +0"]]
    # Where the flavors cannot be read, it may well exist.
    assert queue(rendered(*ONE, live=[before], flavors=None), "a") == AT_ZERO


def test_a_queue_of_somebody_else_holds_nothing() -> None:
    foreign = stands(CLUSTER_QUEUE, "a", "gpu l4 4", ours=False)
    assert queue(rendered(*ONE, live=[foreign]), "a") == [["gpu a100 8 +0"]]


def test_what_kueue_would_refuse_is_not_held() -> None:
    """Fifteen pairs that share nothing replaced by fifteen others would be 30 groups."""

    def apart(first: int) -> tuple[QuotaNode, QuotaNode]:
        budgets = [f"r{n} f{n} 1" for n in range(first, first + 15)]
        return root(), team("a", *budgets, parent="root")

    names = flavors(*(f"f{n}" for n in range(30)))
    before = live_of(rendered(*apart(0), flavors=names))
    after = rendered(*apart(15), live=[before], flavors=names)
    assert len(queue(after, "a")) == 15
    assert after.held == {}


# --- the cover --------------------------------------------------------------------------------

COVERED = {"cover": True, "cover_resources": {"cpu": Quantity.of(16)}}


def narrow(*nodes: QuotaNode, live: Iterable[Observed] = (), **fields: object) -> Rendering:
    return rendered(*nodes, live=live, **({"options": COVERED} | fields))  # type: ignore[arg-type]


def test_the_cover_that_is_turned_off_goes_at_once() -> None:
    """At 0 it would turn away every pod that asks for cpu."""
    before = as_live(narrow(*ONE).desired[A], {Pair("cpu", COVER_FLAVOR): 5})
    off = rendered(*ONE, live=[before], options=COVERED | {"cover": False})
    assert queue(off, "a") == [["gpu a100 8 +0"]]


def test_a_topology_that_appears_takes_the_cover_along_at_once() -> None:
    before = as_live(narrow(*ONE).desired[A], {Pair("cpu", COVER_FLAVOR): 5})
    after = narrow(*ONE, live=[before], flavors=flavors("a100", topology=["a100"]))
    assert queue(after, "a") == [["cpu a100 16", "gpu a100 8 +0"]]
    back = narrow(*ONE, live=[as_live(after.desired[A], {Pair("cpu", "a100"): 5})])
    assert queue(back, "a") == [["gpu a100 8 +0"], [f"cpu {COVER_FLAVOR} 16"]]


def test_a_covered_resource_that_was_budgeted_goes_back_to_the_cover_at_once() -> None:
    """Held at 0, it would tie the two groups, and no flavor would have both cpu and gpu."""
    budgeted = (root(), team("a", "gpu a100 8", "cpu a100 4", parent="root"))
    before = as_live(narrow(*budgeted).desired[A], {Pair("cpu", "a100"): 4})
    assert queue(narrow(*ONE, live=[before]), "a") == [
        ["gpu a100 8 +0"],
        [f"cpu {COVER_FLAVOR} 16"],
    ]


def test_a_covered_resource_that_is_budgeted_still_is_held_as_any_other() -> None:
    budgeted = (root(), team("a", "cpu a100 8", "cpu l4 4", parent="root"))
    before = as_live(narrow(*budgeted).desired[A], {Pair("cpu", "l4"): 4})
    fewer = (root(), team("a", "cpu a100 8", parent="root"))
    assert queue(narrow(*fewer, live=[before]), "a") == [["cpu a100 8 +0", "cpu l4 0 +0"]]


def test_a_flavor_without_topology_does_not_stay_among_those_with_one() -> None:
    """Kueue places by topology unasked only where every flavor of the queue has one."""
    before = as_live(rendered(*TWO).desired[A], {L4: 4})
    names = flavors("a100", "l4", topology=["a100"])
    assert queue(rendered(*ONE, live=[before], flavors=names), "a") == [["gpu a100 8 +0"]]
    # The other way around it harms nobody.
    names = flavors("a100", "l4", topology=["l4"])
    assert queue(rendered(*ONE, live=[before], flavors=names), "a") == AT_ZERO


def test_a_held_flavor_gets_no_cover() -> None:
    names = flavors("a100", "l4", topology=["a100", "l4"])
    before = as_live(narrow(*TWO, flavors=names).desired[A], {L4: 4})
    after = narrow(*ONE, live=[before], flavors=names)
    assert queue(after, "a") == [["cpu a100 16", "gpu a100 8 +0", "cpu l4 0 +0", "gpu l4 0 +0"]]


# --- any history ------------------------------------------------------------------------------

RESOURCES, FLAVORS = ("gpu", "rdma", "cpu"), ("a100", "h100", "l4")
budgets = st.lists(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(RESOURCES),
        st.sampled_from(FLAVORS),
        st.integers(0, 4),
    ),
    max_size=5,
    unique_by=lambda text: tuple(text.split()[:2]),
)
subsets = st.sets(st.sampled_from(FLAVORS), max_size=2)
states = st.tuples(budgets, subsets, subsets, subsets, st.booleans())


@settings(max_examples=60)
@given(st.lists(states, min_size=1, max_size=4), st.data())
def test_any_history_stays_legal_and_ends_in_the_same_queue(
    history: list[tuple[list[str], set[str], set[str], set[str], bool]], data: st.DataObject
) -> None:
    live: list[Observed] = []
    memory, steady, result = Memory(), 0.0, Rendering()
    for texts, missing, topology, deleting, cover in [*history, *[history[-1]] * 2]:
        steady += 10
        nodes = (root(), team("a", *texts, parent="root"))
        state = {
            "flavors": flavors(
                *(name for name in FLAVORS if name not in missing),
                topology=topology,
                deleting=deleting,
            ),
            "options": COVERED | {"cover": cover},
        }
        memory = seen_zero(live, memory, steady)
        result = narrow(*nodes, live=live, memory=memory, steady=steady, **state)
        assert_legal(result)
        pairs = [Pair(name, flavor) for name in RESOURCES for flavor in FLAVORS]
        use = data.draw(st.dictionaries(st.sampled_from(pairs), st.integers(0, 2), max_size=3))
        live = [as_live(result.desired[A], use)]
    for later in (10, 20, 30):
        idle = [as_live(result.desired[A])]
        memory = seen_zero(idle, memory, steady + later)
        result = narrow(*nodes, live=idle, memory=memory, steady=steady + later, **state)
        assert_legal(result)
    assert result.held == {}
    assert queue(result, "a") == queue(narrow(*nodes, **state), "a")


def assert_legal(result: Rendering) -> None:
    shapes = shapes_of(spec_of(result, CLUSTER_QUEUE, "a").get("resourceGroups", []))
    resources = [name for shape in shapes for name in shape.resources]
    names = [name for shape in shapes for name in shape.flavors]
    assert len(resources) == len(set(resources))
    assert len(names) == len(set(names))
    assert exceeded(shapes) == ()
