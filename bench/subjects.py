"""What is measured. Each subject runs in a process of its own: `python -m bench.subjects`.

A subject is a generator of (figure, unit, value); times are CPU seconds of the whole process, so
that neighbours on the machine disturb them less, memory is in MiB.
"""

import asyncio
import gc
import importlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from bench.recording import MOMENT
from bench.replay import RecordedClient, load, load_live, pages
from bench.trees import OPTIONS
from bench.webhook import webhook
from quota_translator.app import freeze_imports
from quota_translator.core.absorb import absorb
from quota_translator.core.capacity import measure
from quota_translator.core.highwater import advance
from quota_translator.core.report import report
from quota_translator.core.results import Results
from quota_translator.core.translate import Translation, remember, translate
from quota_translator.core.world import Clock, Memory, Node, World
from quota_translator.kube.cluster import KubeCluster
from quota_translator.kube.decode import WATCHED_NODES, read_items, read_page

Figures = Iterator[tuple[str, str, float]]
RUNS: Final = 5
_BEAT: Final = 0.002


def memory(field: str = "VmRSS") -> float:
    """MiB resident now, or (VmHWM) at most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/self/status has no {field}")


def _timed(function: Callable[[], Any], runs: int = RUNS) -> Iterator[float]:
    for _ in range(runs):
        started = time.process_time()
        function()
        yield time.process_time() - started


def yardstick(_place: Path) -> Figures:
    """The same plain work at every size and commit: how fast the machine is at this moment."""

    def work() -> None:
        found = {f"{number}": (number, number * number) for number in range(50_000)}
        sum(square for _, square in sorted(found.values()))

    for spent in _timed(work, 2 * RUNS):
        yield "yardstick", "s", spent


# --- the subjects -----------------------------------------------------------------------------


def decode(place: Path) -> Figures:
    """A node list, from the bytes of its pages to records, page by page."""
    before = memory()
    records, spent = asyncio.run(_decoded(place))
    yield "decode nodes", "s", spent
    gc.collect()
    yield "decode nodes: held", "MiB", memory() - before
    yield "decode nodes: peak", "MiB", memory("VmHWM") - before
    assert records


async def _decoded(place: Path) -> tuple[list[Node], float]:
    """Reading the file is not part of it: from a server the bytes come by themselves."""
    records: list[Node] = []
    spent = 0.0
    for body in pages(place, WATCHED_NODES.resource):
        started = time.process_time()
        records += await read_items(WATCHED_NODES, read_page(body))
        spent += time.process_time() - started
    return records, spent


def measuring(place: Path) -> Figures:
    """One measurement: attribution, sums, and the marks after it."""
    world = load(place)
    assert world.nodes is not None
    assert world.flavors is not None
    nodes, flavors = world.nodes, world.flavors
    named = frozenset(budget.flavor for node in world.quotas or () for budget in node.budgets)
    rows = remember(world.quotas or ()).capacity

    def once() -> None:
        reading = measure(nodes, flavors, OPTIONS.capacity.resources, named)
        advance(rows, reading, OPTIONS.capacity, MOMENT, heard=True)

    for run in range(2 * RUNS):
        nodes = tuple(map(copy, nodes))  # nothing can be known of any of them
        for spent in _timed(once, 1):
            yield "measure + marks", "s", spent
        at = run * 997 % len(nodes)
        nodes = (*nodes[:at], msgspec.structs.replace(nodes[at], cordoned=True), *nodes[at + 1 :])
        for spent in _timed(once, 1):
            yield "measure again after one event", "s", spent


def cold(place: Path) -> Figures:
    """The first pass of a process, with nothing in Kueue: every object is to be created."""
    world = load(place)
    before = memory()
    found: list[Translation] = []
    for spent in _timed(lambda: found.append(_pass(world, remember(world.quotas or ()))), 1):
        yield "pipeline cold", "s", spent
    assert found[0].plan.actions
    yield "pipeline cold: held", "MiB", memory() - before


def unchanged(place: Path) -> Figures:
    """Passes over a cluster in which everything is as it should be, and their statuses."""
    world = load_live(place, load(place))
    beliefs, first = _settled(world)
    assert not first.plan.actions
    for spent in _timed(lambda: _pass(world, beliefs)):
        yield "pipeline unchanged", "s", spent
    for spent in _timed(lambda: _statuses(world, first)):
        yield "statuses", "s", spent


def sync(place: Path) -> Figures:
    """The program's own reading of a cluster, from nothing to a pass and its statuses."""
    for module in ("cli", "health", "metrics", "kube.config"):
        importlib.import_module(f"quota_translator.{module}")  # the whole program, as it would be
    freeze_imports()
    yield "imports: RSS", "MiB", memory()
    yield from asyncio.run(_synced(place))


async def _synced(place: Path) -> list[tuple[str, str, float]]:
    client: Any = RecordedClient(place)
    cluster = KubeCluster(client, OPTIONS.materialize.manager)
    pulse = _Pulse()
    beating = asyncio.create_task(pulse.run())
    started = time.process_time()
    changed = asyncio.Event()
    await cluster.start(lambda _kind: changed.set())
    while not all(state.synced for state in cluster.sync_states().values()):
        await changed.wait()
        changed.clear()
    found = [
        ("sync: CPU", "s", time.process_time() - started),
        ("sync: longest block", "s", pulse.longest),
        ("sync: RSS", "MiB", memory()),
        ("sync: peak RSS", "MiB", memory("VmHWM")),
    ]
    world = cluster.snapshot()
    beliefs, first = await asyncio.to_thread(_settled, world)
    found.append(("after a pass: RSS", "MiB", memory()))
    told = await asyncio.to_thread(_statuses, world, first)
    found.append(("after statuses: RSS", "MiB", memory()))
    pulse.latest = 0.0
    for _ in range(3):
        first = await asyncio.to_thread(_pass, world, beliefs)
        told = await asyncio.to_thread(_statuses, world, first)
    found += [
        ("passes in a thread: longest wait", "s", pulse.latest),
        ("after four passes: RSS", "MiB", memory()),
        ("after four passes: peak RSS", "MiB", memory("VmHWM")),
    ]
    assert told
    beating.cancel()
    await cluster.stop()
    return found


class _Pulse:
    """How long others on the event loop had to wait.

    `longest` is what the loop's own thread worked at most without letting them run: its CPU time,
    because on a busy machine the wall clock mostly tells of neighbours. `latest` is by that clock:
    a pass in another thread takes turns with the loop, and stops it while garbage is collected.
    """

    def __init__(self) -> None:
        self.longest = self.latest = 0.0

    async def run(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest = max(self.longest, time.thread_time() - before)
            before = time.perf_counter()
            await asyncio.sleep(_BEAT)
            self.latest = max(self.latest, time.perf_counter() - before - _BEAT)


# --- passes -----------------------------------------------------------------------------------


def _pass(world: World, beliefs: Memory, clock: Clock = MOMENT) -> Translation:
    return translate(world, beliefs, OPTIONS, clock)


def _settled(world: World) -> tuple[Memory, Translation]:
    """What is believed after a first pass, and a second pass on that."""
    first = _pass(world, remember(world.quotas or ()))
    beliefs = absorb(first.memory, world, first.rendering, first.plan, Results(), MOMENT)
    return beliefs, _pass(world, beliefs)


def _statuses(world: World, found: Translation) -> dict[str, dict[str, Any]]:
    return report(found, world, OPTIONS, MOMENT)


SUBJECTS: Final[dict[str, Callable[[Path], Figures]]] = {
    "yardstick": yardstick,
    "decode": decode,
    "measuring": measuring,
    "cold": cold,
    "unchanged": unchanged,
    "sync": sync,
    "webhook": webhook,
}


def main() -> None:
    """Print what a subject finds as JSON lines. Arguments: subject, folder of the recording."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    subject, place = sys.argv[1:]
    for figure, unit, value in SUBJECTS[subject](Path(place)):
        sys.stdout.write(json.dumps([figure, unit, value]) + "\n")


if __name__ == "__main__":
    main()
