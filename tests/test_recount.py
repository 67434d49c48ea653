"""When workloads are looked up, and when a difference is believed."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from quota_translator.core.names import CLUSTER_QUEUE
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Amount, Clock, Holding, World
from quota_translator.recount import EVERY_SECONDS, EVERY_SECONDS_WHILE_WRONG, Recount
from tests.core.build import pair, root, team
from tests.core.rendering import BARE, a_world, an_option, stands

GPU = pair("gpu a100")
ON = msgspec.structs.replace(an_option(**BARE), workload_names=True)


class Workloads:
    """In place of the cluster: what holds the queues now."""

    def __init__(self) -> None:
        self.gpus: dict[str, int] = {"a": 4}
        self.asked: list[frozenset[str]] = []

    async def holdings(self, queues: Collection[str]) -> Mapping[str, tuple[Holding, ...]]:
        self.asked.append(frozenset(queues))
        return {
            name: (Holding(name, "Job", "", {GPU: Quantity.of(self.gpus[name])}),)
            for name in queues
            if name in self.gpus
        }


def world(gpus: int = 8, **fields: Any) -> World:
    use = {GPU: Amount(Quantity.of(gpus), ZERO)}
    live = stands(CLUSTER_QUEUE, "a", "gpu a100 8", reservation=use, **fields)
    return a_world(root(), team("a", "gpu a100 8"), live=(live,))


def clock(steady: float) -> Clock:
    return Clock(datetime(2026, 11, 30, tzinfo=UTC), steady)


@pytest.mark.case("A-95")
async def test_a_difference_is_believed_when_it_is_seen_twice_and_forgotten_when_it_is_gone() -> (
    None
):
    cluster = Workloads()
    recount = Recount(cluster, ON)  # type: ignore[arg-type]
    await recount.look(world(), (), clock(0))
    assert recount.messages == {}
    assert recount.wake_at is not None
    assert recount.wake_at < 6
    again = recount.wake_at
    await recount.look(world(), (), clock(1))  # a pass for another reason
    assert len(cluster.asked) == 1
    assert recount.wake_at == again
    await recount.look(world(), (), clock(again))
    assert "Kueue counts 8 nvidia.com/gpu on a100 as reserved" in recount.messages["a"]
    assert recount.wake_at == again + EVERY_SECONDS_WHILE_WRONG
    await recount.look(world(4), (), clock(recount.wake_at))
    assert recount.messages == {}
    assert recount.wake_at == again + EVERY_SECONDS_WHILE_WRONG + EVERY_SECONDS


async def test_numbers_that_change_prove_nothing() -> None:
    cluster = Workloads()
    recount = Recount(cluster, ON)  # type: ignore[arg-type]
    now = 0.0
    for gpus in (4, 5, 6, 7):
        cluster.gpus["a"] = gpus
        await recount.look(world(), (), clock(now))
        assert recount.messages == {}
        assert recount.wake_at is not None
        now = recount.wake_at


async def test_queues_that_drain_are_looked_up_all_the_time_and_the_others_now_and_then() -> None:
    cluster = Workloads()
    recount = Recount(cluster, ON)  # type: ignore[arg-type]
    held = await recount.look(world(4), (), clock(0))
    assert held == {}
    going = world(4, deleting=True)
    held = await recount.look(going, ("a",), clock(10))
    assert set(held) == {"a"}
    assert recount.wake_at is not None
    assert recount.wake_at < 16
    assert cluster.asked == [{"a"}, {"a"}]
    assert recount.messages == {}


async def test_where_they_may_not_be_listed_nobody_asks() -> None:
    cluster = Workloads()
    recount = Recount(cluster, an_option(**BARE))  # type: ignore[arg-type]
    assert await recount.look(world(8, deleting=True), ("a",), clock(0)) == {}
    assert cluster.asked == []
    assert recount.wake_at is None


async def test_workloads_that_could_not_be_read_leave_what_was_known_unsaid() -> None:
    cluster = Workloads()
    recount = Recount(cluster, ON)  # type: ignore[arg-type]
    cluster.gpus.clear()
    await recount.look(world(), (), clock(0))
    assert recount.messages == {}
    assert recount.wake_at == EVERY_SECONDS
