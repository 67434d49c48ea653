"""The recorder, by the loop's own time; and an hour of a node that flaps, simulated."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import structlog

from quota_translator.core.happenings import Change, Happening, happenings
from quota_translator.core.names import ROOT
from quota_translator.core.options import CapacityOptions, MaterializeOptions, Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.report import report
from quota_translator.core.results import Results
from quota_translator.core.statusdiff import same
from quota_translator.core.translate import remember, translate
from quota_translator.core.world import Clock, Flavor, Node, QuotaNode, World
from quota_translator.errors import Forbidden, NotFound, Throttled, Unavailable
from quota_translator.events import BURST, TELL_SECONDS, Recorder
from quota_translator.ledger import ATTEMPTS, COUNT_PAUSE, Ledger
from tests.core.build import root, team

START = datetime(2026, 11, 30, tzinfo=UTC)


def now() -> Clock:
    steady = asyncio.get_running_loop().time()
    return Clock(START + timedelta(seconds=steady), steady)


class Server:
    """Takes Events, unless it is told to fail."""

    def __init__(self) -> None:
        self.events: dict[str, int] = {}
        self.writes = 0
        self.faults: list[Exception] = []
        self.hangs = False

    async def _answer(self) -> None:
        self.writes += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.faults:
            raise self.faults.pop(0)

    async def create(
        self, happening: Happening, first: datetime, last: datetime, count: int
    ) -> str:
        assert first <= last
        await self._answer()
        name = f"{happening.node}.{len(self.events)}"
        self.events[name] = count
        return name

    async def count(self, name: str, last: datetime, count: int) -> None:
        await self._answer()
        if name not in self.events:
            raise NotFound("it is gone", status=404)
        self.events[name] = count


class Recording:
    def __init__(self) -> None:
        self.server = Server()
        self.outcomes: list[str] = []
        self.recorder = Recorder(self.server, now, self.outcomes.append)

    def tell(self, *messages: str) -> None:
        self.recorder.tell(Happening("ml", "u1", "Broken", message) for message in messages)

    def tell_of(self, *nodes: str) -> None:
        self.recorder.tell(Happening(node, node, "Broken", "it is") for node in nodes)


@asynccontextmanager
async def started() -> AsyncIterator[Recording]:
    found = Recording()
    running = asyncio.create_task(found.recorder.run())
    yield found
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.looptime
async def test_events_are_created_counted_and_created_again_when_they_are_gone() -> None:
    async with started() as recording:
        recording.tell("24 of 28")
        await asyncio.sleep(1)
        assert recording.server.events == {"ml.0": 1}

        recording.tell("24 of 28")
        await asyncio.sleep(COUNT_PAUSE)
        assert recording.server.events == {"ml.0": 2}

        recording.server.events.clear()
        recording.tell("24 of 28")
        await asyncio.sleep(COUNT_PAUSE)
        assert recording.server.events == {"ml.0": 3}
        assert recording.outcomes == ["created", "counted", "created"]


@pytest.mark.looptime
async def test_an_outage_delays_and_a_long_one_loses_and_is_told_once() -> None:
    async with started() as recording:
        recording.server.faults = [Unavailable("down"), Throttled("later", retry_after=9.0)]
        recording.tell("first")
        await asyncio.sleep(1)
        assert recording.server.writes == 1
        await asyncio.sleep(20)
        assert recording.server.events == {"ml.0": 1}

        with structlog.testing.capture_logs() as logs:
            recording.server.faults = [Unavailable("down") for _ in range(2 * ATTEMPTS)]
            recording.tell("second", "third")
            await asyncio.sleep(TELL_SECONDS)
        assert recording.outcomes == ["created", "dropped", "dropped"]
        assert [line["event"] for line in logs] == ["an event could not be written"]
        assert logs[0]["message"] == "down"


@pytest.mark.looptime
async def test_a_missing_permission_and_a_fault_of_ours_end_one_event_and_nothing_else() -> None:
    async with started() as recording:
        recording.server.faults = [
            Forbidden('cannot create resource "events"', status=403),
            KeyError("a mistake"),
        ]
        with structlog.testing.capture_logs() as logs:
            recording.tell("first", "second", "third")
            await asyncio.sleep(1)
        assert recording.outcomes == ["dropped", "dropped", "created"]
        assert [line["log_level"] for line in logs] == ["warning", "error"]


@pytest.mark.looptime
async def test_telling_waits_for_nobody_and_a_flood_is_written_slowly() -> None:
    async with started() as recording:
        recording.server.hangs = True
        recording.tell_of(*(f"n{number}" for number in range(400)))
        await asyncio.sleep(1)
        assert recording.outcomes.count("dropped") == 400 - 256
        assert recording.server.writes == 1

    async with started() as recording:
        recording.tell_of(*(f"n{number}" for number in range(200)))
        await asyncio.sleep(0.01)
        assert recording.server.writes == BURST
        await asyncio.sleep(10)
        assert recording.server.writes == pytest.approx(BURST + 50, abs=2)


@pytest.mark.looptime
async def test_what_waits_at_the_end_is_written_within_its_grace() -> None:
    async with started() as recording:
        recording.tell("24 of 28")
        await asyncio.sleep(1)
        recording.tell("24 of 28")
        await recording.recorder.stop(1.0)
        assert recording.server.events == {"ml.0": 2}

        recording.server.hangs = True
        recording.tell("another")
        before = asyncio.get_running_loop().time()
        await recording.recorder.stop(1.5)
        assert asyncio.get_running_loop().time() - before == pytest.approx(1.5)


# --- an hour of one node ----------------------------------------------------------------------


class Hour:
    """A small cluster whose world the test changes every 40 seconds, for an hour."""

    def __init__(self, drop_after: float) -> None:
        self.options = Options(
            capacity=CapacityOptions(drop_after=drop_after),
            materialize=MaterializeOptions(enrolled_namespaces=()),
        )
        self.quotas: dict[str, QuotaNode] = {
            node.name: node for node in (root(), team("a", gpu=32, uid="a-uid"))
        }
        self.ledger = Ledger()
        self.memory = remember(self.quotas.values())
        self.events: dict[int, tuple[str, str]] = {}
        self.requests = self.status_writes = 0
        self.marks: set[str] = set()

    def run(self, machines: Callable[[int], tuple[Node, ...]]) -> None:
        for second in range(0, 3600, 5):
            clock = Clock(START + timedelta(seconds=second), float(second))
            self.look(machines(second // 40), clock)
            while (entry := self.ledger.next(clock.steady)) is not None:
                self.requests += 1
                self.events[id(entry)] = (entry.happening.node, entry.happening.reason)
                self.ledger.written(entry, entry.name or "event", entry.count, clock.steady)

    def look(self, machines: tuple[Node, ...], clock: Clock) -> None:
        flavors = (Flavor("a100", node_labels={"gpu": "a100"}),)
        world = World(tuple(self.quotas.values()), machines, flavors)
        found = translate(world, self.memory, self.options, clock)
        self.memory = found.memory
        assert not found.plan.actions
        self.marks |= {str(row.mark) for row in found.capacity.values() if row.mark}
        changes = [
            Change(found.tree.nodes[name], status)
            for name, status in report(found, world, self.options, clock).items()
            if not same(self.quotas[name].status, status, found.stamped)
        ]
        for change in changes:
            self.status_writes += change.node.name != ROOT
            stored = msgspec.structs.replace(change.node, status=dict(change.status))
            self.quotas[change.node.name] = stored
        for one in happenings(changes, found.tree, found.plan, Results()):
            self.ledger.tell(one, clock)


def machine(name: str, ready: bool = True) -> Node:
    devices = {"nvidia.com/gpu": Quantity.of(8)}
    return Node(name, {"gpu": "a100"}, devices, devices, ready=ready)


@pytest.mark.case("FC-A04")
def test_a_node_that_flaps_not_ready_for_an_hour_is_no_event() -> None:
    hour = Hour(drop_after=30.0)
    others = tuple(machine(name) for name in ("n1", "n2", "n4"))
    hour.run(lambda turn: (*others, machine("n3", ready=turn % 2 == 0)))

    assert hour.marks == {"32"}
    assert hour.events == {}
    assert hour.status_writes == 1  # team-a's first


@pytest.mark.case("FC-A04")
def test_a_node_that_comes_and_goes_for_an_hour_is_a_handful_of_events() -> None:
    hour = Hour(drop_after=0.0)
    others = tuple(machine(name) for name in ("n1", "n2", "n4"))
    hour.run(lambda turn: (*others, machine("n3")) if turn % 2 == 0 else others)

    assert hour.marks == {"24", "32"}
    assert sorted(hour.events.values()) == [
        ("a", "CapacityExceeded"),
        ("a", "Thawed"),
        ("root", "CapacityFell"),
        ("root", "Oversubscribed"),
    ]
    assert hour.requests <= 4 * (3600 / COUNT_PAUSE + 1)
