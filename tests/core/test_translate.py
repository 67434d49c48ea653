"""The spine: what a whole look at the world leads to."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from quota_translator.core.capacity import Reading
from quota_translator.core.names import CLUSTER_QUEUE, KINDS, Key, Pair
from quota_translator.core.options import CapacityOptions, MaterializeOptions, Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, Memory, Namespace, Node, Observed, QuotaNode, World
from tests.core.build import FLAVORS, node, root, rows, team
from tests.core.rendering import as_live

GPU = Pair("nvidia.com/gpu", "a100")
CLOCK = Clock(datetime(2026, 11, 30, tzinfo=UTC), 1000.0)
OPTIONS = Options(materialize=MaterializeOptions(enrolled_namespaces=("ml",)))


def world(*quotas: QuotaNode, **fields: object) -> World:
    plain = World(
        quotas=quotas,
        flavors=FLAVORS,
        namespaces=(Namespace("ml"),),
        known=frozenset(KINDS),
    )
    return msgspec.structs.replace(plain, **fields)


def look(seen: World, memory: Memory | None = None, options: Options = OPTIONS) -> Translation:
    return translate(seen, memory or Memory(), options, CLOCK)


def converged(seen: World, memory: Memory | None = None) -> dict[Key, Observed]:
    return {key: as_live(wanted) for key, wanted in look(seen, memory).rendering.desired.items()}


def shares(found: Translation) -> dict[str, str]:
    """What the plan would give each team."""
    return {
        action.key.name: action.spec["resourceGroups"][0]["flavors"][0]["resources"][0][
            "nominalQuota"
        ].canonical()
        for action in found.plan.actions
        if action.key.kind == CLUSTER_QUEUE
    }


def test_a_converged_world_needs_nothing() -> None:
    seen = world(root(), node("ml", gpu=24), team("a", parent="ml", gpu="16 +4"))
    found = look(msgspec.structs.replace(seen, live=converged(seen)))
    assert found.plan.actions == ()
    assert found.verdict.violations == ()


@pytest.mark.case("FC-F08")
def test_lowering_the_excess_step_by_step_is_always_carried_out() -> None:
    """The mark fell from 64 to 48 under two teams of 32: each cut counts, while both are over."""
    memory = Memory(capacity=rows(gpu=48))
    before = world(root(), team("a", gpu=32), team("b", gpu=32))
    live = converged(before, memory)
    first = look(world(root(), team("a", gpu=24), team("b", gpu=32), live=live), memory)
    assert shares(first) == {"a": "24"}
    assert [str(o.promised) for o in first.verdict.oversubscribed] == ["56"]
    second = look(world(root(), team("a", gpu=24), team("b", gpu=24), live=live), memory)
    assert shares(second) == {"a": "24", "b": "24"}
    assert second.verdict.oversubscribed == ()
    assert first.verdict.violations == second.verdict.violations == ()


@pytest.mark.case("A-33")
def test_without_any_row_of_capacity_nothing_is_held_to_it() -> None:
    assert look(world(root(), team("a", gpu=1000))).verdict.frozen == {}


@pytest.mark.case("FC-A10")
@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"nodes": None}, id="nodes unknown"),
        pytest.param({"nodes": (), "flavors": None}, id="flavors unknown"),
    ],
)
def test_a_partial_view_is_no_measurement(unknown: dict) -> None:
    memory = Memory(capacity=rows(gpu=32))
    found = look(world(root(), **unknown), memory)
    assert found.reading is None
    assert found.capacity == memory.capacity


@pytest.mark.case("FC-A10")
def test_the_tree_is_edited_within_the_marks_while_nothing_can_be_measured() -> None:
    memory = Memory(capacity=rows(gpu=32))
    live = converged(world(root(), team("a", gpu=8), team("b", gpu=8)), memory)
    blind = world(root(), team("a", gpu=12), team("b", gpu=33), nodes=None, live=live)
    found = look(blind, memory)
    assert shares(found) == {"a": "12"}
    assert found.verdict.frozen.keys() == {"b"}


@pytest.mark.case("FC-A04")
def test_a_node_that_flaps_for_an_hour_moves_no_mark_and_plans_nothing() -> None:
    """One of four machines is not Ready every other 40 seconds, and the tree promises all 32."""
    quotas = (root(), team("a", gpu=32))
    devices = {"nvidia.com/gpu": Quantity.of(8)}
    memory, live = Memory(), converged(world(*quotas))
    usable = set()
    for tick in range(90):
        nodes = tuple(
            Node(f"n{i}", {}, devices, devices, ready=i != 3 or tick % 2 == 0) for i in range(4)
        )
        seen = world(*quotas, live=live, nodes=nodes, flavors=FLAVORS[:1])
        clock = Clock(CLOCK.wall + timedelta(seconds=40 * tick), CLOCK.steady + 40 * tick)
        found = translate(seen, memory, OPTIONS, clock)
        memory = found.memory
        assert found.capacity[GPU].mark == Quantity.of(32)
        assert found.capacity[GPU].pending == ()
        assert found.plan.actions == ()
        assert found.verdict.frozen == {}
        usable.add(str(found.capacity[GPU].allocatable))
    assert usable == {"32", "24"}


def test_hardware_is_measured_and_then_held_to() -> None:
    machine = Node("n1", {}, {"nvidia.com/gpu": Quantity.of(8)}, {"nvidia.com/gpu": Quantity.of(8)})
    flavor = msgspec.structs.replace(FLAVORS[0], node_labels={})
    seen = world(root(), team("a", gpu=9), nodes=(machine,), flavors=(flavor,))
    found = look(seen)
    assert isinstance(found.reading, Reading)
    assert found.capacity[GPU].mark == Quantity.of(8)
    assert found.verdict.frozen["a"].reason == "CapacityExceeded"
    assert not any(key.name == "a" for key in found.rendering.desired)


def test_with_measuring_off_old_marks_judge_nobody() -> None:
    off = msgspec.structs.replace(OPTIONS, capacity=CapacityOptions(resources=()))
    memory = Memory(capacity=rows(gpu=8))
    assert look(world(root(), team("a", gpu=9)), memory, off).verdict.frozen == {}
    assert look(world(root(), team("a", gpu=9)), memory).verdict.frozen.keys() == {"a"}


@pytest.mark.case("A-64")
def test_without_an_enrolled_namespace_nothing_is_wanted_or_written() -> None:
    seen = world(root(), team("a", gpu=8))
    live = converged(seen)
    found = look(msgspec.structs.replace(seen, live=live), options=Options())
    assert found.rendering.desired == {}
    assert found.plan.actions == ()


def test_what_was_believed_comes_back_from_the_statuses() -> None:
    frozen_at = "2026-11-29T10:00:00Z"
    status = {
        "capacity": [
            {
                "resourceName": "nvidia.com/gpu",
                "resourceFlavor": "a100",
                "allocatable": "24",
                "highWaterMark": "32",
            }
        ]
    }
    frozen = {"materialization": {"frozen": True, "frozenAt": frozen_at}}
    memory = remember((root(status=status), team("a", gpu=40, status=frozen)))
    assert memory.capacity[GPU].mark == Quantity.of(32)
    assert memory.frozen_since["a"] == datetime(2026, 11, 29, 10, tzinfo=UTC)
    again = look(world(root(), team("a", gpu=40)), memory)
    assert again.memory.frozen_since["a"] == memory.frozen_since["a"]


def test_a_tree_without_root_leaves_nothing_known() -> None:
    assert remember(()).capacity == {}
