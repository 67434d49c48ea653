"""Cells into groups: what Kueue accepts, in an order that depends on nothing but the input."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.groups import Cell, merge
from quota_translator.core.limits import shapes_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Pair
from quota_translator.core.quantity import Quantity
from tests.core.build import budget
from tests.core.rendering import told


def cells(*texts: str, hint: str = "") -> list[Cell]:
    read = [budget(text) for text in texts]
    return [Cell("t", b.pair, b.nominal, b.borrowing_limit, b.lending_limit, hint) for b in read]


GROUPS: list[Any] = [
    pytest.param([], [], id="no cells, no groups"),
    pytest.param(
        ["gpu a100 8 +0", "tpu v5 4 +2 -1"],
        [["gpu a100 8 +0"], ["tpu v5 4 +2 -1"]],
        id="pairs that share nothing stand apart",
    ),
    pytest.param(
        ["gpu a100 8 +0", "gpu l4 4 +0"],
        [["gpu a100 8 +0", "gpu l4 4 +0"]],
        id="one resource on two flavors is one group",
    ),
    pytest.param(
        ["tpu a100 1 +0", "gpu a100 8 +0"],
        [["tpu a100 1 +0", "gpu a100 8 +0"]],
        id="two resources on one flavor are one group, resources by name",
    ),
    pytest.param(
        ["gpu a100 8 +0", "tpu l4 1 +0", "gpu l4 4 +0"],
        [["tpu a100 0 +0", "gpu a100 8 +0", "tpu l4 1 +0", "gpu l4 4 +0"]],
        id="what nobody funded is 0 and borrows nothing",
    ),
    pytest.param(
        ["gpu a100 8", "gpu a100 9"],
        [["gpu a100 8"]],
        id="of two cells on one pair the first counts; an absent limit stays absent",
    ),
]


@pytest.mark.case("A-60", "A-61")
@pytest.mark.parametrize(("texts", "groups"), GROUPS)
def test_groups_are_the_connected_pairs(texts: list[str], groups: list[list[str]]) -> None:
    found = merge(cells(*texts))
    assert told(found) == groups
    for group in found:
        names = [[cell["name"] for cell in flavor["resources"]] for flavor in group["flavors"]]
        assert all(row == group["coveredResources"] for row in names)


def test_a_filler_of_a_cohort_has_no_limits() -> None:
    texts = ["gpu a100 8 +0", "tpu l4 1 +0", "gpu l4 4 +0"]
    assert told(merge(cells(*texts), kind=COHORT)) == [
        ["tpu a100 0", "gpu a100 8 +0", "tpu l4 1 +0", "gpu l4 4 +0"]
    ]


@pytest.mark.case("A-18")
def test_flavors_stand_in_the_given_order_and_groups_after_their_first() -> None:
    texts = ["gpu a100 1", "gpu l4 2", "tpu v5 3", "gpu b200 4", "gpu a30 5"]
    groups = told(merge(cells(*texts), ["v5", "l4", "a100"]))
    # Flavors that the order does not name come last, by name.
    assert groups == [["tpu v5 3"], ["gpu l4 2", "gpu a100 1", "gpu a30 5", "gpu b200 4"]]


def test_a_hint_joins_what_shares_nothing() -> None:
    hinted = cells("gpu a100 8 +0", "tpu v5 4 +0", hint="topology")
    apart = cells("foo l4 1 +0")
    assert told(merge([*hinted, *apart], ["a100", "v5", "l4"])) == [
        ["tpu a100 0 +0", "gpu a100 8 +0", "tpu v5 4 +0", "gpu v5 0 +0"],
        ["foo l4 1 +0"],
    ]


names = st.sampled_from(["r1", "r2", "r3", "r4", "r5"])
places = st.sampled_from(["f1", "f2", "f3", "f4", "f5"])
some_cells = st.lists(
    st.builds(
        Cell,
        node=st.just("t"),
        pair=st.builds(Pair, names, places),
        nominal=st.integers(1, 9).map(Quantity.of),
        borrowing=st.just(Quantity.of(1)),
        hint=st.sampled_from(["", "", "h"]),
    ),
    max_size=12,
    unique_by=lambda cell: cell.pair,
)


@settings(max_examples=100)
@given(
    some_cells, st.lists(places, unique=True), st.sampled_from([CLUSTER_QUEUE, COHORT]), st.data()
)
def test_kueue_accepts_every_merge(
    some: list[Cell], order: list[str], kind: Any, data: st.DataObject
) -> None:
    groups = merge(some, order, kind)
    resources = [name for shape in shapes_of(groups) for name in shape.resources]
    flavors = [name for shape in shapes_of(groups) for name in shape.flavors]
    assert len(resources) == len(set(resources))
    assert len(flavors) == len(set(flavors))
    funded = {
        Pair(cell["name"], flavor["name"]): cell["nominalQuota"]
        for group in groups
        for flavor in group["flavors"]
        for cell in flavor["resources"]
        if cell["nominalQuota"]
    }
    assert funded == {cell.pair: cell.nominal for cell in some}
    assert merge(data.draw(st.permutations(some)), order, kind) == groups
