"""Statuses: what is computed where, and what becomes of one that cannot be written."""

import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from quota_translator.core.results import Outcome, StatusResult
from quota_translator.core.world import Node, QuotaNode, World
from quota_translator.reporting import off_loop
from tests.test_controller import Harness, folder  # noqa: F401  a fixture


@pytest.mark.parametrize(
    ("nodes", "is_in_loop"), [pytest.param(10, True, id="small"), pytest.param(5000, False, id="L")]
)
async def test_a_large_world_is_computed_in_a_thread(nodes: int, is_in_loop: bool) -> None:
    world = World(quotas=(), nodes=tuple(Node(f"n{i}", {}, {}, {}) for i in range(nodes)))
    thread = await off_loop(world, threading.current_thread)
    assert (thread is threading.current_thread()) is is_in_loop


@pytest.fixture
async def harness(folder: Path) -> AsyncIterator[Harness]:  # noqa: F811
    async with Harness(folder).started() as started:
        yield started


@pytest.mark.case("A-103")
@pytest.mark.parametrize(
    ("outcome", "warnings"),
    [pytest.param("failed", 1, id="failure"), pytest.param("conflict", 0, id="conflict")],
)
async def test_one_status_that_is_not_written_stops_no_other_and_is_tried_again(
    harness: Harness, outcome: Outcome, warnings: int
) -> None:
    write, stuck = harness.cluster.write_status, ["team-alpha"]

    async def write_status(node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        if node.name in stuck:
            return StatusResult(node.name, outcome, "no")
        return await write(node, status)

    harness.cluster.write_status = write_status  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        await harness.controller.one_pass()
        harness.time.ahead += 0.6  # what was just written is given half a second
        for _ in range(3):  # the second and the third are within the pause of the first
            await harness.controller.one_pass()
    assert harness.condition("team-beta", "Ready") == ("True", "Admitted")
    assert harness.condition("team-alpha", "Ready") == ("", "")
    assert sum(line["event"] == "status not written" for line in logs) == warnings
    stuck.clear()
    harness.time.ahead += 5
    await harness.settle()
    assert harness.condition("team-alpha", "Ready") == ("True", "Admitted")


@pytest.mark.case("A-103")
async def test_a_violation_does_not_stop_the_clock(harness: Harness) -> None:
    await harness.settle()
    await harness.settle_after_edit("team-alpha", nominal="20")
    assert harness.condition("ml-research", "Ready") == ("False", "ContainmentViolated")
    seen = len(harness.passes.seen)
    assert await harness.controller.one_pass() is not None
    assert len(harness.passes.seen) == seen + 1
