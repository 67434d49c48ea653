"""Watches and lists that go wrong: what is known stays right, and few requests are spent on it."""

from __future__ import annotations

import pytest

from e2e.controller import QUOTAS, USER, wait_seconds
from e2e.controlplane.nodes import cordon, uncordon
from e2e.faults.actions import changed as each_line
from e2e.faults.actions import ended, event, expired, html, raw, status, twice
from e2e.faults.bed import FOLLOWED, Bed
from e2e.faults.conftest import Lab
from e2e.faults.quick import Quick
from e2e.shapes import nominal
from e2e.trees import KUEUE, NAMESPACE, budget, capacity, edit, guide_tree, put
from e2e.waiting import eventually
from quota_translator.settings import Settings

pytestmark = pytest.mark.e2e
QUEUE = f"{KUEUE}/namespaces/{NAMESPACE}/localqueues/team-beta"
OPENINGS = 12  # of one kind, in a minute, at most


# --- watches that cannot go on ------------------------------------------------------------------


@pytest.mark.parametrize(
    "as_event",
    [
        pytest.param(False, id="as-a-status", marks=pytest.mark.case("fault 1")),
        pytest.param(True, id="as-an-event", marks=pytest.mark.case("fault 2")),
    ],
)
def test_410_costs_one_list_of_each_kind_and_misses_no_deletion(bed: Bed, as_event: bool) -> None:
    with bed.proxy.mute("/localqueues$"):
        bed.cp.api.delete(QUEUE)  # its event is lost
        mark = bed.proxy.mark()
        if as_event:
            bed.proxy.cut("", expired())
        else:
            for path in FOLLOWED:
                bed.proxy.when("watch", path, do=status(410, "Expired"))
            bed.proxy.cut()
        eventually(lambda: bed.proxy.count("list", "/localqueues$", mark), what="a list")
    eventually(lambda: bed.writes(mark), what="the queue to be made again")
    bed.wait_watching()
    bed.wait_converged()
    wanted = ["list 200", "watch 200"] if as_event else ["watch 410", "list 200", "watch 200"]
    assert {path: bed.asked(path, mark) for path in FOLLOWED} == dict.fromkeys(FOLLOWED, wanted)
    assert bed.writes(mark) == {"create localqueues team-beta": 1}


@pytest.mark.case("fault 4")
def test_half_lines_and_bodies_that_are_no_events_change_nothing(bed: Bed) -> None:
    """Each kind of Kueue's is told in its own broken way that something was deleted."""
    gone = {
        plural: event("DELETED", bed.cp.api.items(f"{KUEUE}/{plural}")[0])
        for plural in ("cohorts", "clusterqueues", "localqueues", "resourceflavors")
    }
    before = {path: bed.proxy.seen("watch", path)[-1] for path in FOLLOWED}
    mark = bed.proxy.mark()
    bed.proxy.cut("/cohorts$", gone["cohorts"][:-100], how="reset")
    bed.proxy.cut("/clusterqueues$", gone["clusterqueues"][:-1], how="end")  # all but its end
    bed.proxy.when("watch", "/localqueues$", do=html(503))
    bed.proxy.cut("/localqueues$", gone["localqueues"][:100], how="end")
    bed.proxy.when("watch", "/resourceflavors$", do=raw(200, b""))
    bed.proxy.cut("/resourceflavors$", how="reset")
    bed.proxy.when("watch", "/nodes$", do=raw(200, b"<html>\nno line of a watch\n</html>\n"))
    bed.proxy.cut("/nodes$")
    bed.proxy.when("watch", "/namespaces$", do=ended(b'{"type":"ERROR","object":{}}\n'))
    bed.proxy.cut("/namespaces$")
    eventually(lambda: bed.proxy.count("watch", "/nodes$", mark) == 2, what="the nodes' watches")
    bed.wait_watching()
    for path in FOLLOWED:
        opened = bed.proxy.seen("watch", path, mark)
        assert [s.query["resourceVersion"] for s in opened] == [before[path].version] * len(opened)
    counts = {path: bed.proxy.count("watch", path, mark) for path in FOLLOWED}
    assert counts == dict(zip(FOLLOWED, (0, 2, 2, 2, 1, 1, 2), strict=True))
    assert bed.proxy.count("list", since=mark) == 0
    assert bed.writes_of_all(mark) == {}
    edit(bed.cp, "team-beta", budget(7, 4))  # it hears, and acts
    eventually(lambda: nominal(bed.cp, "team-beta") == "7", what="an edit to arrive")
    edit(bed.cp, "team-beta", budget(8, 4))
    bed.wait_converged()


@pytest.mark.case("fault 5")
def test_watches_that_close_at_once_are_few(bed: Bed) -> None:
    """A tenth of the minute; the whole of it is played in simulated time (tests/kube)."""
    mark = bed.proxy.mark()
    with bed.proxy.when("watch", "|".join(FOLLOWED), do=ended(), times=None):
        bed.proxy.cut()
        wait_seconds(6)
        counts = {path: len(bed.asked(path, mark)) for path in FOLLOWED}
    assert {path: count for path, count in counts.items() if not 3 <= count <= OPENINGS} == {}
    assert bed.writes_of_all(mark) == {}
    edit(bed.cp, "team-beta", budget(7, 4))
    eventually(lambda: nominal(bed.cp, "team-beta") == "7", 60, what="an edit to arrive")
    edit(bed.cp, "team-beta", budget(8, 4))


# --- events -------------------------------------------------------------------------------------


@pytest.mark.case("fault 8")
def test_events_that_are_repeated_late_or_out_of_order_change_nothing(bed: Bed) -> None:
    edit(bed.cp, "team-beta", budget(6, 4))
    eventually(lambda: nominal(bed.cp, "team-beta") == "6", what="an edit to arrive")
    old = {path: bed.cp.api.items(path) for path in (f"{KUEUE}/clusterqueues", "/api/v1/nodes")}
    edit(bed.cp, "team-beta", budget(8, 4))
    bed.cp.api.merge("/api/v1/nodes/gpu-1", {"metadata": {"labels": {"rack": "7"}}})
    bed.wait_converged()
    # From here on everything is told twice, in the watches that follow as well.
    bed.proxy.when("watch", do=each_line(twice), times=None)
    bed.proxy.cut()
    bed.wait_watching()
    mark = bed.proxy.mark()
    for path, items in old.items():
        plural = path.rpartition("/")[2]
        now = [event("ADDED", item) for item in bed.cp.api.items(path)]
        late = [event(kind, item) for item in items for kind in ("MODIFIED", "ADDED", "DELETED")]
        assert bed.proxy.send(f"/{plural}$", *now, *late, *now, *reversed(late)) == 1
    edit(bed.cp, "ml-research", budget(25))  # told after all of that
    bed.wait_converged()
    assert bed.writes(mark) == {}
    assert capacity(bed.cp)["installed"] == "32"
    assert bed.proxy.count("list", since=mark) == 0
    edit(bed.cp, "ml-research", budget(24))


@pytest.mark.case("fault 9")
def test_a_node_of_the_tree_deleted_unseen_is_swept_once(lab: Lab) -> None:
    """It had a finalizer, so somebody used force: what it leaves goes after a while."""
    with lab.running("--materialize-orphan-after", "3s") as bed, lab.unchanged(bed):
        with bed.proxy.mute("/acceleratorquotas$"):
            _remove(bed, f"{QUOTAS}/team-beta")
            mark = bed.proxy.mark()
            bed.proxy.cut("/acceleratorquotas$", expired())
            eventually(lambda: bed.proxy.count("list", "/acceleratorquotas$", mark), what="a list")
        gone = f"{KUEUE}/clusterqueues/team-beta"
        assert bed.cp.api.find(gone)
        eventually(lambda: bed.cp.api.find(gone) is None, what="a sweep")
        assert bed.asked("/acceleratorquotas$", mark)[0] == "list 200"
        assert bed.proxy.count("list", since=mark) == 1
        assert bed.writes(mark) == {
            "delete localqueues team-beta": 1,
            "delete clusterqueues team-beta": 1,
        }
        put(bed.cp, *(one for one in guide_tree() if one["metadata"]["name"] == "team-beta"))


def _remove(bed: Bed, path: str) -> None:
    """Delete an object, and let nobody hold it."""
    bed.cp.api.delete(path)
    if bed.cp.api.find(path):
        bed.cp.api.merge(path, {"metadata": {"finalizers": None}})


# --- watches that say nothing -------------------------------------------------------------------


@pytest.mark.case("fault 6", "FC-A10")
def test_a_silent_watch_of_nodes_is_opened_again_and_nothing_is_stamped(lab: Lab) -> None:
    """The connection stands, and no byte comes. The clocks are a thirtieth of the usual ones."""
    settings = Settings(materialize_enrolled_namespaces=(NAMESPACE,), capacity_report_interval=1.0)
    with Quick(lab.proxy.kubeconfig(USER), settings) as quick:
        before = _stamp(lab)
        eventually(lambda: _stamp(lab) > before, what="a stamp")
        version = lab.proxy.seen("watch", "/nodes$")[-1].version
        mark = lab.proxy.mark()
        with lab.proxy.mute("/nodes$"):
            eventually(lambda: not quick.is_heard(), what="the silence to be noticed")
            assert not quick.sync("Node").heard  # /readyz says so
            last = _stamp(lab)
            wait_seconds(6)
            assert _stamp(lab) == last
            assert quick.sync("Node").synced  # what was seen is not forgotten
            opened = lab.proxy.seen("watch", "/nodes$", mark)
            assert 2 <= len(opened) <= OPENINGS
            assert opened[0].query["resourceVersion"] == version
            cordon(lab.cp, "gpu-4")  # nobody tells
        eventually(lambda: capacity(lab.cp)["allocatable"] == "24", what="the cordon to be seen")
        eventually(lambda: _stamp(lab) > last, what="the stamps to go on")
        uncordon(lab.cp, "gpu-4")
        eventually(lambda: capacity(lab.cp)["allocatable"] == "32", what="the node to be back")


def _stamp(lab: Lab) -> str:
    return str(capacity(lab.cp)["observedAt"])
