"""Pools that are autoscaled: what root declares of them counts where it is more than was seen."""

from typing import Any

import msgspec
import pytest

from quota_translator.core.admission import Review, decide
from quota_translator.core.ceilings import Ceiling, declared
from quota_translator.core.quantity import Quantity
from quota_translator.core.reading import read_quota
from quota_translator.core.rootstatus import capacity_from_status, capacity_rows
from quota_translator.core.sums import promisers
from quota_translator.core.tree import grow
from quota_translator.core.verdict import Context
from quota_translator.core.world import Expected, QuotaNode
from tests.core.build import FLAVORS, identities, judged, node, pair, root, rows, team

GPU = pair("gpu a100")


def vouched(amount: str, what: str = "gpu a100", **fields: Any) -> QuotaNode:
    return root(expected=(Expected(pair(what), Quantity.parse(amount)),), **fields)


@pytest.mark.case("FC-A08")
def test_a_pool_that_is_empty_when_we_first_look_is_as_large_as_it_is_declared() -> None:
    batch = team("batch", gpu="32")
    never = rows("gpu a100 never")
    verdict = judged(root(), batch, capacity=never, flavors=FLAVORS)
    assert "was never seen on any node" in verdict.frozen["batch"].message
    assert judged(vouched("32"), batch, capacity=never, flavors=FLAVORS).violations == ()
    (row,) = capacity_rows(never, declared(vouched("32")))
    assert (row["declared"], row["installed"], row["everSeen"]) == ("32", "0", False)
    assert capacity_from_status({"capacity": [row]}) == never


@pytest.mark.parametrize(
    ("mark", "said", "share", "words"),
    [
        pytest.param(8, "32", "32", "", id="declared is more"),
        pytest.param(
            8, "32", "33", "the declared capacity is 32: lower it by 1", id="and too much"
        ),
        pytest.param(40, "32", "40", "", id="seen is more"),
        pytest.param(40, "32", "41", "peak capacity is 40: lower it by 1", id="and too much too"),
        pytest.param(0, "0", "1", "the declared capacity is 0: lower it by 1", id="none declared"),
    ],
)
def test_the_larger_of_what_was_seen_and_what_is_declared_counts(
    mark: int, said: str, share: str, words: str
) -> None:
    verdict = judged(vouched(said), team("a", gpu=share), capacity=rows(gpu=mark), flavors=FLAVORS)
    assert identities(verdict) == ([("a", "CapacityExceeded", str(GPU))] if words else [])
    assert words in (verdict.frozen["a"].message if words else "")


def test_with_measuring_off_nothing_is_judged_and_another_pair_is_not_vouched_for() -> None:
    nodes = (vouched("8", "gpu h100"), team("a", gpu="9"))
    assert judged(*nodes, capacity=None, flavors=FLAVORS).violations == ()
    assert judged(*nodes, capacity=rows(gpu=8), flavors=FLAVORS).frozen.keys() == {"a"}


def test_a_resource_that_nobody_measures_can_be_declared() -> None:
    efa = team("a", "efa a100 4")
    alone = judged(root(), efa, capacity=rows(gpu=8), flavors=FLAVORS)
    assert "not in capacity.resources" in alone.frozen["a"].message
    known = judged(vouched("4", "efa a100"), efa, capacity=rows(gpu=8), flavors=FLAVORS)
    assert known.violations == ()


@pytest.mark.case("FC-F07", "A-43")
def test_the_sum_of_promises_is_held_to_the_declared_capacity_too() -> None:
    nodes = (node("ml", gpu="30"), team("web", gpu="12"), team("idle", gpu="0"))
    plain = judged(root(), *nodes, capacity=rows(gpu=32), flavors=FLAVORS)
    assert "the high-water mark is 32: lower shares by 10" in plain.oversubscribed[0].message
    assert judged(vouched("42"), *nodes, capacity=rows(gpu=32), flavors=FLAVORS) == judged()
    (only,) = judged(vouched("40"), *nodes, capacity=rows(gpu=32), flavors=FLAVORS).oversubscribed
    assert only.message == (
        "the tree promises 42 of nvidia.com/gpu on a100, the declared capacity is 40: lower shares "
        "by 2, add hardware, or give root a budget"
    )


def test_promisers_are_found_through_groups_that_state_nothing_and_not_where_root_does() -> None:
    nodes = (node("ml"), *(team(f"t{i}", parent="ml", gpu=str(10 + i)) for i in range(3)))
    found = promisers(grow((root(), *nodes, team("none", gpu="0"))), GPU)
    assert [(name, str(amount)) for name, amount in found] == [
        ("t2", "12"),
        ("t1", "11"),
        ("t0", "10"),
    ]
    assert promisers(grow((root(gpu="90"), *nodes)), GPU) == ()


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        (("a/b", "f", None), "quantity", "is required"),
        (("a/b", "f", "x"), "quantity", "x"),
        (("a/b", "f", -1), "quantity", "negative"),
        (("a/b", "f", "0.5"), "quantity", "whole"),
        (("a/b", "F", 1), "resourceFlavor", "F"),
        (("", "f", 1), "resourceName", "resource"),
        (("a/b", "quota-translator-cover", 1), "resourceFlavor", "the controller's own"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_told_with_its_path(
    given: tuple[str, str, Any], field: str, words: str
) -> None:
    entry = dict(zip(("resourceName", "resourceFlavor", "quantity"), given, strict=True))
    raw = {"metadata": {"name": "root"}, "spec": {"role": "Cohort", "expectedCapacity": [entry]}}
    (violation,) = judged(read_quota(raw), capacity=rows(gpu=8), flavors=FLAVORS).violations
    assert violation.field == f"spec.expectedCapacity[0].{field}"
    assert words in violation.message


def test_a_pair_is_declared_once_and_on_root() -> None:
    one = Expected(GPU, Quantity.of(8))
    twice = root(expected=(one, msgspec.structs.replace(one, index=1)))
    (violation,) = judged(twice).violations
    assert "repeats the pair of spec.expectedCapacity[0]" in violation.message
    elsewhere = node("ml", expected=(one,))
    assert identities(judged(root(), elsewhere)) == [("ml", "NodeKindInvalid", "expected")]


# --- the webhook ----------------------------------------------------------------------------------

CONTEXT = Context(capacity=rows(gpu=8), flavors=FLAVORS)
TREE = (vouched("32"), node("ml", gpu="32"), team("a", parent="ml", gpu="16"))


def said(incoming: QuotaNode, *live: QuotaNode) -> tuple[str, ...]:
    before = next((one for one in live if one.name == incoming.name), None)
    review = Review("UPDATE" if before else "CREATE", incoming, before)
    found = decide(live, review, CONTEXT)
    assert found.allowed
    return found.warnings


def test_a_write_within_what_is_declared_is_not_warned_of() -> None:
    assert said(team("b", parent="ml", gpu="16"), *TREE) == ()
    (warning,) = said(node("web", gpu="33"), *TREE[:2])[:1]
    assert "the declared capacity is 32: the node is frozen until it is lowered by 1" in warning


def test_declaring_less_than_nodes_rely_on_is_warned_of() -> None:
    told = said(vouched("20"), *TREE)
    assert any('"ml" is frozen by this' in one and "capacity is 20" in one for one in told)
    assert said(vouched("40"), *TREE) == ()


def test_what_nobody_has_seen_but_root_vouches_for_is_known() -> None:
    declared_only = Ceiling(None, Quantity.of(4))
    assert (declared_only.is_known, declared_only.amount) == (True, Quantity.of(4))
    assert not Ceiling(rows("gpu a100 never")[GPU]).is_known
    assert Ceiling().amount == Quantity.of(0)
