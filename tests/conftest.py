"""What all tests share."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from tests.kube.scripted import FakeTime, Scripted

# No deadlines: a test must not fail because the machine was busy.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# In CI the examples are the same in every run of a commit, so that a red run can be repeated; at a
# desk they are new each time, and go on looking for what nobody thought of.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session", autouse=True)
def _idle_loop() -> Iterator[None]:
    """A current event loop from the start, closed at the end.

    Without one, pytest-asyncio asks the policy for the loop to put back after its first test; that
    creates one that nobody closes, and the warning about it is an error here.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


# --- a client, and a server that plays a script ---------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
def fake() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def client(server: Scripted, fake: FakeTime) -> AsyncIterator[Client]:
    """A client that sends everything once and never really sleeps."""
    async with Client(
        Connection(server.host), retries=Retries(attempts=1), sleep=fake.sleep, rand=lambda: 0.5
    ) as found:
        yield found
