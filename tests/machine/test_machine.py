"""Edits, hardware, strangers, faults, restarts and clocks in any order: the promises hold.

The real controller, its stores, reflectors and writer run on an API server and a Kueue in memory,
in simulated time. After every change `promises.py` looks; now and then all faults end, and then
what the tree wants must stand in Kueue, each exception being told, and nothing more is written.

500 steps in `make test`, 10,000 in `make test-long` (MACHINE_STEPS).
"""

import os
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.edits import Hardware, Tree
from tests.machine.trouble import Faults, Strangers

STEPS: Final = int(os.environ.get("MACHINE_STEPS", "500"))
STEPS_OF_ONE: Final = 50


class Machine(Tree, Hardware, Strangers, Faults):
    pass


@pytest.mark.timeout(3600)  # of a long run, or of one that makes a failure smaller
def test_the_promises_hold_whatever_happens_in_any_order() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=max(1, STEPS // STEPS_OF_ONE),
            stateful_step_count=STEPS_OF_ONE,
            suppress_health_check=list(HealthCheck),
        ),
    )
