"""Use per node: Kueue's figures at the teams, sums above them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from quota_translator.core.names import CLUSTER_QUEUE, Key, Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.tree import Tree, grow
from quota_translator.core.usage import (
    NO_USE,
    Use,
    advance_over,
    charges,
    over,
    read_usage,
)
from quota_translator.core.world import Amount, Budget, Clock, Observed, QuotaNode, World

OURS = "quota-translator"
GPU = Pair("nvidia.com/gpu", "a100")
TPU = Pair("google.com/tpu", "v5p")
CPU = Pair("cpu", "quota-translator-cover")
WALL = datetime(2026, 10, 5, 9, 41, 12, tzinfo=UTC)


def q(text: str | int) -> Quantity:
    return Quantity.parse(str(text))


def use(admitted: int, reserved: int, borrowed: int) -> Use:
    return Use(q(admitted), q(reserved), q(borrowed))


def budget(nominal: int, borrowing: int | None = None, pair: Pair = GPU) -> Budget:
    return Budget(*pair, q(nominal), None if borrowing is None else q(borrowing))


def group(name: str, parent: str | None, *budgets: Budget, **rest: Any) -> QuotaNode:
    return QuotaNode(name, "Cohort", parent, budgets, **rest)


def team(name: str, parent: str, *budgets: Budget, **rest: Any) -> QuotaNode:
    return QuotaNode(name, "ClusterQueue", parent, budgets, **rest)


def amount(total: int, borrowed: int = 0) -> Amount:
    return Amount(q(total), q(borrowed))


def queue(
    name: str,
    usage: dict[Pair, Amount] | None,
    reservation: dict[Pair, Amount] | None = None,
    **rest: Any,
) -> Observed:
    values: dict[str, Any] = {"managed_by": OURS, "quota": name} | rest
    return Observed(
        Key(CLUSTER_QUEUE, "", name), usage=usage, reservation=reservation or {}, **values
    )


def world(*queues: Observed, known: bool = True) -> World:
    return World(
        quotas=(),
        live={one.key: one for one in queues},
        known=frozenset({CLUSTER_QUEUE} if known else ()),
    )


def two_teams(nominal_of_group: int = 12) -> Tree:
    return grow(
        (
            group("root", None, budget(128)),
            group("ml", "root", budget(nominal_of_group)),
            team("a", "ml", budget(8)),
            team("b", "ml", budget(4, 4)),
        )
    )


@pytest.mark.case("A-85")
@pytest.mark.parametrize(
    ("usage", "reservation", "expected"),
    [
        pytest.param((40, 8), 56, use(40, 56, 8), id="Kueue's figures are taken as they are"),
        pytest.param((8, 0), 0, use(8, 8, 0), id="reserved is never below admitted"),
        pytest.param((8, 0), None, use(8, 8, 0), id="a pair without a reservation entry"),
        pytest.param(None, 3, use(0, 3, 0), id="reserved and not admitted yet"),
    ],
)
def test_a_team_has_the_figures_of_its_queue(
    usage: tuple[int, int] | None, reservation: int | None, expected: Use
) -> None:
    tree = grow((group("root", None, budget(128)), team("a", "root", budget(48))))
    live = queue(
        "a",
        {GPU: amount(*usage)} if usage else {},
        {} if reservation is None else {GPU: amount(reservation)},
    )

    found = read_usage(tree, world(live), OURS)

    assert found["a"] == {GPU: expected}
    assert found["root"] == {GPU: Use(expected.admitted, expected.reserved, q(0))}


@pytest.mark.case("A-86")
@pytest.mark.parametrize(
    ("nominal", "in_a", "in_b", "expected"),
    [
        pytest.param(12, 0, 8, use(8, 8, 0), id="a loan between siblings is none of the group's"),
        pytest.param(8, 4, 8, use(12, 12, 4), id="12 in a group of 8 is 4 borrowed"),
        pytest.param(12, 8, 4, use(12, 12, 0), id="all used, nothing borrowed"),
    ],
)
def test_a_group_sums_its_teams_and_borrows_beyond_its_own_share(
    nominal: int, in_a: int, in_b: int, expected: Use
) -> None:
    live = world(queue("a", {GPU: amount(in_a)}), queue("b", {GPU: amount(in_b, max(0, in_b - 4))}))

    found = read_usage(two_teams(nominal), live, OURS)

    assert found["ml"] == {GPU: expected}
    assert found["root"][GPU].admitted == expected.admitted
    assert found["root"][GPU].borrowed == q(0)


def test_a_team_that_was_deleted_at_work_counts_with_its_last_figures_until_its_queue_is_gone() -> (
    None
):
    """Kueue counts nothing of a queue in deletion, but the devices are in use all the same."""
    row = {"resourceName": GPU.resource, "resourceFlavor": GPU.flavor, "admitted": "4"}
    leaving = team("b", "ml", budget(8), deleting=True, status={"budgets": [row]})
    members = (
        group("root", None, budget(128)),
        group("ml", "root", budget(24)),
        team("a", "ml", budget(16)),
    )
    tree, idle = grow(members), queue("a", {GPU: amount(2)})
    going = msgspec.structs.replace(queue("b", {}), deleting=True)

    def seen(*live: Observed) -> Any:
        there = msgspec.structs.replace(world(*live), quotas=(*members, leaving))
        return read_usage(tree, there, OURS)

    found = seen(idle, going)
    assert (found["ml"][GPU], found["root"][GPU]) == (use(6, 6, 0), use(6, 6, 0))
    assert found["a"] == {GPU: use(2, 2, 0)}
    assert seen(idle)["ml"] == {GPU: use(2, 2, 0)}, "its queue is gone"
    other = msgspec.structs.replace(going, managed_by="somebody")
    assert seen(idle, other)["ml"] == {GPU: use(2, 2, 0)}


def test_flavors_and_resources_stay_apart() -> None:
    other = Pair(GPU.resource, "h100")
    tree = grow(
        (
            group("root", None, budget(9), budget(9, pair=other), budget(9, pair=TPU)),
            team("a", "root", budget(4), budget(4, pair=other)),
            team("b", "root", budget(4, pair=TPU)),
        )
    )
    live = world(queue("a", {GPU: amount(1), other: amount(2)}), queue("b", {TPU: amount(3)}))

    found = read_usage(tree, live, OURS)["root"]

    assert {pair: use.admitted for pair, use in found.items()} == {
        GPU: q(1),
        other: q(2),
        TPU: q(3),
    }


@pytest.mark.case("A-87")
@pytest.mark.parametrize(
    "absent",
    [
        pytest.param((), id="no queue"),
        pytest.param((queue("b", None),), id="a queue of which Kueue has told nothing yet"),
        pytest.param(
            (queue("b", {GPU: amount(4)}, managed_by=None, quota=None),), id="a foreign queue"
        ),
        pytest.param(
            (queue("b", {GPU: amount(4)}, managed_by="another"),), id="another manager's queue"
        ),
        pytest.param(
            (queue("b-copy", {GPU: amount(4)}, quota="b"),), id="a copy of ours, labels and all"
        ),
    ],
)
def test_a_team_whose_use_is_not_known_is_absent_and_not_zero(absent: tuple[Observed, ...]) -> None:
    found = read_usage(two_teams(), world(queue("a", {GPU: amount(3)}), *absent), OURS)

    assert "b" not in found
    assert found["a"] == {GPU: use(3, 3, 0)}
    assert found["ml"] == {GPU: use(3, 3, 0)}


def test_a_group_is_unknown_while_none_of_its_teams_is_known() -> None:
    assert read_usage(two_teams(), world(), OURS) == {}


def test_a_group_without_teams_uses_nothing() -> None:
    tree = grow((group("root", None, budget(8)), group("empty", "root", budget(4))))

    assert read_usage(tree, world(), OURS) == {"root": {GPU: NO_USE}, "empty": {GPU: NO_USE}}


@pytest.mark.case("A-87")
def test_figures_stay_as_reported_while_queues_cannot_be_read() -> None:
    def row(**figures: Any) -> dict[str, Any]:
        return {"resourceName": GPU.resource, "resourceFlavor": GPU.flavor, **figures}

    told = row(nominal="8", admitted="5", reserved="6", borrowed="1")
    tree = grow(
        (
            group("root", None, budget(32), status={"budgets": [row(admitted="5"), "odd"]}),
            team("a", "root", budget(8), status={"budgets": [told, row(admitted="7")]}),
            team("b", "root", budget(8), status={"budgets": [row(nominal="8")]}),
            team("c", "root", budget(8), status={"budgets": [row(admitted="many")]}),
            team("d", "root", budget(8, pair=TPU), status={"budgets": [told]}),
            team("e", "root", budget(8), status={"budgets": "none"}),
        )
    )

    found = read_usage(tree, world(queue("a", {GPU: amount(1)}), known=False), OURS)

    assert found == {"root": {GPU: use(5, 5, 0)}, "a": {GPU: use(5, 6, 1)}}


@pytest.mark.case("A-88")
def test_only_authored_pairs_have_rows_and_zero_rows_stay() -> None:
    tree = grow(
        (
            group("root", None),
            group("ml", "root", budget(8, pair=TPU)),
            team("a", "ml", budget(8), budget(2, pair=TPU)),
        )
    )
    live = world(queue("a", {GPU: amount(3), CPU: amount(64)}))

    found = read_usage(tree, live, OURS)

    assert found == {"ml": {TPU: NO_USE}, "a": {GPU: use(3, 3, 0), TPU: NO_USE}}


def test_use_of_a_pair_that_the_team_no_longer_budgets_still_counts_above() -> None:
    tree = grow((group("root", None, budget(8)), team("a", "root", budget(2, pair=TPU))))

    found = read_usage(tree, world(queue("a", {GPU: amount(3)})), OURS)

    assert found == {"root": {GPU: use(3, 3, 0)}, "a": {TPU: NO_USE}}


def test_a_loop_of_groups_and_a_team_beneath_a_team_end_well() -> None:
    tree = grow(
        (
            group("x", "y", budget(8)),
            group("y", "x", budget(8)),
            team("a", "x", budget(2)),
            team("b", "a", budget(2)),
        )
    )

    found = read_usage(
        tree, world(queue("a", {GPU: amount(1)}), queue("b", {GPU: amount(1)})), OURS
    )

    assert {name: uses[GPU].admitted for name, uses in found.items()} == {
        "x": q(2),
        "y": q(2),
        "a": q(1),
        "b": q(1),
    }


def test_a_charge_names_its_queue() -> None:
    ours, foreign = queue("a", {GPU: amount(3, 1)}), queue("z", {GPU: amount(9)}, quota="a")

    (charge,) = charges((ours, foreign), OURS)

    assert (charge.node, charge.source, charge.uses) == ("a", ours.key, {GPU: use(3, 3, 1)})


def test_the_parts_of_a_team_are_summed_and_borrow_beyond_their_common_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Teams have one queue today; the sum over several must not wait for the day they have more.
    monkeypatch.setattr("quota_translator.core.usage.is_ours", lambda live, manager: True)
    tree = grow((group("root", None, budget(32)), team("a", "root", budget(8))))
    live = world(
        queue("a", {GPU: amount(6, 0)}, {GPU: amount(7)}),
        queue("a.rest", {GPU: amount(4, 4)}, quota="a"),
    )

    assert read_usage(tree, live, OURS)["a"] == {GPU: use(10, 11, 2)}


@pytest.mark.parametrize(
    ("share", "admitted", "expected"),
    [
        pytest.param(budget(8, 4), 12, 0, id="within what may be borrowed"),
        pytest.param(budget(8, 4), 13, 1, id="beyond it"),
        pytest.param(budget(4), 8, 4, id="a share cut under running work"),
        pytest.param(budget(8), 0, 0, id="idle"),
    ],
)
def test_over_is_what_exceeds_share_and_borrowing_limit(
    share: Budget, admitted: int, expected: int
) -> None:
    assert over(share, use(admitted, admitted, 0)) == q(expected)


def test_over_since_is_set_once_kept_while_unknown_and_forgotten_when_over_ends() -> None:
    tree = grow((group("root", None), team("a", "root", budget(4)), team("b", "root", budget(4))))
    later = Clock(WALL + timedelta(minutes=5), 300.0)
    a, b = ("a", GPU), ("b", GPU)
    too_much, fine = {GPU: use(6, 6, 2)}, {GPU: use(4, 4, 0)}

    first = advance_over(tree, {"a": too_much, "b": fine}, {}, Clock(WALL, 0.0))
    assert first == {a: WALL}
    assert advance_over(tree, {"a": too_much, "b": too_much}, first, later) == {
        a: WALL,
        b: later.wall,
    }
    assert advance_over(tree, {"b": fine}, first, later) == {a: WALL}
    assert advance_over(tree, {"a": fine, "b": fine}, first, later) == {}
    assert advance_over(grow(()), {}, first, later) == {}


def test_figures_do_not_depend_on_the_order_of_objects() -> None:
    queues = [queue("a", {GPU: amount(3)}), queue("b", {GPU: amount(4, 1)})]
    nodes = list(two_teams().nodes.values())

    forward = read_usage(grow(nodes), world(*queues), OURS)
    backward = read_usage(grow(reversed(nodes)), world(*reversed(queues)), OURS)

    assert len(forward) == 4
    assert forward == backward
