"""Kueue and its objects in the way: too old, stuck, stripped of labels, edited, not allowed.

First the tests that start controllers of their own: there must not be two on one tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.controller import wait_seconds
from e2e.faults.actions import edited, raw
from e2e.faults.bed import Bed, shapes
from e2e.faults.conftest import Lab
from e2e.shapes import nominal
from e2e.trees import (
    KUEUE,
    MANAGED_BY,
    NAMESPACE,
    admitted,
    budget,
    edit,
    end_job,
    held,
    job,
    kueue_object,
    names,
    namespace,
    put,
    queue,
    share,
    wait_admitted,
    wait_sound,
    wait_told,
    wait_tried,
)
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
ALL = ("ml-research", "team-alpha", "team-beta")
BETA = f"{KUEUE}/clusterqueues/team-beta"


# --- Kueue itself -------------------------------------------------------------------------------


@pytest.mark.case("fault 12", "FC-H02")
def test_a_kueue_that_serves_an_old_version_is_waited_for(lab: Lab) -> None:
    """At the start, where the new one is used once it is there; and again while it runs."""
    _old_version(lab)
    with lab.controller() as controller:
        _told_and_left_alone(lab)
        assert controller.is_ready()
        lab.proxy.clear()
        wait_sound(lab.cp, *ALL, timeout=90)
        assert shapes(lab.cp) == lab.shapes
        _old_version(lab)
        lab.proxy.cut("^/apis/kueue")
        _told_and_left_alone(lab)
        assert controller.is_ready()
        assert lab.proxy.count("get", "/apis/kueue.x-k8s.io$") <= 24  # of discovery, in all
    lab.proxy.clear()


def _told_and_left_alone(lab: Lab) -> None:
    mark = lab.proxy.mark()
    told = wait_told(lab.cp, "team-beta", "Materialized", "KueueUnavailable", timeout=45)
    assert "not served as kueue.x-k8s.io/v1beta2" in told
    assert "v1beta1" in told
    wait_seconds(1)
    assert lab.proxy.count("write", "^/apis/kueue", mark) == 0


def _old_version(lab: Lab) -> None:
    def only_old(group: Any) -> None:
        group["versions"] = [v for v in group["versions"] if v["version"] == "v1beta1"]
        group["preferredVersion"] = group["versions"][0]

    missing = raw(404, b"404 page not found\n", {"Content-Type": "text/plain"})
    lab.proxy.when("get", "^/apis/kueue.x-k8s.io$", do=edited(only_old), times=None)
    lab.proxy.when("", "^/apis/kueue.x-k8s.io/v1beta2", do=missing, times=None)


# --- namespaces ---------------------------------------------------------------------------------

LATER = "ml-later"
HOLDER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "holder", "namespace": LATER, "finalizers": ["example.com/hold"]},
}


@pytest.mark.case("fault 20")
def test_queues_wait_for_a_namespace_that_is_absent_or_goes(lab: Lab) -> None:
    queues = {f"{LATER}/team-alpha", f"{LATER}/team-beta"}
    path = f"/namespaces/{LATER}/localqueues"
    with lab.controller(namespaces=f"{NAMESPACE},{LATER}") as controller:
        wait_sound(lab.cp, *ALL)
        assert lab.proxy.count("write", path) == 0
        put(lab.cp, namespace(LATER), HOLDER)
        eventually(lambda: queues <= names(lab.cp, "localqueues"), what="the queues")
        mark = lab.proxy.mark()
        # The watch does not tell that the namespace goes, so that the API server has to.
        with lab.proxy.mute("/api/v1/namespaces$"):
            lab.cp.api.delete(f"/api/v1/namespaces/{LATER}")
            refused = eventually(
                lambda: [s for s in lab.proxy.seen("create", path, mark) if s.outcome == "403"],
                60,
                "a queue that the API server does not take",
            )
            assert refused
            wait_seconds(4)
            assert lab.proxy.count("create", path, mark) <= 2 * 5
        told = wait_told(lab.cp, "team-beta", "Materialized", "Progressing")
        assert told == f"LocalQueue {LATER}/team-beta being written"
        assert f"in namespace {LATER} because it is being terminated" in controller.log()
        lab.cp.api.merge(
            f"/api/v1/namespaces/{LATER}/configmaps/holder", {"metadata": {"finalizers": None}}
        )
        eventually(lambda: lab.cp.api.find(f"/api/v1/namespaces/{LATER}") is None, what="its end")
        lab.proxy.cut("/api/v1/namespaces$")
        put(lab.cp, namespace(LATER))
        eventually(lambda: queues <= names(lab.cp, "localqueues"), 60, what="the queues again")
    with lab.running():
        eventually(lambda: shapes(lab.cp) == lab.shapes, what="one namespace to be enrolled again")


# --- another manager ----------------------------------------------------------------------------


@pytest.mark.case("fault 24")
def test_two_managers_that_fight_are_told_of_and_waited_for(lab: Lab) -> None:
    """Three repairs, then a pause of half a minute before the next."""
    with lab.running() as bed:
        _fight(bed)
    with lab.running():
        assert shapes(lab.cp) == lab.shapes


def _fight(bed: Bed) -> None:
    mark = bed.proxy.mark()
    for _ in range(3):
        _take(bed, "team-beta", "30")
        eventually(lambda: nominal(bed.cp, "team-beta") == "8", what="a repair")
    _take(bed, "team-beta", "30")
    told = wait_told(bed.cp, "team-beta", "Materialized", "DriftContested")
    assert "other-operator" in told
    wait_seconds(4)
    assert nominal(bed.cp, "team-beta") == "30"
    assert bed.writes(mark) == {"patch clusterqueues team-beta": 3}
    reports = [line for line in bed.controller.log().splitlines() if "put back what" in line]
    assert [json.loads(line)["manager"] for line in reports] == ["other-operator"] * 3
    edit(bed.cp, "team-beta", budget(7, 4))  # what the tree says anew is no fight
    eventually(lambda: nominal(bed.cp, "team-beta") == "7", 5, "an edit to arrive")
    edit(bed.cp, "team-beta", budget(8, 4))
    eventually(lambda: nominal(bed.cp, "team-beta") == "8", 5, "an edit to arrive")


def _take(bed: Bed, name: str, amount: str) -> None:
    """Another program writes a share."""
    groups = queue(bed.cp, name)["spec"]["resourceGroups"]
    groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = amount
    wait_seconds(1)  # managers are told apart by the second in which they wrote
    path = f"{KUEUE}/clusterqueues/{name}?fieldManager=other-operator"
    bed.cp.api.merge(path, {"spec": {"resourceGroups": groups}})


# --- queues that are in use ---------------------------------------------------------------------


@pytest.fixture
def bed(lab: Lab, long_running: Bed) -> Iterator[Bed]:
    with lab.unchanged(long_running):
        yield long_running


@contextmanager
def work(bed: Bed, queue: str, gpus: int) -> Iterator[str]:
    """A Job of so many GPUs that runs in a queue until the end."""
    name = f"work-{queue}"
    put(bed.cp, job(name, queue, gpus))
    wait_admitted(bed.cp, name)
    try:
        yield name
    finally:
        end_job(bed.cp, name)
        eventually(lambda: name not in admitted(bed.cp), what="the work to end")


@pytest.mark.case("fault 22")
def test_a_queue_that_cannot_go_yet_is_made_again_when_it_is_gone(bed: Bed) -> None:
    with work(bed, "team-beta", 2):
        mark = bed.proxy.mark()
        old = queue(bed.cp, "team-beta")["metadata"]["uid"]
        bed.cp.api.delete(BETA)
        told = wait_told(bed.cp, "team-beta", "Materialized", "QueueInactive")
        assert "ClusterQueue team-beta is being deleted" in told
        edit(bed.cp, "team-beta", budget(7, 4))
        wait_seconds(3)
        assert queue(bed.cp, "team-beta")["metadata"]["uid"] == old
        assert bed.writes(mark) == {}
    eventually(lambda: queue(bed.cp, "team-beta")["metadata"]["uid"] != old, what="another one")
    wait_sound(bed.cp, *ALL)
    assert bed.writes(mark) == {"create clusterqueues team-beta": 1}
    assert nominal(bed.cp, "team-beta") == "7"
    edit(bed.cp, "team-beta", budget(8, 4))


@pytest.mark.case("fault 25", "FC-G07")
def test_a_share_below_its_use_is_written_and_evicts_nobody(bed: Bed) -> None:
    """16 run in a share of 16, which becomes 8: over by 8, since a moment that stays."""
    with work(bed, "team-alpha", 16) as name:
        mark = bed.proxy.mark()
        edit(bed.cp, "team-alpha", budget(8))
        eventually(lambda: nominal(bed.cp, "team-alpha") == "8", what="the smaller share")
        wait_sound(bed.cp, *ALL)
        row = eventually(lambda: _share(bed, nominal="8", over="8"), what="the use to be told")
        assert (row["admitted"], row["borrowed"]) == ("16", "8")
        since = row["overSince"]
        put(bed.cp, job("more", "team-alpha", 1))
        wait_tried(bed.cp, "more")
        assert name in admitted(bed.cp)
        assert held(bed.cp, "team-alpha") == 16
        assert bed.writes(mark) == {"patch clusterqueues team-alpha": 1}
        assert _share(bed, over="8", overSince=since)
        end_job(bed.cp, "more")
    edit(bed.cp, "team-alpha", budget(16))


def _share(bed: Bed, **wanted: str) -> dict[str, Any]:
    row = share(bed.cp, "team-alpha")
    return dict(row) if wanted.items() <= row.items() else {}


# --- what others do to our objects --------------------------------------------------------------


@pytest.mark.case("fault 23")
def test_a_queue_that_lost_our_label_is_no_longer_touched(bed: Bed) -> None:
    mark = bed.proxy.mark()
    bed.cp.api.merge(BETA, {"metadata": {"labels": {MANAGED_BY: None}}})
    told = wait_told(bed.cp, "team-beta", "Materialized", "ObjectConflict")
    assert "exists and is not managed by quota-translator" in told
    edit(bed.cp, "team-beta", budget(7, 4))
    wait_told(bed.cp, "team-beta", "Materialized", "ObjectConflict")
    wait_seconds(2)
    assert bed.writes(mark) == {}
    bed.cp.api.merge(BETA, {"metadata": {"labels": {MANAGED_BY: "quota-translator"}}})
    wait_sound(bed.cp, *ALL)
    assert bed.writes(mark) == {"patch clusterqueues team-beta": 1}
    edit(bed.cp, "team-beta", budget(8, 4))


@pytest.mark.case("fault 23")
@pytest.mark.parametrize("quota", ["team-beta", "nobody"])
def test_a_strangers_object_with_a_copy_of_our_labels_is_left_alone(bed: Bed, quota: str) -> None:
    labels = {MANAGED_BY: "quota-translator", "quota-translator.dev/quota": quota}
    theirs = [
        kueue_object("ClusterQueue", "stranger", {"namespaceSelector": {}}),
        kueue_object("Cohort", "stranger", {}),
        kueue_object("LocalQueue", "stranger", {"clusterQueue": "stranger"}, NAMESPACE),
    ]
    mark = bed.proxy.mark()
    for document in theirs:
        document["metadata"]["labels"] = labels
    put(bed.cp, *theirs)
    edit(bed.cp, "team-beta", budget(7, 4))  # a pass, after they were seen
    eventually(lambda: nominal(bed.cp, "team-beta") == "7", what="an edit to arrive")
    edit(bed.cp, "team-beta", budget(8, 4))
    wait_sound(bed.cp, *ALL)
    assert bed.writes(mark) == {"patch clusterqueues team-beta": 2}
    for plural, base in (("localqueues", f"/namespaces/{NAMESPACE}"), ("clusterqueues", "")):
        bed.cp.api.delete(f"{KUEUE}{base}/{plural}/stranger")
    bed.cp.api.delete(f"{KUEUE}/cohorts/stranger")
    eventually(lambda: "stranger" not in str(shapes(bed.cp)), what="the stranger to go")
