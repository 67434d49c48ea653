"""Nodes, flavors and namespaces from JSON: what is kept, and what does no harm."""

from typing import Any

import msgspec
import pytest

from quota_translator.core.names import CLUSTER_QUEUE
from quota_translator.core.quantity import Quantity
from quota_translator.core.wire import (
    WireFlavor,
    WireKueue,
    WireNamespace,
    WireNode,
    to_flavor,
    to_namespace,
    to_node,
    to_observed,
)
from quota_translator.core.world import Flavor, Namespace, Node

GPU = "nvidia.com/gpu"
EIGHT = Quantity.of(8)


def node(**fields: Any) -> Node:
    raw = msgspec.json.encode({"metadata": {"name": "n1"}} | fields)
    return to_node(msgspec.json.decode(raw, type=WireNode))


def ready(status: str, **fields: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status}]} | fields


def test_a_node_keeps_labels_extended_resources_and_whether_it_takes_pods() -> None:
    found = node(
        kind="Node",
        metadata={
            "name": "gpu-1",
            "labels": {"product": "A100"},
            "annotations": {"a": "b"},
            "managedFields": [{"manager": "kubelet"}],
        },
        spec={"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        status=ready(
            "True",
            capacity={"cpu": "64", "memory": "1Ti", "pods": "110", GPU: "8", "amd.com/gpu": 2},
            allocatable={"cpu": "63", GPU: "8"},
            images=[{"names": ["x"]}],
        ),
    )
    assert found == Node(
        name="gpu-1",
        labels={"product": "A100"},
        capacity={"amd.com/gpu": Quantity.of(2), GPU: EIGHT},
        allocatable={GPU: EIGHT},
        cordoned=True,
        ready=True,
    )
    assert list(found.capacity) == ["amd.com/gpu", GPU]


@pytest.mark.case("A-24")
@pytest.mark.parametrize(
    ("conditions", "is_ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        (
            [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
            True,
        ),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "MemoryPressure", "status": "True"}], False),
        ([], False),
        (None, False),
    ],
)
def test_only_ready_true_is_ready(conditions: list[dict[str, str]] | None, is_ready: bool) -> None:
    assert node(status={"conditions": conditions}).ready is is_ready


@pytest.mark.parametrize(
    ("amount", "read"),
    [
        ("8x", None),
        ("", None),
        ("NaN", None),
        (None, None),
        (True, None),
        ([8], None),
        ({"value": 8}, None),
        ("1000000000000000000", Quantity.of(10**18)),
        ("1E", Quantity.of(10**18)),
        (8, EIGHT),
        (8.0, EIGHT),
        (0.5, Quantity.parse("500m")),
        ("0", Quantity.of(0)),
    ],
    ids=repr,
)
def test_an_amount_that_cannot_be_read_is_unknown_not_zero_and_no_error(
    amount: Any, read: Quantity | None
) -> None:
    found = node(status={"allocatable": {GPU: amount, "amd.com/gpu": "1"}})
    assert found.allocatable == {GPU: read, "amd.com/gpu": Quantity.of(1)}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"spec": None, "status": None},
        {"spec": {}, "status": {}},
        {"metadata": {"name": "n1", "labels": None}},
        {"status": {"capacity": None, "allocatable": None, "conditions": None}},
    ],
    ids=["bare", "nulls", "empty", "no labels", "null lists"],
)
def test_a_node_that_says_nothing_is_a_node_without_devices(fields: dict[str, Any]) -> None:
    assert node(**fields) == Node(
        name="n1", labels={}, capacity={}, allocatable={}, cordoned=False, ready=False
    )


def test_the_same_record_is_made_of_bytes_and_of_plain_values() -> None:
    raw = {"metadata": {"name": "n1", "labels": {"a": "b"}}, "status": {"allocatable": {GPU: 8}}}
    plain = to_node(msgspec.convert(raw, WireNode))
    assert plain == to_node(msgspec.json.decode(msgspec.json.encode(raw), type=WireNode))


def test_texts_that_repeat_on_every_node_are_kept_once() -> None:
    fields = {
        "metadata": {"name": "n1", "labels": {"cloud.example/pool": "a-pool-of-a100"}},
        "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}},
    }
    one, other = node(**fields), node(**fields)
    ((key, value),), ((key2, value2),) = one.labels.items(), other.labels.items()
    assert key is key2
    assert value is value2
    assert one.allocatable[GPU] is other.capacity[GPU]


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (
            {
                "metadata": {"name": "a100", "uid": "u-1"},
                "spec": {
                    "nodeLabels": {"product": "A100"},
                    "topologyName": "racks",
                    "nodeTaints": [{"key": "a"}, {"key": "b"}],
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                },
            },
            Flavor("a100", "u-1", {"product": "A100"}, "racks", 2, 1),
        ),
        ({"metadata": {"name": "any"}}, Flavor("any")),
        ({"metadata": {"name": "any"}, "spec": None}, Flavor("any")),
        (
            {
                "metadata": {"name": "any"},
                "spec": {
                    "nodeLabels": None,
                    "nodeTaints": None,
                    "tolerations": None,
                    "topologyName": None,
                },
            },
            Flavor("any"),
        ),
        (
            {"metadata": {"name": "old", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}},
            Flavor("old", deleting=True),
        ),
    ],
    ids=["whole", "no spec", "null spec", "null fields", "in deletion"],
)
def test_a_flavor_keeps_what_measuring_and_rendering_ask_for(
    raw: dict[str, Any], read: Flavor
) -> None:
    assert to_flavor(msgspec.convert(raw, WireFlavor)) == read


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (
            {"metadata": {"name": "ml", "labels": {"team": "ml"}}, "status": {"phase": "Active"}},
            Namespace("ml", {"team": "ml"}),
        ),
        ({"metadata": {"name": "ml", "labels": None}, "status": None}, Namespace("ml")),
        (
            {"metadata": {"name": "ml"}, "status": {"phase": "Terminating"}},
            Namespace("ml", terminating=True),
        ),
        (
            {"metadata": {"name": "ml", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
            Namespace("ml", terminating=True),
        ),
    ],
    ids=["active", "nulls", "phase Terminating", "in deletion"],
)
def test_a_namespace_keeps_labels_and_whether_it_is_going(
    raw: dict[str, Any], read: Namespace
) -> None:
    assert to_namespace(msgspec.convert(raw, WireNamespace)) == read


KUEUES_DEFAULTS = {
    "queueingStrategy": "BestEffortFIFO",
    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    "stopPolicy": "None",
}


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        pytest.param({}, (), id="Kueue's defaults are nobody's choice"),
        pytest.param(
            {"queueingStrategy": "StrictFIFO"}, ("queueingStrategy StrictFIFO",), id="a word"
        ),
        pytest.param(
            {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}},
            ("admissionScope",),
            id="an object",
        ),
        pytest.param(
            {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}},
            ("flavorFungibility",),
            id="other than the default",
        ),
    ],
)
def test_what_people_set_on_a_queue_is_told_from_kueues_defaults(
    chosen: dict[str, Any], shown: tuple[str, ...]
) -> None:
    raw = {"metadata": {"name": "q"}, "spec": KUEUES_DEFAULTS | chosen}
    assert to_observed(CLUSTER_QUEUE, msgspec.convert(raw, WireKueue)).peoples == shown
