"""What is ours, what is somebody else's, and what people may do to what is ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e import trees
from e2e.controller import QUOTAS, USER, Controller, running, wait_seconds
from e2e.controlplane import nodes
from e2e.controlplane.audit import Audit, count
from e2e.controlplane.cluster import ControlPlane
from e2e.interloper import interloper
from e2e.trees import FAST, KUEUE, MANAGED_BY, NAMESPACE, budget, group, kueue_object, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
COVER = "quota-translator-cover"
ALL = ("ml-research", "team-alpha", "team-beta")


def writes(audit: Audit, mark: int) -> dict[str, int]:
    """What our controller has written since a mark, statuses of the tree apart."""
    records = [record for record in audit.since(mark, user=USER) if record.is_write]
    return dict(count(record for record in records if record.group == "kueue.x-k8s.io"))


def stranger(cp: ControlPlane, plural: str, document: dict[str, Any]) -> dict[str, Any]:
    """Somebody else's object, as it was stored."""
    trees.put(cp, document)
    return seen(cp, plural, document)


def seen(cp: ControlPlane, plural: str, document: dict[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    base = f"{KUEUE}/namespaces/{namespace}" if namespace else KUEUE
    found = cp.api.get(f"{base}/{plural}/{metadata['name']}")
    return {"spec": found["spec"], "labels": found["metadata"].get("labels")}


@pytest.mark.case("A-67", "fault 23")
def test_objects_of_others_with_our_names_are_left_alone_and_reported(
    clean: ControlPlane, audit: Audit
) -> None:
    """One of each kind: nothing is put beneath them, and the rest of the tree goes on."""
    cp = clean
    trees.lab(cp, 8)
    theirs = [
        ("cohorts", kueue_object("Cohort", "taken", {})),
        ("clusterqueues", kueue_object("ClusterQueue", "queue", {"namespaceSelector": {}})),
        ("localqueues", kueue_object("LocalQueue", "local", {"clusterQueue": "q"}, NAMESPACE)),
    ]
    before = [stranger(cp, plural, document) for plural, document in theirs]
    start = audit.mark()
    with running(cp, *FAST):
        trees.put(
            cp,
            group("taken"),
            team("beneath", budget(1), parent="taken"),
            group("ml"),
            team("queue", budget(1), parent="ml"),
            team("local", budget(1), parent="ml"),
            team("free", budget(1), parent="ml"),
        )
        trees.wait_sound(cp, "ml", "free")
        for name, object_name in (
            ("taken", "Cohort taken"),
            ("queue", "ClusterQueue queue"),
            ("local", f"LocalQueue {NAMESPACE}/local"),
        ):
            assert object_name in trees.wait_told(cp, name, "Materialized", "ObjectConflict")
        assert "taken" in trees.wait_told(cp, "beneath", "Materialized", "ParentNotMaterialized")
        wait_seconds(1)
        assert [seen(cp, plural, document) for plural, document in theirs] == before
        assert trees.names(cp, "clusterqueues") == {"queue", "local", "free"}
        assert trees.names(cp, "localqueues") == {f"{NAMESPACE}/free", f"{NAMESPACE}/local"}
        assert not {call for call in writes(audit, start) if call.endswith(" taken")}

        for path in ("cohorts/taken", "clusterqueues/queue"):
            cp.api.delete(f"{KUEUE}/{path}")
        cp.api.delete(f"{KUEUE}/namespaces/{NAMESPACE}/localqueues/local")
        trees.wait_sound(cp, "taken", "beneath", "queue", "local")


@pytest.mark.case("A-67")
def test_a_cover_flavor_of_somebody_else_is_left_alone_and_reported(clean: ControlPlane) -> None:
    cp = clean
    trees.lab(cp, 32)
    theirs = kueue_object("ResourceFlavor", COVER, {"nodeLabels": {"pool": "cpu"}})
    before = stranger(cp, "resourceflavors", theirs)
    with running(cp, *FAST):
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, "ml-research")
        for name in ("team-alpha", "team-beta"):
            message = trees.wait_told(cp, name, "Materialized", "ObjectConflict")
            assert f"ResourceFlavor {COVER}" in message
        assert seen(cp, "resourceflavors", theirs) == before


@pytest.mark.case("fault 23")
def test_an_object_that_appears_between_our_read_and_our_create_is_left_alone(
    clean: ControlPlane, audit: Audit, tmp_path: Path
) -> None:
    cp = clean
    trees.lab(cp, 32)
    theirs = kueue_object("Cohort", "ml-research", {})
    put: list[str] = []

    def act(operation: str, name: str) -> None:
        if (operation, name) == ("CREATE", "ml-research") and not put:
            put.append(name)
            trees.put(cp, theirs)

    with running(cp, *FAST), interloper(cp, "cohorts", act, tmp_path):
        start = audit.mark()
        trees.put(cp, *trees.guide_tree())
        message = trees.wait_told(cp, "ml-research", "Materialized", "ObjectConflict")
        assert "Cohort ml-research" in message
        for name in ("team-alpha", "team-beta"):
            trees.wait_told(cp, name, "Materialized", "ParentNotMaterialized")
        wait_seconds(2)
        assert put == ["ml-research"]
        assert seen(cp, "cohorts", theirs) == {"spec": {}, "labels": None}
        assert trees.names(cp, "clusterqueues") == set()
        calls = [r for r in audit.since(start, user=USER) if r.is_write and r.name == "ml-research"]
        assert [(r.verb, r.code) for r in calls if r.resource == "cohorts"] == [("create", 409)]

        cp.api.delete(f"{KUEUE}/cohorts/ml-research")
        trees.wait_sound(cp, *ALL)


def test_an_object_that_takes_the_place_of_ours_before_our_patch_is_left_alone(
    clean: ControlPlane, tmp_path: Path
) -> None:
    cp = clean
    trees.lab(cp, 8)
    theirs = kueue_object("Cohort", "ml", {})
    armed: list[str] = []

    def act(operation: str, name: str) -> None:
        if (operation, name) == ("UPDATE", "ml") and armed:
            armed.clear()
            cp.api.delete(f"{KUEUE}/cohorts/ml")
            trees.put(cp, theirs)

    with running(cp, *FAST), interloper(cp, "cohorts", act, tmp_path):
        trees.put(cp, group("ml", budget(4, enforced=True)), team("a", budget(2), parent="ml"))
        trees.wait_sound(cp, "ml", "a")
        armed.append("ml")
        trees.edit(cp, "ml", budget(6, enforced=True))
        message = trees.wait_told(cp, "ml", "Materialized", "ObjectConflict")
        assert "Cohort ml" in message
        wait_seconds(1)
        assert armed == []
        assert seen(cp, "cohorts", theirs) == {"spec": {}, "labels": None}


def put_back(controller: Controller) -> list[dict[str, Any]]:
    """The controller's reports of what it put back."""
    lines = [json.loads(line) for line in controller.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "put back what somebody changed"]


@pytest.mark.case("fault 24")
def test_a_field_of_ours_that_somebody_edits_is_put_back_once_and_reported(
    clean: ControlPlane, audit: Audit
) -> None:
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST) as controller:
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, *ALL)
        before = trees.unchanging(cp, "clusterqueues", "team-beta")
        groups = trees.queue(cp, "team-beta")["spec"]["resourceGroups"]
        for part in groups:
            if part["coveredResources"] == [nodes.GPU]:
                part["flavors"][0]["resources"][0]["nominalQuota"] = "30"
        wait_seconds(1)  # managers are told apart by the second in which they wrote
        start = audit.mark()
        cp.api.merge(
            f"{KUEUE}/clusterqueues/team-beta?fieldManager=kubectl-edit",
            {"spec": {"resourceGroups": groups}},
        )

        def is_back() -> bool:
            cell = trees.gpu_cell(trees.queue(cp, "team-beta"))
            assert cell == {"nominalQuota": "8", "borrowingLimit": "4"}
            return True

        eventually(is_back, what="the share to be put back")
        (report,) = eventually(lambda: put_back(controller), what="a report in the log")
        assert report["level"] == "warning"
        assert report["object"] == "ClusterQueue team-beta"
        assert report["quota"] == ["team-beta"]
        assert report["manager"] == "kubectl-edit"
        assert report["fields"] == ["resourceGroups"]
        wait_seconds(2)
        assert writes(audit, start) == {"patch clusterqueues team-beta": 1}
        assert len(put_back(controller)) == 1
        after = trees.unchanging(cp, "clusterqueues", "team-beta")
        assert after["spec"] == before["spec"]
        trees.wait_sound(cp, *ALL)


def test_what_belongs_to_people_stays_as_they_set_it(clean: ControlPlane, audit: Audit) -> None:
    """An emergency brake must hold, also when the tree is edited meanwhile."""
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, *ALL)
        start = audit.mark()
        path = f"{KUEUE}/clusterqueues/team-beta"
        cp.api.merge(path, {"spec": {"stopPolicy": "Hold", "queueingStrategy": "StrictFIFO"}})

        def shown() -> bool:
            told = trees.condition(cp, "team-beta", "Materialized")
            assert told["status"] == "True", told
            assert "stopPolicy Hold" in told["message"], told
            assert "people set: queueingStrategy StrictFIFO" in told["message"], told
            return True

        eventually(shown, what="the brake to be shown")
        assert writes(audit, start) == {}
        trees.edit(cp, "team-beta", budget(8, 2))
        eventually(
            lambda: (
                trees.gpu_cell(trees.queue(cp, "team-beta"))
                == {"nominalQuota": "8", "borrowingLimit": "2"}
            ),
            what="the edit of the tree to arrive",
        )
        wait_seconds(1)
        spec = trees.queue(cp, "team-beta")["spec"]
        assert (spec["stopPolicy"], spec["queueingStrategy"]) == ("Hold", "StrictFIFO")
        assert writes(audit, start) == {"patch clusterqueues team-beta": 1}
        trees.put(cp, trees.job("held", "team-beta"))
        wait_seconds(1)
        assert trees.admitted(cp) == set()
        cp.api.merge(path, {"spec": {"stopPolicy": "None"}})
        trees.wait_admitted(cp, "held")


@pytest.mark.case("A-72")
def test_a_namespace_that_is_no_longer_enrolled_loses_its_queues(
    clean: ControlPlane, audit: Audit
) -> None:
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    trees.put(cp, trees.namespace("ml-batch"))
    teams = ("team-alpha", "team-beta")
    own = kueue_object("LocalQueue", "own", {"clusterQueue": "team-beta"}, "ml-batch")
    with running(cp, *FAST, namespaces=f"{NAMESPACE},ml-batch"):
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, *ALL)
        trees.put(cp, own)
        enrolled = {f"{space}/{name}" for space in (NAMESPACE, "ml-batch") for name in teams}
        assert trees.names(cp, "localqueues") == enrolled | {"ml-batch/own"}
    start = audit.mark()
    with running(cp, *FAST):
        left = {f"{NAMESPACE}/{name}" for name in teams} | {"ml-batch/own"}
        eventually(
            lambda: trees.names(cp, "localqueues") == left, what="the LocalQueues to be gone"
        )
        trees.wait_sound(cp, *ALL)
        assert trees.queue(cp, "team-beta")["spec"]["namespaceSelector"] == {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE]}
            ]
        }
        assert writes(audit, start) == {
            "patch clusterqueues team-alpha": 1,
            "patch clusterqueues team-beta": 1,
            "delete localqueues ml-batch/team-alpha": 1,
            "delete localqueues ml-batch/team-beta": 1,
        }


@pytest.mark.case("FC-E04")
def test_a_team_that_is_applied_before_its_group_waits_for_it(
    clean: ControlPlane, audit: Audit
) -> None:
    """To Kueue a queue beneath a Cohort that is not there has no limits above it."""
    cp = clean
    trees.lab(cp, 8)
    with running(cp, *FAST):
        start = audit.mark()
        trees.put(cp, team("team-a", budget(8), parent="ml"))
        message = trees.wait_told(cp, "team-a", "Ready", "ParentMissing")
        assert "ml" in message
        wait_seconds(1)
        assert trees.names(cp, "clusterqueues") == set()
        trees.put(cp, group("ml", budget(8)))
        trees.wait_sound(cp, "ml", "team-a")
        made = [
            str(record)
            for record in audit.since(start, user=USER)
            if record.verb == "create" and record.resource in ("cohorts", "clusterqueues")
        ]
        assert made == ["create cohorts ml", "create clusterqueues team-a"]


@pytest.mark.case("A-68")
def test_what_a_frozen_or_unreachable_node_has_is_neither_written_nor_deleted(
    clean: ControlPlane, audit: Audit
) -> None:
    cp = clean
    trees.lab(cp, 8)
    with running(cp, *FAST):
        trees.put(
            cp,
            group("ml", budget(8)),
            group("inner", budget(6), parent="ml"),
            team("deep", budget(4), parent="inner"),
            team("flat", budget(2), parent="ml"),
        )
        trees.wait_sound(cp, "ml", "inner", "deep", "flat")
        before = trees.unchanging(cp, "clusterqueues", "deep")
        start = audit.mark()
        trees.edit(cp, "inner", budget(3))
        trees.edit(cp, "deep", budget(5))
        trees.wait_told(cp, "inner", "Ready", "ContainmentViolated")
        trees.wait_told(cp, "deep", "Materialized", "Frozen")
        cp.api.delete(f"{QUOTAS}/inner")
        message = trees.wait_told(cp, "inner", "Terminating", "WaitingForChildren", "True")
        assert "deep" in message
        cp.api.merge(f"{QUOTAS}/inner", {"metadata": {"finalizers": None}})  # by force
        trees.wait_told(cp, "deep", "Ready", "ParentMissing")
        wait_seconds(1)
        assert trees.unchanging(cp, "clusterqueues", "deep") == before
        assert before["metadata"]["labels"][MANAGED_BY] == "quota-translator"
        assert writes(audit, start) == {}
        assert "inner" in trees.names(cp, "cohorts")  # a queue still names it
