"""Who leads, and for how long: in simulated time, with clocks that differ and calls that hang."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from quota_translator.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Malformed,
    Unauthorized,
    Unavailable,
)
from quota_translator.leadership import steady
from quota_translator.leading import Alone
from tests.leases import DEADLINE, DURATION, PERIOD, Process, State, Store, now, stop, until

pytestmark = pytest.mark.looptime
FOREVER = 10_000.0


# --- taking and renewing ----------------------------------------------------------------------


async def test_the_first_leads_at_once_and_the_second_stands_by() -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two")
    tasks = [one.start()]
    assert await until(lambda: one.leadership.leads) < 0.1
    tasks.append(two.start())
    await asyncio.sleep(120)
    assert (one.leadership.leads, two.leadership.leads) == (True, False)
    assert (one.leadership.may_write(), two.leadership.may_write()) == (True, False)
    assert one.leadership.uid == two.leadership.uid == "uid-1"
    assert len(one.changes) == 1
    assert two.lock.holder == "one"
    await stop(*tasks)


async def test_steady_state_costs_one_request_a_period() -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two")
    tasks = [one.start()]
    await until(lambda: one.leadership.leads)
    tasks.append(two.start())
    await asyncio.sleep(5)
    one.wire.asked.clear()
    two.wire.asked.clear()
    await asyncio.sleep(220)
    assert set(one.wire.asked) == {"patch"}
    assert set(two.wire.asked) == {"get"}
    for asked in (one.wire.asked, two.wire.asked):
        assert 98 <= len(asked) <= 101  # 2.2 s with a mean jitter
    await stop(*tasks)


@pytest.mark.parametrize(("luck", "pause"), [(0.0, 2.0), (0.5, 2.2), (0.999, 2.4)])
async def test_pauses_are_the_period_and_up_to_a_fifth_more(luck: float, pause: float) -> None:
    process = Process(Store(), "one", rand=lambda: luck)
    task = process.start()
    await until(lambda: process.leadership.leads)
    before = len(process.wire.asked)
    await asyncio.sleep(100 * (pause + 0.005))
    assert 98 <= len(process.wire.asked) - before <= 101
    await stop(task)


async def test_transitions_are_counted_and_times_written_as_the_api_wants_them() -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two", ahead=-300.0)
    first = one.start()
    await until(lambda: one.leadership.leads)
    spec = store.leases["lease"]["spec"]
    assert spec["leaseTransitions"] == one.leadership.transitions == 0
    assert spec["leaseDurationSeconds"] == 15
    assert spec["acquireTime"] == "2026-11-30T00:00:00.000000Z"
    await asyncio.sleep(10)
    spec = store.leases["lease"]["spec"]
    assert spec["acquireTime"] == "2026-11-30T00:00:00.000000Z"
    assert spec["renewTime"] > spec["acquireTime"]
    await stop(first)
    second = two.start()
    await until(lambda: two.leadership.leads)
    spec = store.leases["lease"]["spec"]
    assert spec["leaseTransitions"] == two.leadership.transitions == 1
    assert spec["renewTime"].startswith("2026-11-29T23:55")  # its wall clock; nobody believes it
    await stop(second)


# --- giving back ------------------------------------------------------------------------------


async def test_a_lease_that_is_given_back_is_taken_within_a_period() -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two")
    first = one.start()
    await until(lambda: one.leadership.leads)
    second = two.start()
    await asyncio.sleep(20)
    await stop(first)
    assert not one.leadership.leads
    await one.leadership.release()
    spec = store.leases["lease"]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert await until(lambda: two.leadership.leads) <= PERIOD * 1.2 + 0.1
    # A second time does not take it away from the other.
    await one.leadership.release()
    assert store.leases["lease"]["spec"]["holderIdentity"] == "two"
    await stop(second)


async def test_what_another_holds_is_not_given_back() -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two")
    first = one.start()
    await until(lambda: one.leadership.leads)
    one.wire.state = "down"
    second = two.start()
    await until(lambda: two.leadership.leads)
    one.wire.state = "up"
    await asyncio.sleep(10)  # it stands by, and has seen who holds it
    await stop(first)
    await one.leadership.release()
    assert store.leases["lease"]["spec"]["holderIdentity"] == "two"
    await stop(second)


async def test_a_renewal_that_was_cut_off_does_not_keep_the_lease() -> None:
    store = Store()
    one = Process(store, "one")
    first = one.start()
    await until(lambda: one.leadership.leads)
    one.wire.state = "answers late"
    renewed = store.leases["lease"]["spec"]["renewTime"]
    await until(lambda: store.leases["lease"]["spec"]["renewTime"] != renewed)
    await stop(first)  # the server has renewed it, and nobody waits for its answer any more
    one.wire.state = "up"
    await one.leadership.release()
    assert store.leases["lease"]["spec"]["holderIdentity"] == ""


async def test_a_lease_that_somebody_else_goes_on_writing_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store()
    one = Process(store, "one")
    first = one.start()
    await until(lambda: one.leadership.leads)
    await stop(first)
    patch = store.patch

    def raced(name: str, body: Mapping[str, Any]) -> bytes:
        store.touch(name)
        return patch(name, body)

    monkeypatch.setattr(store, "patch", raced)
    with capture_logs() as logs:
        await one.leadership.release()
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("lease not released", "somebody else goes on writing it")
    ]
    assert store.leases["lease"]["spec"]["holderIdentity"] == "one"


async def test_a_lease_that_cannot_be_given_back_expires() -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two")
    first, second = one.start(), two.start()
    await until(lambda: one.leadership.leads)
    one.wire.state = "down"
    await stop(first)
    with capture_logs() as logs:
        await one.leadership.release()
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("lease not released", "connection reset")
    ]
    await until(lambda: two.leadership.leads, DURATION + 2.5)
    await stop(second)


@pytest.mark.case("fault 32")
async def test_after_a_kill_the_lease_is_taken_as_soon_as_it_has_expired() -> None:
    """Whatever the phases of the two: never later than the lease and one period."""
    late = []
    for phase in range(8):
        store = Store()
        one, two = Process(store, "one"), Process(store, "two", rand=lambda: 0.999)
        first = one.start()
        await until(lambda: one.leadership.leads)  # noqa: B023
        second = two.start()
        await asyncio.sleep(30 + phase * 0.3)
        await stop(first)
        late.append(await until(lambda: two.leadership.leads))  # noqa: B023
        await stop(second)
    assert max(late) <= DURATION + PERIOD * 1.2 + 0.1
    assert min(late) >= DURATION - PERIOD * 1.2


# --- failures ---------------------------------------------------------------------------------

FAILURES = [
    pytest.param(Unavailable("connection reset"), id="reset"),
    pytest.param(Unavailable("no answer in time", outcome_unknown=True), id="timeout"),
    pytest.param(Malformed("unreadable Lease: <html>"), id="HTML with a 200"),
    pytest.param(Unavailable("502: <html>", status=502), id="HTML with a 502"),
    pytest.param(Unauthorized("401", status=401), id="401"),
    pytest.param(Forbidden("cannot patch leases", status=403), id="403"),
    pytest.param(Conflict("the object has been modified", status=409), id="409"),
]


@pytest.mark.case("fault 28")
@pytest.mark.parametrize("state", ["hangs", "down", "answers late"])
async def test_the_work_ends_at_the_deadline_whatever_a_renewal_does(state: State) -> None:
    store, ended = Store(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(now())

    one, two = Process(store, "one", work=work), Process(store, "two")
    tasks = [one.start()]
    await until(lambda: one.leadership.leads)
    tasks.append(two.start())
    await asyncio.sleep(20)
    last_good = (one.lock.confirmed_at - 1000.0) / one.rate
    one.wire.state = state
    await until(lambda: not one.leadership.may_write())
    assert now() - last_good == pytest.approx(DEADLINE, abs=PERIOD * 1.2 + 0.1)
    await until(lambda: two.leadership.leads)
    assert ended
    assert ended[0] <= two.changes[0][0] - (DURATION - DEADLINE) + 0.1
    await stop(*tasks)


@pytest.mark.case("fault 29")
@pytest.mark.parametrize("failing", FAILURES)
async def test_the_work_ends_at_the_deadline_whatever_the_server_answers(failing: ApiError) -> None:
    store = Store()
    one, two = Process(store, "one"), Process(store, "two")
    tasks = [one.start()]
    await until(lambda: one.leadership.leads)
    tasks.append(two.start())
    await asyncio.sleep(20)
    with capture_logs() as logs:
        one.wire.failing = failing
        await until(lambda: not one.leadership.leads, DEADLINE + 0.1)
    warned = [line for line in logs if line["log_level"] == "warning"]
    assert [line["reason"] for line in warned] == [failing.message]  # once, not each period
    assert one.leadership.problem == failing.message
    assert len(one.wire.asked) < 25
    await until(lambda: two.leadership.leads)
    one.wire.failing = None
    await until(lambda: not one.leadership.problem)
    assert not one.leadership.leads
    await stop(*tasks)


async def test_a_short_failure_costs_nothing() -> None:
    store = Store()
    one = Process(store, "one")
    task = one.start()
    await until(lambda: one.leadership.leads)
    for _ in range(5):
        one.wire.state = "down"
        await asyncio.sleep(DEADLINE - 2 * PERIOD * 1.2)
        one.wire.state = "up"
        await asyncio.sleep(PERIOD * 1.2 + 0.1)
    assert len(one.changes) == 1
    await stop(task)


async def test_a_lease_that_somebody_touched_is_renewed_all_the_same() -> None:
    store = Store()
    one = Process(store, "one")
    task = one.start()
    await until(lambda: one.leadership.leads)
    for _ in range(20):
        store.touch("lease")
        await asyncio.sleep(1)
    assert len(one.changes) == 1
    await stop(task)


async def test_a_lease_that_somebody_deleted_is_made_again_by_its_holder() -> None:
    """The others do not take the chance: the holder may not know yet."""
    store = Store()
    one, two = Process(store, "one"), Process(store, "two", rand=lambda: 0.0)
    first = one.start()
    await until(lambda: one.leadership.leads)
    second = two.start()
    await asyncio.sleep(20)
    del store.leases["lease"]
    await asyncio.sleep(30)
    assert (len(one.changes), len(two.changes)) == (1, 0)
    assert one.leadership.uid == two.leadership.uid != "uid-1"
    # Nor do they wait for ever.
    await stop(first)
    del store.leases["lease"]
    await until(lambda: two.leadership.leads, DURATION + PERIOD)
    await stop(second)


async def test_a_lease_that_another_took_by_force_is_let_go_of_with_the_next_renewal() -> None:
    store = Store()
    one = Process(store, "one")
    task = one.start()
    await until(lambda: one.leadership.leads)
    store.leases["lease"]["spec"]["holderIdentity"] = "somebody"
    store.touch("lease")
    assert await until(lambda: not one.leadership.leads) <= PERIOD * 1.2 + 0.1
    await stop(task)
    await one.leadership.release()
    assert store.leases["lease"]["spec"]["holderIdentity"] == "somebody"


async def test_a_lease_that_says_nothing_is_free() -> None:
    store = Store()
    store.create({"metadata": {"name": "lease"}, "spec": {}})
    one = Process(store, "one")
    task = one.start()
    assert await until(lambda: one.leadership.leads) < 0.1
    await stop(task)


# --- work -------------------------------------------------------------------------------------


async def test_it_leads_again_and_the_work_begins_anew() -> None:
    begun = []

    async def work() -> None:
        begun.append(now())
        await asyncio.Event().wait()

    one = Process(Store(), "one", work=work)
    task = one.start()
    await until(lambda: one.leadership.leads)
    one.wire.state = "down"
    await until(lambda: not one.leadership.leads)
    one.wire.state = "up"
    await until(lambda: one.leadership.leads, PERIOD * 1.2 + 0.1)
    assert len(begun) == 2
    await stop(task)


async def test_work_that_does_not_end_ends_the_process() -> None:
    async def stubborn() -> None:
        while now() < 60.0:
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                await asyncio.sleep(max(0.0, 60.0 - now()))

    one = Process(Store(), "one", work=stubborn)
    task = one.start()
    await until(lambda: one.leadership.leads)
    one.wire.state = "hangs"
    with capture_logs() as logs:
        await until(lambda: one.ended_hard)
    lost = next(at for at, leads in one.changes if not leads)
    assert one.ended_hard[0] - lost == pytest.approx(5.0, abs=0.1)
    assert "ending the process" in logs[-1]["event"]
    await stop(task)


async def test_what_work_raises_ends_the_run_and_so_does_its_end() -> None:
    async def wrong() -> None:
        await asyncio.sleep(3)
        raise ValueError("a mistake of ours")

    async def done() -> None:
        await asyncio.sleep(3)

    with pytest.raises(ValueError, match="a mistake of ours"):
        await Process(Store(), "one", work=wrong).start()
    process = Process(Store(), "one", work=done)
    await process.start()
    assert not process.leadership.leads


async def test_work_that_fails_while_it_is_cancelled_is_told() -> None:
    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while ending")

    one = Process(Store(), "one", work=clumsy)
    task = one.start()
    await until(lambda: one.leadership.leads)
    one.wire.state = "down"
    with capture_logs() as logs:
        await until(lambda: not one.leadership.leads)
        await asyncio.sleep(1)
    assert [line["reason"] for line in logs if "error" in line["event"]] == [
        "ValueError('while ending')"
    ]
    await stop(task)


# --- at most one ------------------------------------------------------------------------------


@pytest.mark.case("fault 30")
@pytest.mark.parametrize("seed", range(4))
async def test_at_most_one_may_write_with_skewed_clocks_of_different_speeds(seed: int) -> None:
    """Three processes, walls five minutes apart, steady clocks 10 % fast and slow, and each
    process's connection breaking, hanging and coming back at random for half an hour."""
    luck = random.Random(seed)
    store, writes = Store(), [0, 0, 0]
    rates, aheads = luck.sample([0.9, 1.0, 1.1], 3), luck.sample([-300.0, 0.0, 300.0], 3)
    processes: list[Process] = []

    def worker(number: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            while True:
                writers = [p.lock.identity for p in processes if p.leadership.may_write()]
                assert len(writers) <= 1, (now(), writers)
                writes[number] += writers == [str(number)]
                await asyncio.sleep(0.5)

        return work

    processes += [
        Process(
            store,
            str(number),
            rate=rates[number],
            ahead=aheads[number],
            rand=luck.random,
            work=worker(number),
        )
        for number in range(3)
    ]
    tasks = [process.start() for process in processes]
    states: tuple[State, ...] = ("up", "up", "hangs", "down", "answers late")
    while now() < 1800:
        luck.choice(processes).wire.state = luck.choice(states)
        if luck.random() < 0.02:
            store.leases.pop("lease", None)
        await asyncio.sleep(luck.uniform(0.1, 20))
        assert not any(task.done() for task in tasks)
    for process in processes:
        process.wire.state = "up"
    await until(lambda: any(p.leadership.may_write() for p in processes), 2 * DURATION)
    assert sum(writes) > 500
    assert sum(count > 0 for count in writes) >= 2  # it went from one to another
    await stop(*tasks)


# --- without a Lease --------------------------------------------------------------------------


async def test_whoever_is_alone_leads_from_start_to_end() -> None:
    changes = []
    alone = Alone(lambda: changes.append(alone.leads))
    assert alone.may_write()
    assert alone.uid == alone.identity != Alone().uid

    async def work() -> None:
        assert alone.leads

    await alone.run(work)
    await alone.release()
    assert changes == [True, False]
    assert (alone.problem, alone.transitions) == ("", 0)


def test_the_clock_is_one_that_goes_on_in_a_suspend() -> None:
    assert steady() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1.0)
