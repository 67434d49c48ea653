"""How long the admission webhook takes, TLS and the list of the tree included.

`webhook` serves the program's own webhook in front of a recorded tree. `python -m bench.webhook`, a
process of its own, calls it: a share is raised by one, by so many callers at once. The "echo" is a
request that the webhook has no opinion on: what HTTP, TLS and the caller cost by themselves.
"""

import asyncio
import contextlib
import json
import ssl
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from bench.replay import RecordedClient, load, pages
from bench.trees import OPTIONS
from quota_translator.app import now
from quota_translator.certs.pairs import issue
from quota_translator.certs.tls import hold
from quota_translator.core.names import CLUSTER_QUEUE, QUOTA_KIND
from quota_translator.core.webhookconfig import PATH
from quota_translator.kube.decode import WATCHED_NODES
from quota_translator.kube.listing import list_all
from quota_translator.kube.livetree import LiveTree
from quota_translator.kube.resources import QUOTAS
from quota_translator.webhook import Webhook

ADDRESS: Final = "127.0.0.1:0"
Figures = Iterator[tuple[str, str, float]]
# How many call at once, and how many calls are measured in all.
CALLERS: Final[dict[int, int]] = {1: 100, 16: 320, 64: 640}
ECHO: Final = "CONNECT"
EDIT: Final = "UPDATE"
_DIFFERENT: Final = 50  # edits that the callers take in turns


def webhook(place: Path) -> Figures:
    """Edits of a sound tree, each answered from a list that was made for it."""
    yield from asyncio.run(_measured(place))


async def _measured(place: Path) -> list[tuple[str, str, float]]:
    found: list[tuple[str, str, float]] = []
    async with _served(place) as port:
        for callers, count in CALLERS.items():
            for what, operation in (("webhook", EDIT), ("webhook echo", ECHO)):
                took = await _calls(place, port, operation, callers, count)
                found += _summed(f"{what}, {callers} at once", took)
        async with _decoding(place):
            took = await _calls(place, port, EDIT, 1, CALLERS[1])
        found += _summed("webhook while nodes are read", took)
    return found


@asynccontextmanager
async def _served(place: Path) -> AsyncIterator[int]:
    world = load(place)
    client: Any = RecordedClient(place)
    moment = now()
    tls = hold(issue(["127.0.0.1"], 3600.0, moment.wall), moment).context
    seen: list[str] = []
    quotas = {quota.name: quota for quota in world.quotas or ()}  # as a watch would hold them
    served = Webhook(
        ADDRESS,
        tls,
        LiveTree(client, quotas.get),
        lambda: world,
        OPTIONS,
        frozenset(),
        lambda _operation, outcome, _reason, _seconds: seen.append(outcome),
    )
    await served.start()
    try:
        yield served.bound()[1]
    finally:
        await served.stop()
    assert set(seen) <= {"allowed", "warned"}, set(seen)


@asynccontextmanager
async def _decoding(place: Path) -> AsyncIterator[None]:
    """All nodes of the cluster are read over and over, as after watches that broke."""
    client: Any = RecordedClient(place)

    async def read() -> None:
        while True:
            await list_all(client, WATCHED_NODES)

    reading = asyncio.create_task(read())
    try:
        yield
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading


async def _calls(place: Path, port: int, operation: str, callers: int, count: int) -> list[float]:
    """Seconds of each call, made by another process."""
    arguments = (str(place), str(port), operation, str(callers), str(count))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.webhook", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    took: list[float] = json.loads(output)
    return took


def _summed(figure: str, took: list[float]) -> list[tuple[str, str, float]]:
    percentiles = statistics.quantiles(took, n=100)
    return [(f"{figure}: p50", "s", percentiles[49]), (f"{figure}: p99", "s", percentiles[98])]


# --- the callers ------------------------------------------------------------------------------


def edits(place: Path, operation: str) -> list[bytes]:
    """AdmissionReviews: one share of a team is raised by one, for some of the teams."""
    items = (orjson.loads(page)["items"] for page in pages(place, QUOTAS))
    teams = (quota for found in items for quota in found if quota["spec"]["role"] == CLUSTER_QUEUE)
    return [orjson.dumps(_review(quota, operation)) for quota in islice(teams, _DIFFERENT)]


def _review(quota: dict[str, Any], operation: str) -> dict[str, Any]:
    raised = deepcopy(quota)
    share = raised["spec"]["budgets"][0]
    share["nominal"] = str(int(share["nominal"]) + 1)  # which its group has room for
    group, version, kind = QUOTAS.group, QUOTAS.version, QUOTA_KIND
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": quota["metadata"]["uid"],
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": QUOTAS.plural},
            "name": quota["metadata"]["name"],
            "operation": operation,
            "object": raised,
            "oldObject": quota,
        },
    }


async def _call(port: int, bodies: list[bytes], callers: int, count: int) -> list[float]:
    took: list[float] = []
    work = iter(islice(cycle(bodies), count + callers))
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=trust, limit=callers)
    url, headers = f"https://127.0.0.1:{port}{PATH}", {"Content-Type": "application/json"}

    async def caller(session: aiohttp.ClientSession) -> None:
        for number, body in enumerate(work):
            started = time.perf_counter()
            async with session.post(url, data=body, headers=headers) as answer:
                assert (await answer.json())["response"]["allowed"] is True
            if number:  # the first one pays for the handshake, which the API server seldom does
                took.append(time.perf_counter() - started)

    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(caller(session) for _ in range(callers)))
    return took


def main() -> None:
    """Print the seconds of each call as JSON."""
    place, port, operation, callers, count = sys.argv[1:]
    bodies = edits(Path(place), operation)
    took = asyncio.run(_call(int(port), bodies, int(callers), int(count)))
    sys.stdout.write(json.dumps(took))


if __name__ == "__main__":
    main()
