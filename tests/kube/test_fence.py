"""What no leader sends any more, and how one stops who still may."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from quota_translator.core.names import COHORT
from quota_translator.errors import NotLeading
from quota_translator.kube.client import Client, Retries
from quota_translator.kube.config import Connection
from quota_translator.kube.resources import KUEUE
from tests.kube.scripted import Reply, Scripted, reply, until

COHORTS = KUEUE[COHORT].path()
BODY = {"metadata": {"name": "a"}}


class Leader:
    leads = True

    def __call__(self) -> bool:
        return self.leads


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
async def client(server: Scripted, leader: Leader) -> AsyncIterator[Client]:
    connection = Connection(server.host)
    async with Client(connection, retries=Retries(attempts=1), may_write=leader) as found:
        yield found


async def test_who_does_not_lead_writes_nothing_and_reads_all_the_same(
    client: Client, server: Scripted, leader: Leader
) -> None:
    leader.leads = False
    server.always("get", f"{COHORTS}/a", reply(BODY))
    for write in (
        client.create(KUEUE[COHORT], BODY),
        client.merge_patch(KUEUE[COHORT], "a", {}),
        client.patch_status(KUEUE[COHORT], "a", {}),
        client.delete(KUEUE[COHORT], "a", "u"),
    ):
        with pytest.raises(NotLeading, match="Cohort: this process does not lead"):
            await write
    await client.get(KUEUE[COHORT], "a")
    assert server.verbs() == ["get"]


@pytest.mark.case("fault 33")
async def test_the_question_is_asked_again_when_credentials_and_connection_are_there(
    server: Scripted, leader: Leader
) -> None:
    """A program that gives credentials may take a minute, and the process may be stopped."""

    async def credentials(_anew: bool) -> str:
        leader.leads = False
        return "Bearer token"

    async with Client(Connection(server.host, credentials=credentials), may_write=leader) as client:
        with pytest.raises(NotLeading, match=f"POST {COHORTS}"):
            await client.create(KUEUE[COHORT], BODY)
        server.on("get", f"{COHORTS}/a", reply(BODY))
        await client.get(KUEUE[COHORT], "a")  # the connection is still good
    assert server.verbs() == ["get"]


@pytest.mark.case("fault 31")
async def test_behind_a_closed_fence_what_is_on_its_way_ends_and_nothing_begins(
    client: Client, server: Scripted
) -> None:
    server.always("create", COHORTS, Reply(201, [b"{}"], delay=0.2))
    under_way = [asyncio.create_task(client.create(KUEUE[COHORT], BODY)) for _ in range(4)]
    await until(lambda: server.count("create") == 4)
    assert await client.fence.close(5.0)
    assert [await task for task in under_way] == [b"{}"] * 4

    late = asyncio.create_task(client.create(KUEUE[COHORT], BODY))
    assert not (await asyncio.wait({late}, timeout=0.05))[0]
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert server.count("create") == 4


async def test_what_does_not_end_is_not_waited_for(client: Client, server: Scripted) -> None:
    server.always("create", COHORTS, Reply(then="hang"))
    hanging = asyncio.create_task(client.create(KUEUE[COHORT], BODY))
    await until(lambda: server.count("create") == 1)
    assert not await client.fence.close(0.05)
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert await client.fence.close(0.05)
