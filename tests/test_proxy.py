"""The fault proxy of the end-to-end tests does what it is told, in front of a scripted server."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import trustme

from e2e.controlplane.cluster import ControlPlane
from e2e.faults import actions
from e2e.proxy import FaultProxy
from tests.kube.scripted import Scripted, bookmark, event, failed, listed, status, watched

PATH = "/api/v1/nodes"


class Plane:
    """All that the proxy asks of a control plane."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.ca = folder / "ca.crt"
        trustme.CA().cert_pem.write_to_path(self.ca)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    await scripted.start()
    scripted.always("list", PATH, listed(version="7"))
    yield scripted
    await scripted.stop()


@pytest.fixture
def proxy(server: Scripted, tmp_path: Path) -> Iterator[FaultProxy]:
    with FaultProxy(cast("ControlPlane", Plane(server.host, tmp_path))) as found:
        yield found


@pytest.fixture
async def session(proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    tls = ssl.create_default_context(cadata=proxy.ca.decode())
    headers = {"Authorization": "Bearer abc"}
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(proxy.url, connector=connector, headers=headers) as found:
        yield found


async def asked(session: aiohttp.ClientSession, **query: str) -> tuple[int, Any]:
    async with session.get(PATH, params={"limit": "500"} | query) as response:
        body = await response.read()
        return response.status, json.loads(body) if body else None


async def test_what_no_rule_takes_passes_with_its_token(
    server: Scripted, proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    code, found = await asked(session)
    assert (code, found["metadata"]["resourceVersion"]) == (200, "7")
    assert server.asked[0].headers["Authorization"] == "Bearer abc"
    assert [str(seen) for seen in proxy.seen()] == [f"list {PATH} 200"]


async def test_a_rule_skips_takes_and_ends(
    server: Scripted, proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    proxy.when("list", "/nodes$", do=actions.status(503, header=4), skip=1, times=2)
    assert [(await asked(session))[0] for _ in range(4)] == [200, 503, 503, 200]
    assert server.count("list") == 2
    with proxy.when("list", do=actions.raw(500), times=None, where=lambda s: "x" in s.query):
        assert [(await asked(session))[0], (await asked(session, x="1"))[0]] == [200, 500]
    assert (await asked(session, x="1"))[0] == 200


async def test_answers_are_edited(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    proxy.when(do=actions.edited(lambda found: found["metadata"].update(resourceVersion="1")))
    assert (await asked(session))[1]["metadata"]["resourceVersion"] == "1"


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_breaks_before_or_after_the_server_is_asked(
    server: Scripted, proxy: FaultProxy, session: aiohttp.ClientSession, after: bool
) -> None:
    proxy.when(do=actions.reset(after=after))
    with pytest.raises(aiohttp.ClientError):
        await session.post(PATH, json={})
    assert server.count("create") == int(after)
    assert proxy.seen()[0].outcome == "reset"


async def test_what_hangs_is_let_go(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    rule = proxy.when(do=actions.hang())
    hanging = asyncio.create_task(asked(session))
    while not rule.seen:
        await asyncio.sleep(0.01)
    assert not hanging.done()
    rule.end()
    assert (await hanging)[0] == 200


async def test_nobody_listens_for_a_while(
    proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    with proxy.down(), pytest.raises(aiohttp.ClientConnectionError):
        await asked(session)
    assert (await asked(session))[0] == 200


async def test_a_watch_is_muted_added_to_and_cut(
    server: Scripted, proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    server.on("watch", PATH, watched(bookmark("8")), watched(bookmark("9")))
    query = {"watch": "1", "resourceVersion": "7"}
    async with session.get(PATH, params=query) as response:
        assert json.loads(await response.content.readline())["type"] == "BOOKMARK"
        assert proxy.watching("/nodes$") == 1
        assert proxy.send("/nodes$", event("ADDED", {})) == 1
        assert json.loads(await response.content.readline())["type"] == "ADDED"
        proxy.cut("/nodes$", b'{"half', how="end")
        assert await response.content.read() == b'{"half'
    assert proxy.seen()[0].version == "8"
    with proxy.mute("/nodes$"):
        async with session.get(PATH, params=query) as response:
            proxy.cut("/nodes$", actions.expired())
            (line,) = (await response.content.read()).splitlines()
    assert json.loads(line)["object"]["code"] == 410


async def test_a_watch_that_is_refused_is_refused_by_the_proxy_too(
    server: Scripted, proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    server.on("watch", PATH, failed(410, "Expired", "too old"))
    async with session.get(PATH, params={"watch": "1"}) as response:
        assert (response.status, await response.json()) == (410, status(410, "Expired", "too old"))
