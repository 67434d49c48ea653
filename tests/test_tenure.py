"""Two controllers and one tree: who may write, and what the other says."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from quota_translator.controller import Controller
from quota_translator.core.actions import Plan
from quota_translator.core.holder import read_claim
from quota_translator.core.names import ROOT
from quota_translator.core.options import Options
from quota_translator.core.results import Outcome, Results, StatusResult, SyncState
from quota_translator.core.statusdiff import merge_patch
from quota_translator.core.world import Clock, Holder, QuotaNode, World
from quota_translator.tenure import Tenure
from tests.core.build import root

ONE = Holder("platform", "one", "lease-1")
TWO = Holder("platform", "two", "lease-2")
MINUTE = 60.0


class Time:
    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> Clock:
        start = datetime(2026, 11, 30, 12, tzinfo=UTC)
        return Clock(start + timedelta(seconds=self.t), 1000.0 + self.t)


class Place:
    """A cluster that holds root alone, and takes its status over the version that was seen."""

    def __init__(self) -> None:
        self.node: QuotaNode | None = root(uid="u", resource_version="1")
        self.writes: list[dict[str, Any]] = []
        self.unchanged = False  # what is written is there already
        self.outcome: Outcome | None = None  # of the writes to come, in place of the usual

    def snapshot(self) -> World:
        return World(quotas=(self.node,) if self.node else ())

    async def write_status(self, node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        assert self.node is not None
        if self.unchanged:
            return StatusResult(ROOT, "unchanged", record=self.node)
        if self.outcome is not None:
            return StatusResult(ROOT, self.outcome, "as the test wants it")
        if node.resource_version != self.node.resource_version:
            return StatusResult(ROOT, "conflict", "somebody wrote meanwhile")
        patch = merge_patch(self.node.status, status)
        self.writes.append(patch)
        version = str(int(self.node.resource_version) + 1)
        self.node = msgspec.structs.replace(
            self.node, status=dict(status), resource_version=version
        )
        return StatusResult(ROOT, "written", record=self.node)

    async def apply(self, _plan: Plan) -> Results:
        return Results()

    def sync_states(self) -> dict[str, SyncState]:
        return {}

    @property
    def holder(self) -> str:
        claim = read_claim(self.node.status) if self.node else None
        return claim.holder.uid if claim else ""


class Bench:
    def __init__(self) -> None:
        self.place, self.time = Place(), Time()

    def tenure(self, holder: Holder, *, take_over: bool = False) -> Tenure:
        return Tenure(
            self.place,  # type: ignore[arg-type]  # all that is needed of a cluster
            lambda: holder,
            self.time,
            lambda: 0.5,
            take_over=take_over,
        )

    async def holds(self, tenure: Tenure) -> bool:
        return await tenure.hold(self.place.snapshot()) is not None


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_claim_is_written_before_anything_else_and_once(bench: Bench) -> None:
    one = bench.tenure(ONE)
    world = await one.hold(bench.place.snapshot())
    assert bench.place.writes == [
        {
            "controller": {
                "namespace": "platform",
                "lease": "one",
                "uid": "lease-1",
                "seenAt": "2026-11-30T12:00:00Z",
            }
        }
    ]
    assert world is not None
    assert world.quotas is not None
    assert world.quotas[0].resource_version == "2"  # what is done next is done over this
    assert await bench.holds(one)
    assert len(bench.place.writes) == 1
    assert one.wake_at == 1000.0 + 1.25 * MINUTE
    bench.time.t = 1.25 * MINUTE
    assert await bench.holds(one)  # root's status, which follows, renews it
    assert len(bench.place.writes) == 1
    assert one.wake_at is not None
    assert one.wake_at > 1000.0 + bench.time.t


@pytest.mark.case("A-102")
async def test_the_second_refuses_says_who_it_is_and_looks_again_when_the_claim_ends(
    bench: Bench,
) -> None:
    one, two = bench.tenure(ONE), bench.tenure(TWO)
    assert await bench.holds(one)
    with capture_logs() as logs:
        for _ in range(600):
            assert not await bench.holds(two)
            assert not two.may_write(bench.place.node)
            bench.time.t += 0.1
    assert [line["event"] for line in logs] == ["nothing is written"]
    assert "Lease one in namespace platform, uid lease-1" in logs[0]["reason"]
    assert two.refusal == logs[0]["reason"]
    assert two.wake_at is not None
    assert two.wake_at <= 1000.0 + bench.time.t + MINUTE
    with capture_logs() as logs:
        for _ in range(1300):
            bench.time.t += 0.1
            if await bench.holds(two):
                break
    assert [line["event"] for line in logs] == [
        "nothing is written",
        "nothing is written",
        "the tree is ours to write",
    ]
    assert bench.time.t == pytest.approx(3 * MINUTE, abs=0.2)
    assert (bench.place.holder, two.refusal) == ("lease-2", "")
    assert not await bench.holds(one)


async def test_a_claim_that_is_renewed_does_not_end(bench: Bench) -> None:
    one, two = bench.tenure(ONE), bench.tenure(TWO)
    assert await bench.holds(one)
    for minute in range(4, 30):
        bench.time.t = minute * MINUTE
        assert bench.place.node is not None
        claim = bench.place.node.status["controller"]
        stamp = f"2026-11-30T12:{minute - 4:02}:00Z"  # its clock is four minutes behind ours
        await bench.place.write_status(bench.place.node, {"controller": claim | {"seenAt": stamp}})
        assert not await bench.holds(two)


async def test_of_two_that_start_at_one_moment_one_has_it(bench: Bench) -> None:
    one, two = bench.tenure(ONE), bench.tenure(TWO)
    world = bench.place.snapshot()
    assert await one.hold(world) is not None
    assert await two.hold(world) is None  # over a version that is no more
    assert two.wake_at is not None
    assert two.wake_at <= 1000.5
    bench.time.t += 1
    assert not await bench.holds(two)
    assert "uid lease-1" in two.refusal
    assert bench.place.holder == "lease-1"


async def test_take_over_takes_it_once_and_the_other_stops(bench: Bench) -> None:
    one, two = bench.tenure(ONE), bench.tenure(TWO, take_over=True)
    assert await bench.holds(one)
    with capture_logs() as logs:
        assert two.may_write(bench.place.node)
        assert await bench.holds(two)
    assert [line["event"] for line in logs] == ["taking the tree over", "the tree is ours to write"]
    assert not one.may_write(bench.place.node)
    assert not await bench.holds(one)
    assert "uid lease-2" in one.refusal
    # It comes back with the flag itself. Two that took from each other for ever would be no better
    # than two that write.
    again = bench.tenure(ONE, take_over=True)
    assert await bench.holds(again)
    assert not await bench.holds(two)
    assert "uid lease-1" in two.refusal


async def test_a_tree_that_was_free_uses_the_right_to_take_up(bench: Bench) -> None:
    two = bench.tenure(TWO, take_over=True)
    assert await bench.holds(two)
    assert await bench.holds(two)
    assert await bench.holds(bench.tenure(ONE, take_over=True))
    assert not await bench.holds(two)


async def test_a_take_over_that_is_refused_by_the_server_is_tried_again(bench: Bench) -> None:
    one, two = bench.tenure(ONE), bench.tenure(TWO, take_over=True)
    assert await bench.holds(one)
    bench.place.outcome = "unavailable"
    assert not await bench.holds(two)
    bench.place.outcome = None
    assert not await bench.holds(two)  # not before its pause is over
    bench.time.t += 1
    assert await bench.holds(two)


async def test_what_cannot_be_claimed_is_not_written(bench: Bench) -> None:
    one = bench.tenure(ONE)
    bench.place.outcome = "failed"
    with capture_logs() as logs:
        assert not await bench.holds(one)
    assert (logs[0]["event"], logs[0]["reason"]) == (
        "the tree could not be claimed",
        "as the test wants it",
    )
    assert one.refusal == ""


async def test_a_crd_without_the_field_is_told_and_the_tree_written_all_the_same(
    bench: Bench,
) -> None:
    one = bench.tenure(ONE)
    bench.place.outcome = "unchanged"
    with capture_logs() as logs:
        assert await bench.holds(one)
        assert await bench.holds(one)
    assert [line["event"][:12] for line in logs] == ["the CRD is o"]
    assert one.holder is None


async def test_a_claim_that_is_there_already_is_no_old_crd(bench: Bench) -> None:
    """The answer of the write was lost, and a watch told of it before the next look was over."""
    one = bench.tenure(ONE)
    before = bench.place.snapshot()
    assert await bench.holds(one)
    bench.place.unchanged = True
    assert await one.hold(before) is not None
    assert one.holder == ONE


async def test_without_root_there_is_nothing_to_claim(bench: Bench) -> None:
    one = bench.tenure(ONE)
    bench.place.node = None
    assert await bench.holds(one)
    assert one.may_write(None)
    assert bench.place.writes == []


async def test_a_refused_controller_forgets_what_it_believed(bench: Bench) -> None:
    """What it will believe then is what the other one writes."""

    class Passes:
        seen = 0

        def passed(self, *_: Any) -> None:
            self.seen += 1

        def failed(self) -> None:
            raise AssertionError

    one, passes = bench.tenure(ONE), Passes()
    controller = Controller(
        bench.place,  # type: ignore[arg-type]
        Options(),
        bench.time,
        passes,
        tenure=one,
    )
    assert await controller.one_pass() is not None
    assert bench.place.node is not None
    assert bench.place.node.status["controller"]["uid"] == "lease-1"
    assert await bench.holds(bench.tenure(TWO, take_over=True))
    assert await controller.one_pass() is None
    assert passes.seen == 1
    assert controller._memory is None
    assert bench.place.holder == "lease-2"
