"""Lists that fail, lie, or are cut off in the middle: the last good one stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.controller import wait_seconds
from e2e.faults.actions import Action, edited, event, expired, slow, status
from e2e.faults.bed import Bed
from e2e.faults.exchange import Seen
from e2e.shapes import nominal
from e2e.trees import budget, capacity, edit, wait_told
from e2e.trees import status as status_of
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
UNTIL_HEALED = 45  # a list that is refused is asked for again at least every 30 seconds


@pytest.mark.case("fault 3")
def test_a_list_that_expires_between_two_pages_is_begun_again(bed: Bed) -> None:
    """Half of the namespaces would look as if the others had been deleted, and their queues go."""
    for number in ("1", "2"):  # the first page of each of the two attempts holds one namespace
        bed.proxy.when("list", "/namespaces$", do=_first_page(), where=_is_first)
        bed.proxy.when("list", "/namespaces$", do=status(410, "Expired", number), where=_is_next)
    mark = bed.proxy.mark()
    bed.proxy.cut("/namespaces$", expired())
    bed.wait_watching()
    asked = [(s.outcome, "continue" in s.query) for s in bed.proxy.seen("list", since=mark)]
    assert asked == [("200", False), ("410", True)] * 2 + [("200", False)]
    assert bed.writes_of_all(mark) == {}


def _first_page() -> Action:
    return edited(lambda found: None, {"limit": "1"})


def _is_first(seen: Seen) -> bool:
    return "continue" not in seen.query


def _is_next(seen: Seen) -> bool:
    return "continue" in seen.query


def test_a_list_that_comes_slowly_holds_up_nothing_else(bed: Bed) -> None:
    """Some kilobytes in some seconds; what is known stays, and edits go on meanwhile."""
    size = len(json.dumps(bed.cp.api.get("/api/v1/nodes")))
    bed.proxy.when("list", "/nodes$", do=slow(size / 6))
    mark = bed.proxy.mark()
    bed.proxy.cut("/nodes$", expired())
    eventually(lambda: bed.proxy.count("list", "/nodes$", mark), what="the list to be asked for")
    assert bed.proxy.watching("/nodes$") == 0
    edit(bed.cp, "team-beta", budget(7, 4))
    eventually(lambda: nominal(bed.cp, "team-beta") == "7", 4, what="an edit to arrive")
    assert bed.controller.get("/readyz")[0] == 200
    assert bed.proxy.watching("/nodes$") == 0  # the list is on its way still
    assert capacity(bed.cp)["installed"] == "32"
    bed.wait_watching()
    assert bed.proxy.count("list", "/nodes$", mark) == 1
    edit(bed.cp, "team-beta", budget(8, 4))


# --- a permission is taken away -----------------------------------------------------------------


def _forbidden(resource: str, group: str) -> Action:
    message = (
        f'{resource} is forbidden: User "quota-translator" cannot list resource "{resource}" '
        f'in API group "{group}" at the cluster scope'
    )
    return status(403, "Forbidden", message)


@pytest.mark.case("fault 10")
@pytest.mark.parametrize(
    ("plural", "group"),
    [("clusterqueues", "kueue.x-k8s.io"), ("nodes", ""), ("namespaces", "")],
)
def test_a_list_that_is_forbidden_deletes_nothing_and_names_the_permission(
    bed: Bed, plural: str, group: str
) -> None:
    path = f"/{plural}$"
    mark = bed.proxy.mark()
    with bed.proxy.when("list", path, do=_forbidden(plural, group), times=None):
        bed.proxy.cut(path, expired())
        told = eventually(lambda: _not_ready(bed, "no permission to list"), what="it to be told")
        assert f"no permission to list {f'{plural}.{group}'.rstrip('.')}" in told
        edit(bed.cp, "team-beta", budget(7, 4))
        wait_seconds(3)
        assert not [seen for seen in bed.writes(mark) if seen.startswith("delete")]
        assert bed.proxy.count("list", path, mark) <= 12
        assert capacity(bed.cp)["highWaterMark"] == "32"
        if plural == "clusterqueues":
            message = wait_told(bed.cp, "team-beta", "Materialized", "KueueUnavailable")
            assert "Kueue's ClusterQueue objects are not read" in message
            assert bed.writes(mark) == {}
        else:
            eventually(lambda: nominal(bed.cp, "team-beta") == "7", what="the edit to be written")
    eventually(lambda: nominal(bed.cp, "team-beta") == "7", UNTIL_HEALED, "the edit to be written")
    edit(bed.cp, "team-beta", budget(8, 4))
    bed.wait_converged()
    eventually(bed.controller.is_ready, what="it to be ready again")
    assert not [seen for seen in bed.writes(mark) if seen.startswith(("delete", "create"))]


def _not_ready(bed: Bed, text: str) -> str:
    code, body = bed.controller.get("/readyz")
    return body if code == 503 and text in body else ""


# --- a list that goes back ----------------------------------------------------------------------


@pytest.mark.case("fault 11")
@pytest.mark.parametrize("plural", ["acceleratorquotas", "namespaces", "clusterqueues", "nodes"])
def test_an_empty_list_older_than_what_was_seen_is_not_believed(bed: Bed, plural: str) -> None:
    path = f"/{plural}$"
    mark = bed.proxy.mark()
    bed.proxy.when("list", path, do=edited(_restored))
    bed.proxy.cut(path, expired())
    bed.wait_watching()
    eventually(bed.controller.is_ready, what="it to be ready again")
    assert bed.asked(path, mark) == ["list 200", "list 200", "watch 200"]
    assert bed.writes(mark) == {}
    assert capacity(bed.cp)["highWaterMark"] == "32"
    assert "list is older than what was seen" in bed.controller.log()


def _restored(found: Any) -> None:
    found["items"] = []
    found["metadata"]["resourceVersion"] = "2"


# --- large ones ---------------------------------------------------------------------------------


@pytest.mark.case("fault 13")
def test_an_object_of_five_mebibytes_is_read_as_any_other(bed: Bed) -> None:
    """More than a real server stores: the line of its event is longer than any buffer."""
    node = bed.cp.api.get("/api/v1/nodes/gpu-1")
    node["metadata"]["resourceVersion"] = _next(node)
    node["metadata"]["annotations"]["large"] = "x" * 5 * 2**20
    node["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    before = resident_megabytes(bed)
    mark = bed.proxy.mark()
    bed.proxy.send("/nodes$", event("MODIFIED", node))
    eventually(lambda: capacity(bed.cp)["allocatable"] == "31", what="the node to be measured")
    assert resident_megabytes(bed) - before < 40
    assert bed.asked("/nodes$", mark) == []
    bed.proxy.cut("/nodes$", expired())
    eventually(lambda: capacity(bed.cp)["allocatable"] == "32", what="the truth to be measured")
    assert bed.writes(mark) == {}


@pytest.mark.case("fault 13")
def test_a_burst_of_64_000_nodes_is_taken_in_and_out_again(bed: Bed) -> None:
    """As events of a watch, as fast as they can be sent; then a list without them."""
    node = bed.cp.api.get("/api/v1/nodes/gpu-1")
    version = int(_next(node))
    node["metadata"] = {"name": "NAME", "resourceVersion": "VERSION", "labels": {"rack": "r"}}
    template = event("ADDED", node)
    lines = [
        template.replace(b"NAME", b"burst-%d" % n).replace(b"VERSION", b"%d" % (version + n))
        for n in range(BURST)
    ]
    mark = bed.proxy.mark()
    bed.proxy.send("/nodes$", *lines)
    eventually(
        lambda: _unattributed(bed) == f"{BURST * 8 // 1000}k", 60, "the burst to be measured"
    )
    assert resident_megabytes(bed) < 300
    assert bed.controller.get("/healthz")[0] == 200
    assert bed.asked("/nodes$", mark) == []
    bed.proxy.cut("/nodes$", expired())
    eventually(lambda: _unattributed(bed) == "", what="the burst to be forgotten")
    assert bed.writes(mark) == {}


BURST = 64_000


def _next(item: Any) -> str:
    """A version of an event that follows what was seen so far."""
    return str(int(item["metadata"]["resourceVersion"]) + 1_000_000)


def _unattributed(bed: Bed) -> str:
    """GPUs on nodes that belong to no flavor, as root tells them."""
    rows = status_of(bed.cp, "root").get("unattributed", [])
    return "".join(row["quantity"] for row in rows)


def resident_megabytes(bed: Bed) -> float:
    lines = Path(f"/proc/{bed.controller.pid}/status").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024
