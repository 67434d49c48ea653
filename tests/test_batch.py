"""When a pass is due. Time is simulated: nothing here waits."""

import asyncio

import pytest

from quota_translator.batch import Batcher


class Steady:
    """The loop's own time, which looptime moves."""

    def __call__(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(Steady(), frozenset({"Node"}))


async def until_due(batcher: Batcher, wake_at: float | None = None) -> float:
    start = asyncio.get_running_loop().time()
    await batcher.wait(None if wake_at is None else start + wake_at)
    return round(asyncio.get_running_loop().time() - start, 3)


async def keep_marking(batcher: Batcher, kind: str, every: float, times: int) -> None:
    for _ in range(times):
        batcher.mark(kind)
        await asyncio.sleep(every)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("kind", "every", "times", "due"),
    [
        pytest.param("AcceleratorQuota", 1, 1, 0.05, id="one edit waits 50 ms of quiet"),
        pytest.param("AcceleratorQuota", 0.03, 40, 0.5, id="a burst of edits waits 500 ms at most"),
        pytest.param("Node", 1, 1, 0.2, id="one node event waits 200 ms of quiet"),
        pytest.param("Node", 0.1, 60, 2.0, id="a burst of node events waits 2 s at most"),
    ],
)
async def test_a_pass_waits_for_quiet(
    batcher: Batcher, kind: str, every: float, times: int, due: float
) -> None:
    marking = asyncio.create_task(keep_marking(batcher, kind, every, times))
    assert await until_due(batcher) == due
    marking.cancel()


@pytest.mark.looptime
async def test_an_edit_does_not_wait_for_the_window_of_nodes(batcher: Batcher) -> None:
    batcher.mark("Node")
    batcher.mark("AcceleratorQuota")
    assert await until_due(batcher) == 0.05
    assert not batcher.dirty


@pytest.mark.looptime
async def test_a_wait_that_ends_runs_a_pass_without_any_event(batcher: Batcher) -> None:
    assert await until_due(batcher, wake_at=30) == 30


@pytest.mark.looptime
async def test_an_event_comes_before_a_later_wake_up(batcher: Batcher) -> None:
    asyncio.get_running_loop().call_later(3, batcher.mark, "Cohort")
    assert await until_due(batcher, wake_at=30) == 3.05


async def test_passes_that_are_due_at_once_leave_room_for_others(batcher: Batcher) -> None:
    """The Lease, the probes and the webhook run beside them."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    for _ in range(20):
        await batcher.wait(wake_at=-1.0)
    beside.cancel()
    assert turns >= 20
