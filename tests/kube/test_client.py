"""One request: what is sent, what is sent again, and what a failure becomes."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import msgspec
import pytest
import trustme

from quota_translator import __version__
from quota_translator.core.names import COHORT, LOCAL_QUEUE, RESOURCE_FLAVOR
from quota_translator.errors import (
    ConfigurationError,
    Forbidden,
    Gone,
    Malformed,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from quota_translator.kube.client import Client, Retries, Timeouts
from quota_translator.kube.config import Connection
from quota_translator.kube.resources import KUEUE, NAMESPACES, NODES, QUOTAS, SECRETS, Resource
from tests.kube.scripted import FakeTime, Reply, Scripted, bookmark, failed, listed, reply, watched

NODE = "/api/v1/nodes/a"
COHORTS = "/apis/kueue.x-k8s.io/v1beta2/cohorts"
SECRETS_OF_NS = msgspec.structs.replace(SECRETS, within="ns")


@pytest.fixture
async def patient(server: Scripted, fake: FakeTime) -> AsyncIterator[Client]:
    """A client with its usual attempts, without real pauses."""
    async with Client(Connection(server.host), sleep=fake.sleep, rand=lambda: 0.5) as found:
        yield found


@pytest.mark.parametrize(
    ("resource", "args", "path"),
    [
        (NODES, ("a",), "/api/v1/nodes/a"),
        (NAMESPACES, (), "/api/v1/namespaces"),
        (QUOTAS, ("root", "", "status"), f"{QUOTAS.root}/acceleratorquotas/root/status"),
        (KUEUE[LOCAL_QUEUE], ("q", "ns"), f"{KUEUE[COHORT].root}/namespaces/ns/localqueues/q"),
        (KUEUE[LOCAL_QUEUE], (), f"{KUEUE[COHORT].root}/localqueues"),
        (KUEUE[RESOURCE_FLAVOR], ("f",), f"{KUEUE[COHORT].root}/resourceflavors/f"),
        (SECRETS_OF_NS, (), "/api/v1/namespaces/ns/secrets"),
        (SECRETS_OF_NS, ("s",), "/api/v1/namespaces/ns/secrets/s"),
        (SECRETS_OF_NS, ("s", "b"), "/api/v1/namespaces/b/secrets/s"),
    ],
)
def test_where_the_api_serves_what(resource: Resource, args: tuple[str, ...], path: str) -> None:
    assert resource.path(*args) == path


async def test_it_says_who_it_is_and_takes_gzip(client: Client, server: Scripted) -> None:
    server.on("get", NODE, reply({"a": 1}))
    assert await client.get(NODES, "a") == b'{"a": 1}'
    headers = server.asked[0].headers
    assert headers["User-Agent"] == f"quota-translator/{__version__}"
    assert headers["Accept-Encoding"] == "gzip"
    assert "Authorization" not in headers


async def test_a_list_page_names_no_version(client: Client, server: Scripted) -> None:
    server.on("list", "/api/v1/nodes", listed(token="t"), listed())
    await client.list_page(NODES)
    await client.list_page(NODES, "t")
    assert [asked.query for asked in server.asked] == [
        {"limit": "500"},
        {"limit": "500", "continue": "t"},
    ]


async def test_a_watch_asks_for_bookmarks_and_an_end(client: Client, server: Scripted) -> None:
    server.on("watch", "/api/v1/nodes", watched(bookmark("7"), then="end"))
    async with client.watch(NODES, "5", seconds=300, silence=5) as stream:
        lines = [line async for line in stream.lines()]
    assert lines == [bookmark("7").strip()]
    assert server.asked[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "300",
        "resourceVersion": "5",
    }
    assert server.asked[0].headers["Accept-Encoding"] == "identity"


async def test_a_watch_may_be_narrowed_to_one_object(client: Client, server: Scripted) -> None:
    server.on("watch", "/api/v1/nodes", watched(then="end"))
    query = {"fieldSelector": "metadata.name=a", "watch": "0"}
    async with client.watch(NODES, "5", seconds=300, silence=5, query=query):
        pass
    assert server.asked[0].query["fieldSelector"] == "metadata.name=a"
    assert server.asked[0].query["watch"] == "1"


async def test_a_watch_that_is_refused_never_opens(client: Client, server: Scripted) -> None:
    server.on("watch", "/api/v1/nodes", failed(410, "Expired"))
    with pytest.raises(Gone):
        async with client.watch(NODES, "5", seconds=300, silence=5):
            pytest.fail("a watch that was answered with 410 is not open")


async def test_a_connection_broken_inside_a_line_is_unavailable(
    client: Client, server: Scripted
) -> None:
    async def follow() -> None:
        async with client.watch(NODES, "5", seconds=300, silence=5) as stream:
            lines.extend([line async for line in stream.lines()])

    lines: list[bytes] = []
    server.on("watch", "/api/v1/nodes", watched(b'{"type":"ADD', then="reset"))
    with pytest.raises(Unavailable, match="connection broken"):
        await follow()
    assert lines == []


# --- again, or not ------------------------------------------------------------------------------


async def test_a_get_is_sent_again_a_few_times(
    patient: Client, server: Scripted, fake: FakeTime
) -> None:
    server.on("get", NODE, failed(503), Reply(then="reset"), reply({}))
    assert await patient.get(NODES, "a") == b"{}"
    assert server.verbs() == ["get"] * 3
    assert fake.slept == [0.1, 0.2]


async def test_in_the_end_the_failure_is_the_callers(patient: Client, server: Scripted) -> None:
    server.always("get", NODE, failed(500, "InternalError", "etcd"))
    with pytest.raises(Unavailable, match="etcd"):
        await patient.get(NODES, "a")
    assert server.count("get") == 3


async def test_what_is_no_fault_of_the_moment_is_asked_once(
    patient: Client, server: Scripted
) -> None:
    with pytest.raises(NotFound):
        await patient.get(NODES, "a")
    assert server.count("get") == 1


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        pytest.param(failed(429, Retry_After="3"), 1.1, id="without-a-time"),
        pytest.param(failed(429, retryAfterSeconds=4), 4.1, id="in-the-body"),
        pytest.param(Reply(429, [b"{}"], {"Retry-After": "3"}), 3.1, id="in-the-header"),
        pytest.param(failed(503, retryAfterSeconds=2), 2.1, id="with-a-503"),
    ],
)
async def test_a_pause_that_the_server_asks_for_is_kept(
    patient: Client, server: Scripted, fake: FakeTime, answer: Reply, pause: float
) -> None:
    server.on("get", NODE, answer, reply({}))
    await patient.get(NODES, "a")
    assert fake.slept == [pytest.approx(pause)]


async def test_a_long_pause_is_left_to_the_caller(patient: Client, server: Scripted) -> None:
    server.on("get", NODE, failed(429, retryAfterSeconds=60))
    with pytest.raises(Throttled) as caught:
        await patient.get(NODES, "a")
    assert caught.value.retry_after == 60
    assert server.count("get") == 1


async def test_a_write_is_never_sent_twice(patient: Client, server: Scripted) -> None:
    server.on("create", COHORTS, failed(500, "InternalError"))
    with pytest.raises(Unavailable) as caught:
        await patient.create(KUEUE[COHORT], {"metadata": {"name": "a"}})
    assert caught.value.outcome_unknown
    assert server.count("create") == 1


# --- writes -------------------------------------------------------------------------------------


async def test_what_writes_look_like(client: Client, server: Scripted) -> None:
    server.always("create", f"{KUEUE[COHORT].root}/namespaces/ns/localqueues", reply({}))
    server.always("patch", f"{COHORTS}/a", reply({}))
    server.always("patch", f"{QUOTAS.root}/acceleratorquotas/a/status", reply({}))
    server.always("delete", f"{COHORTS}/a", reply({}))
    await client.create(KUEUE[LOCAL_QUEUE], {"metadata": {"name": "q", "namespace": "ns"}})
    await client.merge_patch(KUEUE[COHORT], "a", {"metadata": {"uid": "u"}})
    await client.patch_status(QUOTAS, "a", {"status": {"x": None}})
    await client.delete(KUEUE[COHORT], "a", "u")
    assert server.verbs() == ["create", "patch", "patch", "delete"]
    media = [asked.headers["Content-Type"] for asked in server.asked]
    assert media[1:3] == ["application/merge-patch+json"] * 2
    assert server.asked[2].body == {"status": {"x": None}}
    assert server.asked[3].body["preconditions"] == {"uid": "u"}


async def test_a_write_that_nobody_answers_in_time_has_an_unknown_outcome(
    server: Scripted,
) -> None:
    server.always("create", COHORTS, Reply(delay=5))
    async with Client(Connection(server.host), timeouts=Timeouts(write=0.05)) as hasty:
        with pytest.raises(Unavailable) as caught:
            await hasty.create(KUEUE[COHORT], {"metadata": {"name": "a"}})
    assert caught.value.outcome_unknown


async def test_where_nobody_listens_nothing_was_done(server: Scripted) -> None:
    async with Client(Connection("http://127.0.0.1:1")) as lonely:
        with pytest.raises(Unavailable) as caught:
            await lonely.create(KUEUE[COHORT], {"metadata": {"name": "a"}})
    assert not caught.value.outcome_unknown
    assert caught.value.message == "cannot connect: 127.0.0.1:1: Connection refused"


async def test_a_certificate_of_an_authority_that_is_not_trusted_is_named() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    stranger = Scripted()
    await stranger.start(context)
    try:
        async with Client(Connection(stranger.host), retries=Retries(attempts=1)) as client:
            with pytest.raises(Unavailable, match=r"cannot connect: the certificate of 127.0.0.1:"):
                await client.get(KUEUE[COHORT], "a")
    finally:
        await stranger.stop()


# --- discovery, credentials, counting -----------------------------------------------------------


async def test_discovery_tells_versions_and_kinds(client: Client, server: Scripted) -> None:
    server.on("get", "/apis/g", reply({"versions": [{"version": "v2"}, {"version": "v1"}]}))
    kinds = [{"name": "as", "kind": "A"}, {"name": "as/status", "kind": "S"}]
    server.on("get", "/apis/g/v2", reply({"resources": kinds}))
    assert await client.served_versions("g") == ("v2", "v1")
    assert await client.served_kinds("g", "v2") == {"A"}
    server.on("get", "/apis/g", Reply(chunks=[b"<html>"]))
    with pytest.raises(Malformed):
        await client.served_versions("g")


async def test_a_401_renews_the_credentials_once(server: Scripted) -> None:
    asked: list[bool] = []

    async def credentials(anew: bool) -> str:
        asked.append(anew)
        return "Bearer new" if anew else "Bearer old"

    server.on("get", NODE, failed(401, "Unauthorized"), reply({}))
    server.on("get", f"{NODE}b", failed(401), failed(401))
    async with Client(Connection(server.host, credentials=credentials)) as found:
        await found.get(NODES, "a")
        assert [a.headers["Authorization"] for a in server.asked] == ["Bearer old", "Bearer new"]
        with pytest.raises(Unauthorized):
            await found.get(NODES, "ab")
    assert asked == [False, True, False, True]


async def test_credentials_that_cannot_be_renewed_are_unauthorized(server: Scripted) -> None:
    async def broken(_anew: bool) -> str:
        raise ConfigurationError("the exec plugin failed")

    async with Client(Connection(server.host, credentials=broken)) as found:
        with pytest.raises(Unauthorized, match="exec plugin"):
            await found.get(NODES, "a")
    assert server.asked == []


async def test_requests_are_counted_by_verb_kind_and_code(server: Scripted) -> None:
    counted: list[tuple[str, str, str]] = []
    server.on("get", NODE, Reply(403))
    connection = Connection(server.host)
    async with Client(connection, count=lambda *row: counted.append(row)) as found:
        with pytest.raises(Forbidden):
            await found.get(NODES, "a")
        server.on("watch", "/api/v1/nodes", watched(then="end"))
        async with found.watch(NODES, "1", seconds=300, silence=1):
            pass
    assert counted == [("get", "Node", "403"), ("watch", "Node", "200")]


async def test_a_cancelled_watch_lets_go_of_its_connection(
    client: Client, server: Scripted
) -> None:
    async def follow() -> None:
        async with client.watch(NODES, "5", seconds=300, silence=60) as stream:
            opened.set()
            async for _ in stream.lines():
                pass

    opened = asyncio.Event()
    task = asyncio.create_task(follow())
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_retries_are_few_by_default() -> None:
    assert Retries().attempts == 3
