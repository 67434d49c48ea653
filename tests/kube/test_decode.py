"""Bytes → records: pages, items, events, and what is none of them."""

import asyncio
import json

import pytest

from quota_translator.core.names import CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, Key
from quota_translator.core.quantity import Quantity
from quota_translator.errors import Gone, Malformed, Unavailable
from quota_translator.kube import decode
from quota_translator.kube.client import Client
from quota_translator.kube.listing import list_all
from tests.kube.objects import kueue, node, quota
from tests.kube.scripted import Reply, Scripted, bookmark, event, failed, listed

NODES = "/api/v1/nodes"


async def names(client: Client) -> tuple[list[str], str]:
    records, version = await list_all(client, decode.WATCHED_NODES)
    return [record.name for record in records], version


async def test_pages_are_put_together(client: Client, server: Scripted) -> None:
    server.on("list", NODES, listed(node("a"), token="t"), listed(token="u"), listed(node("b")))
    assert await names(client) == (["a", "b"], "100")
    assert [asked.query.get("continue") for asked in server.asked] == [None, "t", "u"]


@pytest.mark.case("FC-A10")
async def test_a_token_that_expires_starts_anew_and_keeps_nothing(
    client: Client, server: Scripted
) -> None:
    server.on("list", NODES, listed(node("old"), token="t"), failed(410, "Expired"))
    server.on("list", NODES, listed(node("a"), version="200"))
    assert await names(client) == (["a"], "200")


async def test_a_list_that_always_expires_is_given_up(client: Client, server: Scripted) -> None:
    server.always("list", NODES, failed(410, "Expired"))
    with pytest.raises(Gone):
        await names(client)
    assert server.count("list") == 3


@pytest.mark.case("FC-A10")
async def test_half_a_list_is_no_list(client: Client, server: Scripted) -> None:
    server.on("list", NODES, listed(node("a"), token="t"), failed(503))
    with pytest.raises(Unavailable):
        await names(client)


@pytest.mark.parametrize(
    "body", [b"<html>ok</html>", b"", b'{"items": 5, "metadata": {}}', b'{"kind": "Status"}']
)
async def test_what_is_no_list_is_malformed(client: Client, server: Scripted, body: bytes) -> None:
    server.on("list", NODES, Reply(chunks=[body]))
    with pytest.raises(Malformed):
        await names(client)


async def test_one_unreadable_item_spoils_the_list_and_is_named(
    client: Client, server: Scripted
) -> None:
    server.on("list", NODES, listed(node("a"), node("bad") | {"status": {"allocatable": 7}}))
    with pytest.raises(Malformed, match="Node bad"):
        await names(client)


async def test_the_event_loop_runs_while_a_page_is_read() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    body = listed(*(node(f"n{number}") for number in range(500))).chunks[0]
    ticking = asyncio.create_task(tick())
    records = await decode.read_items(decode.WATCHED_NODES, decode.read_page(body))
    ticking.cancel()
    assert len(records) == 500
    assert ticks >= 500 / decode.SLICE - 1


async def test_a_null_list_is_empty(client: Client, server: Scripted) -> None:
    body = json.dumps({"metadata": {"resourceVersion": "9"}, "items": None}).encode()
    server.on("list", NODES, Reply(chunks=[body]))
    assert await names(client) == ([], "9")


def test_events_carry_their_version() -> None:
    found = decode.read_event(event("ADDED", node("a", version="12")))
    assert (found.type, found.version) == ("ADDED", "12")
    assert decode.read_node(found.object).name == "a"
    assert decode.read_event(bookmark("13")).version == "13"


@pytest.mark.parametrize(
    "line", [b"<html>", b'{"type":"ADDED"}', b"7", b'{"type":"A","obj', b"\xff"]
)
def test_what_is_no_event_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        decode.read_event(line)


def test_a_flavor_is_measured_by_and_may_be_ours() -> None:
    found = kueue(Key(RESOURCE_FLAVOR, "", "f"), "3", spec={"nodeLabels": {"gpu": "a100"}})
    record = decode.read_flavor_record(json.dumps(found).encode())
    assert record.flavor.node_labels == {"gpu": "a100"}
    assert record.observed.key == Key(RESOURCE_FLAVOR, "", "f")
    assert decode.WATCHED_FLAVORS.version(record) == "3"


def test_kueue_objects_come_in_normal_form() -> None:
    flavor = {"name": "f", "resources": [{"name": "g", "nominalQuota": "1k"}]}
    groups = [{"coveredResources": ["g"], "flavors": [flavor]}]
    found = kueue(Key(CLUSTER_QUEUE, "", "q"), spec={"resourceGroups": groups, "other": 1})
    watched = decode.watched_kueue(CLUSTER_QUEUE)
    record = watched.read(json.dumps(found).encode())
    assert watched.key(record) == Key(CLUSTER_QUEUE, "", "q")
    cell = record.spec["resourceGroups"][0]["flavors"][0]["resources"][0]
    assert cell["nominalQuota"] == Quantity.of(1000)
    assert set(record.spec) == {"resourceGroups"}


def test_a_quota_with_any_content_is_read() -> None:
    found = decode.read_quota(json.dumps(quota("a", budgets="nonsense")).encode())
    assert found.name == "a"
    assert found.faults
    with pytest.raises(Malformed):
        decode.read_quota(b"[]")


def test_a_deletes_answer_is_a_status_or_the_object() -> None:
    assert decode.is_status(b'{"kind": "Status", "status": "Success"}')
    assert not decode.is_status(json.dumps(kueue(Key(COHORT, "", "a"))).encode())
    with pytest.raises(Malformed):
        decode.is_status(b"<html>")
