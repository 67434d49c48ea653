"""Measuring: every device counts once, for one flavor or for none."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quota_translator.core.capacity import (
    MAX_UNATTRIBUTED,
    PairReading,
    Reading,
    Unattributed,
    measure,
)
from quota_translator.core.names import COVER_FLAVOR, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.wire import WireNode, to_node
from quota_translator.core.world import Flavor, Node

GPU, TPU, AMD = "nvidia.com/gpu", "google.com/tpu", "amd.com/gpu"
A100 = Flavor("a100", node_labels={"product": "A100"})
H100 = Flavor("h100", node_labels={"product": "H100"})


def quantity(text: str | None) -> Quantity | None:
    return None if text is None else Quantity.parse(text)


def node(
    name: str = "n1",
    product: str | None = "A100",
    *,
    has: dict[str, str | None] | None = None,
    offers: dict[str, str | None] | None = None,
    labels: dict[str, str] | None = None,
    **fields: Any,
) -> Node:
    """A Ready node with 8 GPUs unless told otherwise; `offers` is allocatable, `has` capacity."""
    offers = {GPU: "8"} if offers is None else offers
    return Node(
        name=name,
        labels=(labels or {}) | ({"product": product} if product else {}),
        allocatable={name: quantity(text) for name, text in offers.items()},
        capacity={name: quantity(text) for name, text in (offers if has is None else has).items()},
        **fields,
    )


def read(
    nodes: list[Node],
    flavors: list[Flavor] | None = None,
    resources: tuple[str, ...] = (GPU,),
    named: set[str] | None = None,
) -> Reading:
    return measure(nodes, flavors or [A100], resources, frozenset(named or ()))


def on(found: Reading, flavor: str = "a100", resource: str = GPU) -> PairReading:
    return found.pairs[Pair(resource, flavor)]


def numbers(found: Reading) -> dict[str, str]:
    """Installed by flavor, for one resource."""
    return {pair.flavor: str(one.installed) for pair, one in found.pairs.items()}


# --- what a node counts as --------------------------------------------------------------------


@pytest.mark.case("A-23")
def test_nodes_of_one_flavor_add_up() -> None:
    pool = on(read([node("n1"), node("n2")]))
    assert (str(pool.allocatable), str(pool.unavailable), str(pool.installed)) == ("16", "0", "16")
    assert (pool.nodes, pool.unavailable_nodes, pool.reported) == (2, 0, True)


@pytest.mark.case("A-24")
@pytest.mark.parametrize(
    ("fields", "usable", "parked"),
    [
        ({}, "8", "0"),
        ({"cordoned": True}, "0", "8"),
        ({"ready": False}, "0", "8"),
        ({"ready": False, "cordoned": True}, "0", "8"),
    ],
    ids=["Ready", "cordoned", "NotReady", "both"],
)
def test_a_node_that_takes_no_pods_is_parked(
    fields: dict[str, Any], usable: str, parked: str
) -> None:
    pool = on(read([node(**fields)]))
    assert (str(pool.allocatable), str(pool.unavailable)) == (usable, parked)
    assert (pool.nodes, pool.unavailable_nodes) == (int(usable != "0"), int(parked != "0"))
    assert str(pool.installed) == "8"


def test_nodes_that_differ_in_nothing_but_being_parked_are_told_apart() -> None:
    nodes = [node("a", cordoned=True), node("b"), node("c", ready=False), node("d", cordoned=True)]
    pool = on(read(nodes))
    assert (str(pool.allocatable), str(pool.unavailable)) == ("8", "24")
    assert (pool.nodes, pool.unavailable_nodes) == (1, 3)


@pytest.mark.case("A-24")
@pytest.mark.case("FC-C07")
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_a_tainted_node_counts(effect: str) -> None:
    raw = {
        "metadata": {"name": "n1", "labels": {"product": "A100"}},
        "spec": {"taints": [{"key": "soft", "effect": effect}]},
        "status": {
            "allocatable": {GPU: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    pool = on(read([to_node(msgspec.convert(raw, WireNode))]))
    assert (str(pool.allocatable), str(pool.unavailable)) == ("8", "0")


@pytest.mark.case("A-25")
def test_allocatable_counts_and_capacity_tells_the_unhealthy() -> None:
    pool = on(read([node(offers={GPU: "6"}, has={GPU: "8"})]))
    assert (str(pool.allocatable), str(pool.installed), str(pool.unhealthy)) == ("6", "6", "2")


@pytest.mark.parametrize(
    ("has", "offers", "fields", "unhealthy"),
    [
        ("8", "8", {}, "0"),
        ("8", "0", {}, "8"),
        ("8", "0", {"cordoned": True}, "8"),
        ("8", "0", {"ready": False}, "0"),
        ("8", "9", {}, "0"),
        ("8x", "4", {}, "0"),
    ],
    ids=["none", "all", "cordoned", "NotReady", "offers more than it has", "unreadable capacity"],
)
def test_unhealthy_is_what_a_ready_node_has_and_does_not_offer(
    has: str, offers: str, fields: dict[str, Any], unhealthy: str
) -> None:
    have = {GPU: None if has == "8x" else has}
    pool = on(read([node(offers={GPU: offers}, has=have, **fields)]))
    assert str(pool.unhealthy) == unhealthy


def test_a_device_that_is_only_in_capacity_is_all_unhealthy() -> None:
    pool = on(read([node(offers={}, has={GPU: "8"})]))
    assert (str(pool.installed), str(pool.unhealthy), pool.reported) == ("0", "8", True)


def test_the_unhealthy_of_one_node_do_not_make_up_for_another() -> None:
    pool = on(read([node("a", offers={GPU: "9"}, has={GPU: "8"}), node("b", has={GPU: "9"})]))
    assert str(pool.unhealthy) == "1"


@pytest.mark.case("A-25")
def test_zero_devices_report_the_pair_and_are_nobodys_loss() -> None:
    found = read([node(offers={GPU: "0"}), node("n2", None, offers={GPU: "0"})])
    assert on(found) == PairReading(Pair(GPU, "a100"), ZERO, ZERO, ZERO, reported=True)
    assert found.unattributed == ()
    assert found.unattributed_nodes == {}


def test_a_pair_is_reported_when_a_node_lists_the_resource_at_all() -> None:
    found = read([node(offers={}, has={GPU: "0"}), node("n2", "H100", offers={})], [A100, H100])
    assert (on(found, "a100").reported, on(found, "h100").reported) == (True, False)


def test_every_resource_has_a_row_on_every_flavor() -> None:
    found = read([], [H100, A100], (TPU, GPU, TPU))
    assert list(found.pairs) == [
        Pair(TPU, "a100"),
        Pair(TPU, "h100"),
        Pair(GPU, "a100"),
        Pair(GPU, "h100"),
    ]
    assert not any(row.installed or row.reported for row in found.pairs.values())


def test_without_flavors_or_resources_there_are_no_rows() -> None:
    assert measure([node()], [], (GPU,), frozenset()).pairs == {}
    assert measure([node()], [A100], (), frozenset()) == Reading({})


@pytest.mark.case("A-27")
def test_vendors_on_one_node_are_counted_apart_and_the_rest_not_at_all() -> None:
    mixed = node(offers={GPU: "8", AMD: "4", "intel.com/gpu": "2", "example.com/nic": "9"})
    found = read([mixed], resources=(GPU, AMD))
    assert {str(pair): str(row.installed) for pair, row in found.pairs.items()} == {
        "amd.com/gpu on a100": "4",
        "nvidia.com/gpu on a100": "8",
    }


@pytest.mark.case("FC-B01")
def test_slices_of_a_gpu_are_goods_of_their_own() -> None:
    names = (GPU, "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb")
    sliced = node(product="H100", offers=dict(zip(names, ("0", "8", "32"), strict=True)))
    found = read([sliced], [H100], names)
    assert [str(on(found, "h100", name).installed) for name in names] == ["0", "8", "32"]


@pytest.mark.case("FC-B05")
def test_devices_under_an_odd_name_count_under_that_name_only() -> None:
    odd = node(offers={AMD: "0", "amd.com/spx_nps1": "63"})
    plain = read([odd], resources=(AMD,))
    assert (str(on(plain, resource=AMD).installed), on(plain, resource=AMD).reported) == ("0", True)
    both = read([odd], resources=(AMD, "amd.com/spx_nps1"))
    assert str(on(both, resource="amd.com/spx_nps1").installed) == "63"


def test_sums_are_exact_at_any_size() -> None:
    found = read([node("n1", offers={GPU: "1e18"}), node("n2", offers={GPU: "1n"})])
    assert on(found).installed.nanos == 10**27 + 1


# --- to which flavor it belongs ---------------------------------------------------------------

REGION = Flavor("a100-west", node_labels={"product": "A100", "region": "west"})
SPOT = Flavor("a100-spot", node_labels={"product": "A100", "spot": "true"})
ANY = Flavor("any")


@pytest.mark.case("A-26")
@pytest.mark.parametrize(
    ("labels", "flavors", "winner"),
    [
        ({"product": "A100"}, [A100, H100], "a100"),
        ({"product": "A100", "region": "west"}, [A100, REGION], "a100-west"),
        ({"product": "A100", "region": "east"}, [A100, REGION], "a100"),
        ({"product": "A100"}, [A100, ANY], "a100"),
        ({"product": "L4"}, [A100, ANY], "any"),
        ({}, [ANY], "any"),
    ],
    ids=["only", "more specific", "not all labels", "labelled", "fallback", "bare node"],
)
def test_a_node_belongs_to_the_most_specific_flavor_it_has_all_labels_of(
    labels: dict[str, str], flavors: list[Flavor], winner: str
) -> None:
    found = read([node(product=None, labels=labels)], flavors)
    expected = {flavor.name: "0" for flavor in flavors} | {winner: "8"}
    assert numbers(found) == expected
    assert found.unattributed == ()


@pytest.mark.case("A-26")
@pytest.mark.case("A-36")
def test_a_node_without_a_flavor_counts_nowhere_and_is_listed() -> None:
    found = read([node("n1", "L4"), node("n2", None, ready=False)])
    assert numbers(found) == {"a100": "0"}
    assert found.unattributed == (
        Unattributed(GPU, "NoMatchingFlavor", (), 2, Quantity.of(16), ("n1", "n2")),
    )
    assert found.unattributed_nodes == {"NoMatchingFlavor": 2}


@pytest.mark.case("A-26")
@pytest.mark.case("A-36")
@pytest.mark.case("FC-C02")
def test_a_tie_counts_for_neither_and_is_listed_with_both_names() -> None:
    torn = node(labels={"region": "west", "spot": "true"})
    for named in (set(), {"a100-west", "a100-spot"}):
        found = read([torn], [A100, SPOT, REGION], named=named)
        assert set(numbers(found).values()) == {"0"}
        assert found.unattributed == (
            Unattributed(
                GPU, "AmbiguousFlavor", ("a100-spot", "a100-west"), 1, Quantity.of(8), ("n1",)
            ),
        )
        assert found.unattributed_nodes == {"AmbiguousFlavor": 1}


@pytest.mark.case("FC-C02")
def test_a_reserved_pool_inside_a_bigger_pool_is_counted_once() -> None:
    reserved = Flavor("h100-reserved", node_labels={"product": "H100", "pool": "reserved"})
    nodes = [node(f"n{i}", "H100") for i in range(3)]
    nodes.append(node("r1", "H100", labels={"pool": "reserved"}))
    assert numbers(read(nodes, [H100, reserved])) == {"h100": "24", "h100-reserved": "8"}


@pytest.mark.case("FC-C01")
@pytest.mark.parametrize(
    ("named", "counted", "torn"),
    [
        ({"mig-3g"}, {"mig-3g": "8", "mig-1g": "0", "spare": "0"}, ()),
        ({"mig-3g", "other"}, {"mig-3g": "8", "mig-1g": "0", "spare": "0"}, ()),
        ({"mig-3g", "mig-1g"}, {"mig-3g": "0", "mig-1g": "0", "spare": "0"}, ("mig-1g", "mig-3g")),
        (set(), {"mig-3g": "0", "mig-1g": "0", "spare": "0"}, ("mig-1g", "mig-3g", "spare")),
    ],
    ids=["one named", "one named of those", "two named", "none named"],
)
def test_of_equal_flavors_the_one_that_the_tree_names_wins(
    named: set[str], counted: dict[str, str], torn: tuple[str, ...]
) -> None:
    same = [Flavor(name, node_labels={"gpu": "h100"}) for name in ("mig-3g", "mig-1g", "spare")]
    found = read([node(labels={"gpu": "h100"})], same, named=named)
    assert numbers(found) == counted
    assert [row.flavors for row in found.unattributed] == ([torn] if torn else [])


def test_being_named_does_not_beat_being_more_specific() -> None:
    found = read([node(labels={"region": "west"})], [A100, REGION], named={"a100"})
    assert numbers(found) == {"a100": "0", "a100-west": "8"}


def test_the_cover_flavor_takes_no_part() -> None:
    cover = Flavor(COVER_FLAVOR)
    found = read([node(), node("n2", "L4")], [A100, cover], named={COVER_FLAVOR})
    assert numbers(found) == {"a100": "8"}
    assert found.unattributed_nodes == {"NoMatchingFlavor": 1}


def test_a_flavor_in_deletion_counts_until_it_is_gone() -> None:
    going = Flavor("a100", node_labels={"product": "A100"}, deleting=True)
    assert numbers(read([node()], [going])) == {"a100": "8"}


# --- what is listed ---------------------------------------------------------------------------


def test_the_unattributed_are_grouped_with_three_examples_in_order() -> None:
    offers: dict[str, str | None] = {GPU: "8", TPU: "4"}
    nodes = [node(f"n{i}", "L4", offers=offers) for i in (4, 2, 9, 1)]
    found = read(nodes, resources=(GPU, TPU))
    names = ("n1", "n2", "n4")
    assert found.unattributed == (
        Unattributed(TPU, "NoMatchingFlavor", (), 4, Quantity.of(16), names),
        Unattributed(GPU, "NoMatchingFlavor", (), 4, Quantity.of(32), names),
    )
    assert found.unattributed_nodes == {"NoMatchingFlavor": 4}


def test_no_more_than_32_rows_the_largest_and_every_node_counted() -> None:
    flavors = [
        Flavor(f"f{i:02}{twin}", node_labels={"p": str(i)}) for i in range(40) for twin in "ab"
    ]
    nodes = [
        node(f"n{i:02}-{k}", None, labels={"p": str(i)})
        for i in range(40)
        for k in range(1 + i // 8)
    ]
    found = read(nodes, flavors)
    assert len(found.unattributed) == MAX_UNATTRIBUTED == 32
    assert [row.flavors[0] for row in found.unattributed] == [f"f{i:02}a" for i in range(8, 40)]
    assert found.unattributed_nodes == {"AmbiguousFlavor": len(nodes)}


def test_an_amount_that_nobody_can_read_is_listed_and_counts_as_unknown() -> None:
    nodes = [node("n1", offers={GPU: None}), node("n2"), node("n3", "L4", offers={GPU: None})]
    found = read(nodes)
    pool = on(found)
    assert (str(pool.installed), pool.nodes, pool.unreadable, pool.reported) == ("8", 1, 1, True)
    assert found.unattributed == (
        Unattributed(GPU, "UnreadableQuantity", (), 1, ZERO, ("n3",)),
        Unattributed(GPU, "UnreadableQuantity", ("a100",), 1, ZERO, ("n1",)),
    )
    assert found.unattributed_nodes == {"UnreadableQuantity": 2}


def test_a_negative_number_of_devices_is_as_unreadable_as_a_word() -> None:
    pool = on(read([node(offers={GPU: "-8"}), node("n2")]))
    assert (str(pool.installed), pool.unreadable) == ("8", 1)


# --- properties -------------------------------------------------------------------------------

LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"))
AMOUNTS = st.dictionaries(
    st.sampled_from([GPU, TPU]), st.none() | st.integers(-1, 9).map(Quantity.of)
)
NODES = st.lists(
    st.builds(
        Node,
        name=st.uuids().map(str),
        labels=LABELS,
        capacity=AMOUNTS,
        allocatable=AMOUNTS,
        cordoned=st.booleans(),
        ready=st.booleans(),
    ),
    max_size=8,
)
FLAVORS = st.lists(
    st.builds(Flavor, name=st.sampled_from("fghij"), node_labels=LABELS),
    max_size=5,
    unique_by=lambda flavor: flavor.name,
)
NAMED = st.frozensets(st.sampled_from("fghij"))


@settings(max_examples=80)
@given(NODES, FLAVORS, NAMED)
def test_every_device_counts_exactly_once(
    nodes: list[Node], flavors: list[Flavor], named: frozenset[str]
) -> None:
    found = measure(nodes, flavors, (GPU, TPU), named)
    for resource in (GPU, TPU):
        amounts = [one.allocatable.get(resource) for one in nodes]
        there = sum(amount.nanos for amount in amounts if amount is not None and amount > ZERO)
        counted = sum(r.installed.nanos for p, r in found.pairs.items() if p.resource == resource)
        loose = sum(r.quantity.nanos for r in found.unattributed if r.resource == resource)
        assert counted + loose == there


@settings(max_examples=60)
@given(NODES, FLAVORS, NAMED, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_flavors_changes_nothing(
    nodes: list[Node], flavors: list[Flavor], named: frozenset[str], random: Any
) -> None:
    found = measure(nodes, flavors, (GPU, TPU), named)
    random.shuffle(nodes)
    random.shuffle(flavors)
    again = measure(nodes, flavors, (GPU, TPU), named)
    assert again == found
    assert (list(again.pairs), repr(again)) == (list(found.pairs), repr(found))


def verdict(node: Node, flavors: list[Flavor], named: frozenset[str]) -> tuple[str, ...]:
    """The contenders for a node, straight from the rule."""
    fits = [f for f in flavors if all(node.labels.get(k) == v for k, v in f.node_labels.items())]
    best = [f for f in fits if all(len(f.node_labels) >= len(g.node_labels) for g in fits)]
    return tuple(sorted(f.name for f in best if f.name in named) or sorted(f.name for f in best))


@settings(max_examples=80)
@given(NODES, FLAVORS, NAMED)
def test_each_node_goes_where_the_rule_says(
    nodes: list[Node], flavors: list[Flavor], named: frozenset[str]
) -> None:
    found = measure(nodes, flavors, (GPU,), named)
    for name in (flavor.name for flavor in flavors):
        mine = [one for one in nodes if verdict(one, flavors, named) == (name,)]
        pool = found.pairs[Pair(GPU, name)]
        assert pool.reported == any(GPU in one.allocatable or GPU in one.capacity for one in mine)
        usable = [one.allocatable.get(GPU) for one in mine if one.ready and not one.cordoned]
        assert pool.allocatable.nanos == sum(q.nanos for q in usable if q is not None and q > ZERO)
