"""Which statuses are written when, by the controller over a folder."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quota_translator.controller import Controller
from quota_translator.core.results import Outcome, Result, Results, StatusResult
from quota_translator.core.world import QuotaNode
from tests.test_controller import OPTIONS, Harness, folder

__all__ = ["folder"]


class Statuses:
    """What was sent, and how it shall be answered."""

    def __init__(self, harness: Harness) -> None:
        self.sent: list[str] = []
        self.answers: dict[str, Outcome] = {}
        self.at_once = self.most_at_once = 0
        self._write = harness.cluster.write_status
        harness.cluster.write_status = self.write  # type: ignore[method-assign]

    async def write(self, node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        self.sent.append(node.name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        outcome = self.answers.get(node.name)
        if outcome is not None:
            return StatusResult(node.name, outcome, "as the test says")
        return await self._write(node, status)


@pytest.fixture
async def harness(folder: Path) -> AsyncIterator[Harness]:
    capacity = msgspec.structs.replace(OPTIONS.capacity, report_interval=60.0)
    options = msgspec.structs.replace(OPTIONS, capacity=capacity)
    async with Harness(folder, options).started() as started:
        yield started


def stamps(harness: Harness) -> set[str]:
    (root,) = (node for node in harness.cluster.snapshot().quotas or () if node.name == "root")
    return {row["observedAt"] for row in root.status["capacity"]}


@pytest.mark.parametrize("outcome", ["conflict", "unavailable", "throttled"])
async def test_a_stamp_that_could_not_be_written_is_written_later(
    harness: Harness, outcome: Outcome
) -> None:
    await harness.settle()
    before, statuses = stamps(harness), Statuses(harness)
    harness.time.ahead += 61
    statuses.answers["root"] = outcome
    await harness.controller.one_pass()
    assert statuses.sent == ["root"]
    assert stamps(harness) == before
    del statuses.answers["root"]
    harness.time.ahead += 1
    await harness.controller.one_pass()
    assert statuses.sent == ["root", "root"]
    assert stamps(harness) != before
    await harness.controller.one_pass()
    assert statuses.sent == ["root", "root"]


async def test_statuses_keep_to_the_number_of_writes_at_once(harness: Harness) -> None:
    harness.controller = Controller(
        harness.cluster, OPTIONS, harness.time, harness.passes, concurrency=2
    )
    statuses = Statuses(harness)
    await harness.settle()
    assert len(set(statuses.sent)) == 4
    assert statuses.most_at_once == 2


@pytest.mark.case("A-69")
async def test_one_refusal_is_one_status(harness: Harness) -> None:
    carry_out = harness.cluster.apply

    async def apply(plan: Any) -> Results:
        kept = tuple(a for a in plan.actions if a.key.name != "team-beta")
        done = await carry_out(msgspec.structs.replace(plan, actions=kept))
        refused = tuple(
            Result(a.key, a.verb, a.stage, a.nodes, a.spec, "refused", "no such flavor")
            for a in plan.actions
            if a.key.name == "team-beta"
        )
        return Results(done.results + refused)

    harness.cluster.apply = apply  # type: ignore[method-assign]
    statuses = Statuses(harness)
    for _ in range(6):
        await harness.controller.one_pass()
        harness.time.ahead += 1
    assert harness.condition("team-beta", "Materialized") == ("False", "MaterializationFailed")
    assert statuses.sent.count("team-beta") == 1


async def test_what_the_server_does_not_keep_is_sent_once(harness: Harness) -> None:
    await harness.settle()
    world = harness.cluster.snapshot()
    poorer = tuple(
        msgspec.structs.replace(node, resource_version="7", status={**node.status, "path": "?"})
        for node in world.quotas or ()
    )
    harness.cluster.snapshot = lambda: msgspec.structs.replace(  # type: ignore[method-assign]
        world, quotas=poorer
    )
    statuses = Statuses(harness)
    statuses.answers = dict.fromkeys(
        ("root", "ml-research", "team-alpha", "team-beta"), "unchanged"
    )
    for _ in range(3):
        await harness.controller.one_pass()
    assert sorted(statuses.sent) == ["ml-research", "root", "team-alpha", "team-beta"]
    harness.time.ahead += 61
    await harness.controller.one_pass()
    assert statuses.sent[4:] == ["root"]  # the stamp is another matter
