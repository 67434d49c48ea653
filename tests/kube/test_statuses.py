"""Status patches and the creation of root."""

from typing import Any

import pytest

from quota_translator.core.world import QuotaNode
from quota_translator.errors import Forbidden
from quota_translator.kube.client import Client
from quota_translator.kube.decode import WATCHED_QUOTAS, read_quota
from quota_translator.kube.resources import QUOTAS
from quota_translator.kube.statuses import Statuses
from quota_translator.kube.store import Store
from tests.kube.objects import quota
from tests.kube.scripted import FakeTime, Reply, Scripted, failed, reply

ROOT, TEAM = QUOTAS.path("root", "", "status"), QUOTAS.path("team", "", "status")
RBAC = 'User "u" cannot create resource "acceleratorquotas" in API group "quota-translator.dev"'


class Bench:
    def __init__(self, client: Client, fake: FakeTime) -> None:
        self.dirty: list[str] = []
        self.store = Store[str, QuotaNode](
            "AcceleratorQuota", WATCHED_QUOTAS.key, WATCHED_QUOTAS.version, self.dirty.append
        )
        self.statuses = Statuses(client, self.store, now=fake.now, sleep=fake.sleep)

    def holds(self, name: str, version: str = "5", **options: Any) -> QuotaNode:
        node = read_quota(reply(quota(name, version, **options)).chunks[0])
        self.store.put_answer(node, quiet=True)
        return node


@pytest.fixture
async def bench(client: Client, fake: FakeTime) -> Bench:
    return Bench(client, fake)


async def test_a_status_patch_sends_what_differs_and_nulls_what_goes(
    bench: Bench, server: Scripted
) -> None:
    held = bench.holds("team", status={"path": "root/team", "summary": "8", "parent": "root"})
    after = quota("team", "6", {"path": "root/team", "summary": "9"})
    server.on("patch", TEAM, reply(after))
    result = await bench.statuses.write(held, {"path": "root/team", "summary": "9"})
    assert result.outcome == "written"
    assert server.last("patch").body == {
        "metadata": {"uid": "u-team"},
        "status": {"summary": "9", "parent": None},
    }
    assert bench.store.get("team") == result.record
    assert bench.dirty == []  # our own status asks for no pass


async def test_an_equal_status_is_not_sent(bench: Bench, server: Scripted) -> None:
    held = bench.holds("team", status={"summary": "8"})
    assert (await bench.statuses.write(held, {"summary": "8"})).outcome == "unchanged"
    assert server.asked == []


async def test_an_edit_that_the_answer_shows_first_is_not_lost(
    bench: Bench, server: Scripted
) -> None:
    held = bench.holds("team")
    edited = quota("team", "7", {"summary": "1"}, generation=2, priorityTier="high")
    server.on("patch", TEAM, reply(edited))
    await bench.statuses.write(held, {"summary": "1"})
    assert bench.dirty == ["AcceleratorQuota"]


async def test_root_is_written_over_the_version_it_was_computed_from(
    bench: Bench, server: Scripted
) -> None:
    held = bench.holds("root", "5")
    server.on("patch", ROOT, failed(409, "Conflict", "modified"))
    server.on("get", QUOTAS.path("root"), reply(quota("root", "8", {"summary": "other"})))
    result = await bench.statuses.write(held, {"summary": "mine"})
    assert result.outcome == "conflict"
    assert server.last("patch").body["metadata"] == {"uid": "u-root", "resourceVersion": "5"}
    read = bench.store.get("root")
    assert read is not None
    assert (read.resource_version, read.status) == ("8", {"summary": "other"})
    assert bench.dirty == ["AcceleratorQuota"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        pytest.param(failed(404, "NotFound"), "conflict", id="gone"),
        pytest.param(failed(422, "Invalid", "too long"), "refused", id="refused"),
        pytest.param(failed(503), "unavailable", id="unavailable"),
        pytest.param(failed(429, retryAfterSeconds=60), "throttled", id="throttled"),
        pytest.param(failed(401), "failed", id="unauthorized"),
    ],
)
async def test_a_status_that_is_not_taken_is_told_apart(
    bench: Bench, server: Scripted, answer: Reply, outcome: str
) -> None:
    held = bench.holds("team")
    server.always("patch", TEAM, answer)
    result = await bench.statuses.write(held, {"summary": "1"})
    assert result.outcome == outcome
    assert result.record is None


async def test_a_node_that_went_or_came_again_is_not_written(
    bench: Bench, server: Scripted
) -> None:
    held = bench.holds("team")
    bench.store.remove_answer("team")
    assert (await bench.statuses.write(held, {"summary": "1"})).outcome == "conflict"
    again = quota("team", "9")
    again["metadata"]["uid"] = "another"
    bench.store.put_answer(read_quota(reply(again).chunks[0]))
    assert (await bench.statuses.write(held, {"summary": "1"})).outcome == "conflict"
    assert server.asked == []


async def test_a_conflict_about_an_object_that_is_gone(bench: Bench, server: Scripted) -> None:
    held = bench.holds("root")
    server.on("patch", ROOT, failed(409, "Conflict"), failed(409, "Conflict"))
    server.on("get", QUOTAS.path("root"), failed(503))
    assert (await bench.statuses.write(held, {"summary": "1"})).outcome == "unavailable"
    assert (await bench.statuses.write(held, {"summary": "1"})).outcome == "conflict"
    assert bench.store.get("root") is None


NODE = QUOTAS.path("team")


def bearing(*finalizers: str, version: str = "6", deleting: bool = False) -> dict[str, Any]:
    found = quota("team", version)
    found["metadata"]["finalizers"] = list(finalizers)
    if deleting:
        found["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    return found


async def test_a_finalizer_is_written_over_the_version_it_was_computed_from(
    bench: Bench, server: Scripted
) -> None:
    held = bench.holds("team")
    server.on("patch", NODE, reply(bearing("others", "ours")))
    result = await bench.statuses.write_metadata(held, {"finalizers": ["others", "ours"]})
    assert result.outcome == "written"
    assert server.last("patch").body == {
        "metadata": {"finalizers": ["others", "ours"], "uid": "u-team", "resourceVersion": "5"}
    }
    assert result.record is not None
    assert result.record.finalizers == ("others", "ours")
    assert bench.store.get("team") == result.record
    assert bench.dirty == []  # nobody needs a pass because of it


async def test_a_node_that_nothing_holds_any_more_is_gone(bench: Bench, server: Scripted) -> None:
    held = bench.holds("team")
    server.on("patch", NODE, reply(bearing("others", deleting=True)))
    assert (await bench.statuses.write_metadata(held, {"finalizers": ["others"]})).record
    assert bench.store.get("team") is not None
    left = bench.store.get("team")
    assert left is not None
    server.on("patch", NODE, reply(bearing(deleting=True, version="7")))
    assert (await bench.statuses.write_metadata(left, {"finalizers": []})).outcome == "written"
    assert bench.store.get("team") is None


async def test_finalizers_that_somebody_else_changed_meanwhile_are_read_again(
    bench: Bench, server: Scripted
) -> None:
    held = bench.holds("team")
    server.on("patch", NODE, failed(409, "Conflict", "modified"))
    server.on("get", NODE, reply(bearing("others", version="8")))
    result = await bench.statuses.write_metadata(held, {"finalizers": ["ours"]})
    assert result.outcome == "conflict"
    read = bench.store.get("team")
    assert read is not None
    assert read.finalizers == ("others",)
    bench.store.remove_answer("team")
    assert (await bench.statuses.write_metadata(held, {})).outcome == "conflict"


async def test_root_is_created_or_taken(bench: Bench, server: Scripted) -> None:
    server.on("create", QUOTAS.path(), reply(quota("root", "3"), status=201))
    await bench.statuses.create_root()
    assert server.last("create").body["metadata"] == {"name": "root"}
    assert bench.store.get("root") is not None
    server.on("create", QUOTAS.path(), failed(409, "AlreadyExists"))
    server.on("get", QUOTAS.path("root"), reply(quota("root", "4")))
    await bench.statuses.create_root()
    found = bench.store.get("root")
    assert found is not None
    assert found.resource_version == "4"


async def test_root_that_may_not_be_created_is_the_callers(bench: Bench, server: Scripted) -> None:
    server.on("create", QUOTAS.path(), failed(403, "Forbidden", RBAC))
    with pytest.raises(Forbidden):
        await bench.statuses.create_root()
