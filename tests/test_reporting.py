"""What is computed where: a large world must not hold the event loop."""

import threading

import pytest

from quota_translator.core.world import Node, World
from quota_translator.reporting import off_loop


@pytest.mark.parametrize(
    ("nodes", "is_in_loop"), [pytest.param(10, True, id="small"), pytest.param(5000, False, id="L")]
)
async def test_a_large_world_is_computed_in_a_thread(nodes: int, is_in_loop: bool) -> None:
    world = World(quotas=(), nodes=tuple(Node(f"n{i}", {}, {}, {}) for i in range(nodes)))
    thread = await off_loop(world, threading.current_thread)
    assert (thread is threading.current_thread()) is is_in_loop
