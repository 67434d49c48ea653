"""The Event objects that are sent."""

from datetime import UTC, datetime

import pytest

from quota_translator.core.happenings import Happening
from quota_translator.errors import NotFound
from quota_translator.kube.client import Client
from quota_translator.kube.events import MESSAGE_LIMIT, EventSink, event
from tests.kube.scripted import Scripted, failed, reply

ALL = "/api/v1/namespaces/default/events"
FIRST = datetime(2026, 11, 30, 9, 0, 0, tzinfo=UTC)
LAST = datetime(2026, 11, 30, 9, 5, 0, tzinfo=UTC)
FROZE = Happening("ml", "ml-uid", "Frozen", "ContainmentViolated: 24 but its children total 28")


async def test_an_event_names_the_object_with_its_uid(client: Client, server: Scripted) -> None:
    server.on("create", ALL, reply({}, status=201))
    name = await EventSink(client, "replica-1").create(FROZE, FIRST, LAST, 3)

    assert name.startswith("ml.")
    assert server.last("create").body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {
            "apiVersion": "quota-translator.dev/v1beta1",
            "kind": "AcceleratorQuota",
            "name": "ml",
            "uid": "ml-uid",
        },
        "type": "Warning",
        "reason": "Frozen",
        "message": "ContainmentViolated: 24 but its children total 28",
        "source": {"component": "quota-translator"},
        "reportingComponent": "quota-translator",
        "reportingInstance": "replica-1",
        "firstTimestamp": "2026-11-30T09:00:00Z",
        "lastTimestamp": "2026-11-30T09:05:00Z",
        "count": 3,
    }


async def test_the_same_again_is_a_count(client: Client, server: Scripted) -> None:
    server.on("patch", f"{ALL}/ml.1", reply({}), failed(404, "NotFound", "it is gone"))
    sink = EventSink(client, "replica-1")
    await sink.count("ml.1", LAST, 7)

    assert server.last("patch").body == {"count": 7, "lastTimestamp": "2026-11-30T09:05:00Z"}
    with pytest.raises(NotFound):
        await sink.count("ml.1", LAST, 8)


def test_a_long_message_is_cut_and_a_long_name_leaves_room_for_its_ending() -> None:
    long = Happening("n" * 253, "u", "Thawed", "x" * 5000)
    found = event(long, "name", "replica-1", FIRST, LAST, 1)
    assert len(found["message"]) == MESSAGE_LIMIT
    assert found["message"].endswith("x…")
    assert found["type"] == "Normal"


async def test_names_of_events_are_valid_for_every_node(client: Client, server: Scripted) -> None:
    server.always("create", ALL, reply({}, status=201))
    long = Happening("n" * 253, "u", "Frozen", "it is")
    names = {await EventSink(client, "r").create(long, FIRST, LAST, 1) for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) <= 253 for name in names)
