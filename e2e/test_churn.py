"""An hour of churn in a minute and a half: what is kept of each change shows as a slope."""

from __future__ import annotations

import os
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.controller import QUOTAS, Controller, running
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.nodes import GPU, cordon, set_allocatable, set_ready, touch_status, uncordon
from e2e.shapes import NO_STAMP, converge, hardware, objects, quiet
from e2e.trees import FAST, NAMESPACE, budget, edit, end_job, group, job, namespace, put, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
SECONDS = 96.0
ROUNDS = 60  # an hour in which everything happens once a minute; more where the machine is quick
WRITES_AT_ONCE = 16  # the default of --write-concurrency
COUNT = 4  # the nodes of the tree that stay, root too
LABEL = {"churn": "enrolled"}
MIB = 2**20


@dataclass(frozen=True)
class Sample:
    """What the process holds."""

    seconds: float
    rss: float  # MiB
    files: float  # open descriptors: connections, mostly
    threads: float
    tasks: float  # asyncio's, as /metrics has them


# How much may be added from the end of the warm-up to the end, by the line that fits best.
#
# Every round brings names that never were and never come again (a team, a Job, a namespace), so
# whatever keeps a few kilobytes of each, or a record of each pass, adds several MiB. An allocator
# that has not found its working set yet adds some hundred KiB. Descriptors, threads and tasks come
# and go with the writes of a pass, a few at a time around a steady middle; one that stays in each
# round adds a hundred.
ALLOWED = Sample(seconds=0, rss=2.0, files=3.0, threads=1.0, tasks=3.0)


def test_an_hour_of_churn_leaves_nothing_behind(clean: ControlPlane, audit: Audit) -> None:
    nodes = hardware(clean)
    clean.api.merge(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": LABEL}})
    selector = ("--materialize-namespace-selector", "churn=enrolled")
    with running(clean, *NO_STAMP, *FAST, *selector, namespaces="") as controller:
        put(clean, group("ml", budget(24)))
        put(clean, team("steady", budget(12), parent="ml"), team("busy", budget(8), parent="ml"))
        converge(clean, COUNT)
        quiet(audit)
        before, samples = objects(clean), [_sample(controller)]
        begun = time.monotonic()
        rounds = 0
        while rounds < ROUNDS or time.monotonic() - begun < SECONDS:
            _round(clean, nodes, rounds)
            samples.append(_sample(controller))
            rounds += 1
        _tidy(clean, nodes, rounds)

        _check(samples[len(samples) // 3 :])
        converge(clean, COUNT)
        eventually(lambda: _stripped(objects(clean)) == _stripped(before), 60, "the same objects")
        quiet(audit)
        rest, early = _sample(controller), samples[: len(samples) // 3]
        # Connections are kept open for the next pass, as many as were once needed: at most one for
        # each of the writes that may go at once. Each round would leave its own.
        assert rest.files <= samples[0].files + WRITES_AT_ONCE
        assert rest.tasks <= max(s.tasks for s in early) + 2
        assert rest.threads <= max(s.threads for s in early)
        assert "Traceback" not in controller.log()


# --- churn --------------------------------------------------------------------------------------


def _round(cp: ControlPlane, nodes: list[str], number: int) -> None:
    """One of each: a share, nodes, a team, a Job, a namespace."""
    odd = number % 2
    edit(cp, "steady", budget(12 - odd))
    put(cp, team(f"guest-{number}", budget(1), parent="ml"))
    put(cp, job(f"job-{number}", "busy", 1 + odd), _namespace(number))
    (uncordon if odd else cordon)(cp, nodes[3])
    set_allocatable(cp, nodes[2], {GPU: 8 - odd})
    if number % 8 == 0:
        set_ready(cp, nodes[1], ready=number % 16 == 0)
    for name in nodes:
        touch_status(cp, name, f"report {number}")
    if number >= 2:
        _leave(cp, number - 2)


def _leave(cp: ControlPlane, number: int) -> None:
    """What a round brought goes."""
    cp.api.delete(f"{QUOTAS}/guest-{number}")
    end_job(cp, f"job-{number}")
    cp.api.delete(f"/api/v1/namespaces/churn-{number}")


def _tidy(cp: ControlPlane, nodes: list[str], rounds: int) -> None:
    """As it was before the first round."""
    for number in (rounds - 2, rounds - 1):
        _leave(cp, number)
    edit(cp, "steady", budget(12))
    uncordon(cp, nodes[3])
    set_allocatable(cp, nodes[2], {GPU: 8})
    set_ready(cp, nodes[1], ready=True)


def _namespace(number: int) -> dict[str, object]:
    found = namespace(f"churn-{number}")
    found["metadata"]["labels"] = LABEL
    return found


# --- what is left -------------------------------------------------------------------------------


def _sample(controller: Controller) -> Sample:
    metrics = controller.get("/metrics")[1]
    tasks = re.search(r"^quota_translator_tasks (\S+)$", metrics, re.MULTILINE)
    assert tasks is not None
    process = Path(f"/proc/{controller.pid}")
    pages = int((process / "statm").read_text().split()[1])
    return Sample(
        seconds=time.monotonic(),
        rss=pages * os.sysconf("SC_PAGE_SIZE") / MIB,
        files=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())),
        tasks=float(tasks[1]),
    )


def _check(warm: list[Sample]) -> None:
    """The samples after the warm-up: what each line rises by from its first to its last."""
    clock = [s.seconds for s in warm]
    for name in ("rss", "files", "threads", "tasks"):
        values = [getattr(s, name) for s in warm]
        grown = statistics.linear_regression(clock, values).slope * (clock[-1] - clock[0])
        some = [round(value, 1) for value in values[:: max(1, len(values) // 20)]]
        print(f"{name}: {grown:+.2f} in {len(warm)} rounds, {clock[-1] - clock[0]:.0f} s: {some}")
        assert grown <= getattr(ALLOWED, name), f"{name} grew by {grown:.2f}: {some}"


def _stripped(found: dict[tuple[str, str, str], dict[str, object]]) -> dict[object, object]:
    """Versions and generations went up with the shares that came and went."""
    return {key: item["spec"] for key, item in found.items()}
