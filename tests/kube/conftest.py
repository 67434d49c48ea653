from collections.abc import AsyncIterator

import pytest

from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from tests.kube.scripted import FakeTime, Scripted


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
