"""Signals: the first asks for the end, the second does not ask."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from quota_translator.app import _stop_signals, _until

STUBBORN = """
import asyncio, sys
from quota_translator.app import _stop_signals, _until

async def wind_up():
    print("winding up", flush=True)
    await asyncio.sleep(60)

async def main():
    with _stop_signals() as asked:
        print("running", flush=True)
        await _until(asked, asyncio.sleep(60), wind_up)

asyncio.run(main())
"""


async def test_the_work_goes_on_while_it_is_wound_up_and_is_cancelled_then() -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def wind_up() -> None:
        await asyncio.sleep(0)
        seen.append("wound up")

    with _stop_signals() as asked:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        await _until(asked, work(), wind_up)
    assert seen == ["wound up", "cancelled"]


async def test_work_that_ends_by_itself_needs_no_winding_up() -> None:
    async def wrong() -> None:
        raise ValueError("a mistake of ours")

    async def wind_up() -> None:
        raise AssertionError

    with _stop_signals() as asked, pytest.raises(ValueError, match="a mistake"):
        await _until(asked, wrong(), wind_up)


@pytest.mark.case("fault 31")
def test_a_second_signal_ends_the_process_at_once() -> None:
    command = [sys.executable, "-c", STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "winding up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1
