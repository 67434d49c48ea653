from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.certs.server import Clocks, Objects, Replica
from tests.kube.scripted import Scripted


@pytest.fixture
async def objects() -> AsyncIterator[Objects]:
    scripted = Scripted()
    await scripted.start()
    yield Objects(scripted)
    await scripted.stop()


@pytest.fixture
async def replica(objects: Objects) -> AsyncIterator[Callable[..., Replica]]:
    """Makes replicas, each with clocks of its own unless some are given."""
    made: list[Replica] = []

    def make(clocks: Clocks | None = None, **options: Any) -> Replica:
        made.append(Replica(objects.server, clocks or Clocks(), **options))
        return made[-1]

    yield make
    for one in made:
        await one.client.close()
