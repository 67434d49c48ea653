"""Live lists on demand: fresh for everybody, and never more than two at a time."""

from __future__ import annotations

import asyncio
import gc

import pytest

from quota_translator.core.world import QuotaNode
from quota_translator.errors import ApiError, Unavailable
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from quota_translator.kube.livetree import LiveTree
from tests.kube.scripted import HANG, Reply, Scripted, failed, listed

PATH = "/apis/quota-translator.dev/v1beta1/acceleratorquotas"


def quota(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"role": "Cohort"}}


def slow(*names: str) -> Reply:
    answer = listed(*map(quota, names))
    answer.delay = 0.05
    return answer


@pytest.fixture
def client(server: Scripted) -> Client:
    return Client(Connection(server.host), retries=Retries(attempts=1))


async def seen(live: LiveTree) -> list[str]:
    return [node.name for node in await live.nodes()]


@pytest.mark.case("A-53")
async def test_one_list_serves_all_who_asked_before_it_was_sent(
    server: Scripted, client: Client
) -> None:
    server.on("list", PATH, slow("a"), slow("a", "b"), slow("a", "b", "c"))
    live = LiveTree(client)
    async with client:
        first = [asyncio.create_task(seen(live)) for _ in range(20)]
        while not server.asked:
            await asyncio.sleep(0.001)
        second = [asyncio.create_task(seen(live)) for _ in range(20)]  # one is under way already
        assert await asyncio.gather(*first) == [["a"]] * 20
        assert await asyncio.gather(*second) == [["a", "b"]] * 20
        assert server.count("list") == 2
        assert await seen(live) == ["a", "b", "c"]
        assert server.count("list") == 3


async def test_a_failure_is_told_to_those_who_waited_for_it_only(
    server: Scripted, client: Client
) -> None:
    server.on("list", PATH, failed(500, "InternalError", "etcd"), listed(quota("a")))
    live = LiveTree(client)
    async with client:
        found = await asyncio.gather(*(live.nodes() for _ in range(5)), return_exceptions=True)
        assert [type(error).__mro__[1] for error in found] == [ApiError] * 5
        assert await seen(live) == ["a"]


async def test_a_list_that_takes_too_long_is_a_clear_failure(
    server: Scripted, client: Client
) -> None:
    server.on("list", PATH, HANG, listed(quota("a")))
    live = LiveTree(client, seconds=0.1)
    async with client:
        with pytest.raises(Unavailable, match=r"took more than 0\.1 s"):
            await live.nodes()
        assert await seen(live) == ["a"]


async def test_who_goes_away_does_not_take_the_list_from_the_others(
    server: Scripted, client: Client
) -> None:
    server.on("list", PATH, slow("a"))
    live = LiveTree(client)
    async with client:
        one, other = (asyncio.create_task(seen(live)) for _ in range(2))
        await asyncio.sleep(0.01)
        one.cancel()
        assert await other == ["a"]
        assert server.count("list") == 1


async def test_a_record_that_a_watch_brought_is_taken_where_the_version_is_the_same(
    server: Scripted, client: Client
) -> None:
    def listing(version: str, uid: str = "u-a", **spec: str) -> Reply:
        metadata = {"name": "a", "uid": uid, "resourceVersion": version}
        return listed({"metadata": metadata, "spec": {"role": "Cohort"} | spec})

    watched = QuotaNode("a", "Cohort", uid="u-a", resource_version="7")
    server.on("list", PATH, listing("7"), listing("8", role="Team"), listing("7", "u-b"))
    live = LiveTree(client, {"a": watched}.get)
    async with client:
        assert (await live.nodes())[0] is watched
        assert (await live.nodes())[0].role == "Team"
        (made_anew,) = await live.nodes()
        assert made_anew.uid == "u-b"


async def test_a_strange_item_is_read_as_far_as_it_can_be(server: Scripted, client: Client) -> None:
    server.on("list", PATH, listed({"metadata": 3}), listed({"spec": {"role": "Cohort"}}))
    live = LiveTree(client, {"": QuotaNode("", "Cohort")}.get)
    async with client:
        assert [node.name for node in await live.nodes()] == [""]
        assert [node.role for node in await live.nodes()] == ["Cohort"]


async def test_a_failure_that_nobody_waits_for_any_more_is_no_noise(
    server: Scripted, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = failed(500, "InternalError", "etcd")
    answer.delay = 0.05
    server.on("list", PATH, answer, listed(quota("a")))
    live = LiveTree(client)
    async with client:
        asking = asyncio.create_task(live.nodes())
        await asyncio.sleep(0.01)
        asking.cancel()
        assert await seen(live) == ["a"]
        gc.collect()
        assert caplog.records == []
