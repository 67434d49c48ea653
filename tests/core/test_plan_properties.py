"""Whatever the tree, the frozen nodes, and what stood in Kueue before: planning keeps its promises.

Every example runs the real renderer and the real planner pass after pass, with writes in any order,
a Kueue that lags behind, passes that are cut short and restarts that forget everything.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from quota_translator.core.kueue import is_ours, parent_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key, Kind
from quota_translator.core.tree import grow
from quota_translator.core.world import Observed, QuotaNode
from tests.core.build import node, root, team
from tests.core.kueueworld import KueueWorld, Promises
from tests.core.rendering import MANAGER, stands

GROUPS = ("a", "b", "c")
TEAMS = ("t", "u", "v", "w")
PAIRS = ("gpu a100", "gpu h100")
ENOUGH = 60  # passes; far more than any of these needs

small = st.integers(0, 5)
seeds = st.integers(0, 2**20)  # of the order of writes, of Kueue's delays, and of restarts


@st.composite
def trees(draw: Any, like: tuple[QuotaNode, ...] = ()) -> tuple[QuotaNode, ...]:
    """A tree in which every budget just covers what stands beneath it, or a little more.

    `like` another: most nodes keep their parent, so that it reads as an edit of that one.
    """
    former = {one.name: one for one in like}
    groups = draw(st.permutations(GROUPS))
    if not like or draw(st.booleans()):
        groups = groups[: draw(st.integers(0, len(GROUPS)))]
    else:  # parents before children, as they were
        tree = grow(like)
        groups = [name for name in tree.order if name in GROUPS]
    parents: dict[str, str] = {}
    for name in (*groups, *TEAMS):
        above = ["root", *(parents.keys() - set(TEAMS))]
        stays = name in former and former[name].parent in above and draw(st.integers(0, 3)) > 0
        parents[name] = str(former[name].parent if stays else draw(st.sampled_from(sorted(above))))
    promised = {(name, pair): 0 for name in ("root", *groups) for pair in PAIRS}
    nodes = []
    for name in TEAMS:
        if draw(st.integers(0, 3)) == 0:
            continue
        budgets = []
        for pair in draw(st.sampled_from(((PAIRS[0],), (PAIRS[0],), PAIRS, ()))):
            share = draw(small)
            budgets.append(f"{pair} {share} +{draw(small)}")
            promised[parents[name], pair] += share
        nodes.append(team(name, *budgets, parent=parents[name]))
    for name in reversed(groups):
        budgets = []
        for pair in PAIRS:
            share = promised[name, pair]
            if draw(st.integers(0, 3)) > 0:
                share += draw(st.sampled_from((0, 0, 1, 3)))
                enforced = f" +{draw(small)} !" if draw(st.integers(0, 3)) > 0 else ""
                budgets.append(f"{pair} {share}{enforced}")
            promised[parents[name], pair] += share
        nodes.append(node(name, *budgets, parent=parents[name]))
    top = [f"{pair} {promised['root', pair]}" for pair in PAIRS if draw(st.booleans())]
    return (root(*top), *nodes)


@st.composite
def edits(draw: Any) -> tuple[tuple[QuotaNode, ...], tuple[QuotaNode, ...]]:
    """A tree, and what it is edited to: in some nodes, or two nodes change places."""
    first = draw(trees())
    if draw(st.integers(0, 2)) > 0:
        return first, draw(trees(like=first))
    one, other = draw(st.permutations(draw(st.sampled_from((GROUPS, TEAMS)))))[:2]
    swap = {one: other, other: one}
    return first, tuple(
        structs.replace(
            former,
            name=swap.get(former.name, former.name),
            parent=swap.get(former.parent or "", former.parent),
        )
        for former in first
    )


@st.composite
def objects(draw: Any, ours_only: bool = False) -> list[Observed]:
    """Anything that may stand in Kueue: in loops, beneath nothing, of strangers, on its way out."""
    found = []
    places = ("root", *GROUPS, "gone", None)
    standing: tuple[tuple[Kind, tuple[str, ...]], ...] = (
        (COHORT, ("root", *GROUPS, "old")),
        (CLUSTER_QUEUE, (*TEAMS, "past")),
    )
    for kind, names in standing:
        for name in names:
            if not draw(st.booleans()):
                continue
            parent = draw(st.sampled_from(places))
            budgets = []
            for pair in draw(st.lists(st.sampled_from(PAIRS), unique=True)):
                limit = f" +{draw(small)}" if parent and draw(st.booleans()) else ""
                budgets.append(f"{pair} {draw(small)}{limit}")
            ours = ours_only or draw(st.integers(0, 5)) > 0
            generation = draw(st.integers(1, 3))
            found.append(
                stands(
                    kind,
                    name,
                    *budgets,
                    parent=parent,
                    ours=ours,
                    generation=generation,
                    uid=f"{kind}/{name}",
                    active_generation=generation if kind == CLUSTER_QUEUE else 0,
                    deleting=not ours_only and draw(st.integers(0, 11)) == 0,
                )
            )
    return found


def beneath(nodes: Iterable[QuotaNode], tops: Iterable[str]) -> set[str]:
    tree = grow(nodes)
    return {name for top in tops for name in tree.subtree(top)}


def run(
    world: KueueWorld,
    nodes: tuple[QuotaNode, ...],
    frozen: Iterable[str] = (),
    trouble: bool = True,
) -> None:
    """Pass after pass until there is nothing to do, the promises being watched at every step."""
    promises = Promises(world, grow(nodes))
    for number in range(ENOUGH):
        random = world.random
        cut = trouble and random.random() < 0.3
        planned = world.one_pass(nodes, frozen, cut=cut)
        if trouble and random.random() < 0.2 and number < ENOUGH // 2:
            world.restart()
        elif planned.actions:
            world.wait(random.choice((0.0, 0.4, 1.0)), queues=random.random() < 0.5)
        elif world.behind() or planned.wake_at is not None:
            world.wait()
        else:
            promises.expect_reported(*world.look(nodes, frozen)[1:])
            return
    raise AssertionError(f"not done after {ENOUGH} passes: {world.look(nodes, frozen)[2]}")


def expect_done(world: KueueWorld, nodes: tuple[QuotaNode, ...]) -> None:
    """Exactly what the tree wants stands in the store, and there is nothing left to plan."""
    _, rendering, planned = world.look(nodes)
    assert planned.actions == ()
    assert planned.waiting == {}
    assert planned.held == {}
    assert planned.wake_at is None
    assert {key: seen.spec for key, seen in world.store.items()} == {
        key: wanted.spec for key, wanted in rendering.desired.items()
    }


@given(trees(), objects(ours_only=True), seeds)
@settings(max_examples=60)
def test_any_live_state_of_ours_becomes_what_the_tree_wants(
    nodes: tuple[QuotaNode, ...], live: list[Observed], seed: int
) -> None:
    world = KueueWorld(live, Random(seed))
    run(world, nodes)
    expect_done(world, nodes)


@given(edits(), st.booleans(), seeds)
@settings(max_examples=60)
def test_an_edit_also_in_the_middle_of_another_is_carried_out(
    both: tuple[tuple[QuotaNode, ...], tuple[QuotaNode, ...]], whole: bool, seed: int
) -> None:
    first, second = both
    world = KueueWorld((), Random(seed))
    if whole:
        run(world, first)
    else:
        for _ in range(world.random.randint(1, 4)):
            world.one_pass(first, cut=world.random.random() < 0.5)
        world.wait()
    run(world, second)
    expect_done(world, second)


@given(
    trees(),
    objects(),
    st.sets(st.sampled_from((*GROUPS, *TEAMS)), max_size=2),
    seeds,
)
@settings(max_examples=80)
@pytest.mark.case("A-68")
def test_frozen_and_foreign_objects_break_no_promise_and_stop_only_what_hangs_on_them(
    nodes: tuple[QuotaNode, ...], live: list[Observed], tops: set[str], seed: int
) -> None:
    world = KueueWorld(live, Random(seed))
    frozen = beneath(nodes, tops)
    untouchable = {
        seen.key: seen
        for seen in live
        if seen.quota in frozen or seen.deleting or not is_ours(seen, MANAGER)
    }
    run(world, nodes, frozen)
    for key, seen in untouchable.items():
        assert world.store[key].spec == seen.spec
    _, rendering, planned = world.look(nodes, frozen)
    assert planned.actions == ()
    for key, wanted in rendering.desired.items():
        if key not in world.store:
            assert key in planned.waiting, f"{key} is missing and nothing is said"
        elif world.store[key].spec != wanted.spec and key not in untouchable:
            assert key in planned.waiting, f"{key} is not as wanted and nothing is said"
    for key in set(world.store) - set(rendering.desired) - set(untouchable):
        expect_held(world, key, untouchable)


@given(edits(), st.sets(st.sampled_from((*GROUPS, *TEAMS)), max_size=2), seeds)
@settings(max_examples=60)
def test_an_edit_around_frozen_nodes_breaks_no_promise(
    both: tuple[tuple[QuotaNode, ...], tuple[QuotaNode, ...]], tops: set[str], seed: int
) -> None:
    first, second = both
    world = KueueWorld((), Random(seed))
    run(world, first)
    frozen = beneath(second, tops)
    before = {key: seen.spec for key, seen in world.store.items() if seen.quota in frozen}
    run(world, second, frozen)
    assert {key: world.store[key].spec for key in before} == before
    _, rendering, planned = world.look(second, frozen)
    for key, wanted in rendering.desired.items():
        if key not in world.store or world.store[key].spec != wanted.spec:
            assert key in planned.waiting, f"{key} is not as wanted and nothing is said"
    # What waited for the frozen goes on when they thaw: nobody waits for one who waits for it.
    run(world, second)
    expect_done(world, second)


def expect_held(world: KueueWorld, key: Key, untouchable: dict[Key, Observed]) -> None:
    """Something of ours that nobody wants is left: only because something else names it."""
    assert key.kind == COHORT, f"{key} is left"
    members = [other for other, seen in world.store.items() if parent_of(seen) == key.name]
    assert members, f"{key} is left and nothing names it"
