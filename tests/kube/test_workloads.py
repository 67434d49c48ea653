"""Who holds quota of a queue that is being deleted, by the workloads themselves."""

from typing import Any

import pytest
import structlog

from quota_translator.core.names import Pair
from quota_translator.errors import Malformed
from quota_translator.kube.client import Client
from quota_translator.kube.resources import WORKLOADS
from quota_translator.kube.workloads import MOST_PAGES, Workloads, read_holding
from tests.kube.scripted import FakeTime, Scripted, failed, listed, reply

PATH = WORKLOADS.path()
GPU, CPU = Pair("nvidia.com/gpu", "a100"), Pair("cpu", "quota-translator-cover")


def workload(
    name: str, queue: str = "team", gpus: str = "8", *, reserved: bool = True, **status: Any
) -> dict[str, Any]:
    """Admitted with four pods in one pod set."""
    part = {
        "name": "main",
        "count": 4,
        "flavors": {"nvidia.com/gpu": "a100", "cpu": "quota-translator-cover"},
        "resourceUsage": {"nvidia.com/gpu": gpus, "cpu": "4"},
    }
    row = {
        "type": "QuotaReserved",
        "status": "True" if reserved else "False",
        "lastTransitionTime": "2026-11-30T10:00:00Z",
    }
    admission = {"clusterQueue": queue, "podSetAssignments": [part]}
    owner = {"kind": "Job", "name": name.removeprefix("job-"), "controller": True}
    return {
        "metadata": {"name": name, "namespace": "ml", "ownerReferences": [owner]},
        "status": {"admission": admission, "conditions": [row]} | status,
    }


def finished(item: dict[str, Any]) -> dict[str, Any]:
    """Kueue leaves the admission and QuotaReserved as they were."""
    item["status"]["conditions"].append({"type": "Finished", "status": "True"})
    return item


def read(item: dict[str, Any]) -> Any:
    return read_holding(reply(item).chunks[0])


@pytest.fixture
def workloads(client: Client, fake: FakeTime) -> Workloads:
    return Workloads(client, fake.now)


def test_a_workload_is_called_what_people_call_it() -> None:
    found = read(workload("job-train"))
    assert (found.queue, found.name, found.since) == (
        "team",
        "Job ml/train",
        "2026-11-30T10:00:00Z",
    )
    assert {pair: str(amount) for pair, amount in found.amounts.items()} == {GPU: "8", CPU: "4"}
    alone = workload("by-hand")
    del alone["metadata"]["ownerReferences"]
    assert read(alone).name == "Workload ml/by-hand"


def test_pods_that_have_ended_hold_nothing() -> None:
    ended = read(workload("job-train", reclaimablePods=[{"name": "main", "count": 3}]))
    assert str(ended.amounts[GPU]) == "2"
    # Amounts are never trusted to be what they should be.
    odd = read(workload("job-train", gpus="many", reclaimablePods=[{"name": "main", "count": 9}]))
    assert {pair: str(amount) for pair, amount in odd.amounts.items()} == {CPU: "0"}


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(workload("job-a", reserved=False), id="not reserved"),
        pytest.param(finished(workload("job-a")), id="finished and kept"),
        pytest.param(workload("job-a", conditions=None), id="no conditions"),
        pytest.param(workload("job-a", admission=None), id="no admission"),
        pytest.param({"metadata": {"name": "job-a"}}, id="new"),
    ],
)
def test_a_workload_that_waits_or_has_ended_holds_nothing(item: dict[str, Any]) -> None:
    assert read(item) is None


def test_what_is_no_workload_is_malformed() -> None:
    with pytest.raises(Malformed):
        read_holding(b'{"metadata": 7}')


@pytest.mark.case("FC-G02")
async def test_all_pages_are_looked_through_and_not_too_often(
    workloads: Workloads, server: Scripted, fake: FakeTime
) -> None:
    server.on("list", PATH, listed(workload("job-a"), token="more"))
    server.on("list", PATH, listed(workload("job-b"), workload("job-c", queue="other")))
    found = await workloads.of({"team", "idle"})
    assert {name: [one.name for one in holdings] for name, holdings in found.items()} == {
        "team": ["Job ml/a", "Job ml/b"],
        "idle": [],
    }
    assert server.asked[1].query["continue"] == "more"
    # A queue that comes in between was not asked about, which is not the same as idle.
    assert (await workloads.of({"team", "other"})).keys() == {"team"}
    assert len(server.asked) == 2
    fake.t += 5
    server.on("list", PATH, listed())
    assert await workloads.of({"team"}) == {"team": ()}
    assert await workloads.of(()) == {}
    assert len(server.asked) == 3


async def test_without_the_right_to_list_nothing_is_known(
    workloads: Workloads, server: Scripted
) -> None:
    server.always("list", PATH, failed(403, "Forbidden", "cannot list workloads"))
    assert await workloads.of({"team"}) == {}


async def test_a_list_without_end_is_given_up_and_told_once(
    workloads: Workloads, server: Scripted, fake: FakeTime
) -> None:
    server.always("list", PATH, listed(workload("job-a"), token="more"))
    with structlog.testing.capture_logs() as logs:
        assert await workloads.of({"team"}) == {}
        assert len(server.asked) == MOST_PAGES
        fake.t += 10
        assert await workloads.of({"team"}) == {}
    assert [line["event"] for line in logs] == ["too many workloads to look through"]
