"""What happened to the tree's nodes: Events on them, and every refusal seen four times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e import trees
from e2e.controller import QUOTAS, Controller, running
from e2e.controlplane import nodes
from e2e.controlplane.api import ApiError
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, KUEUE, budget, group, kueue_object, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
EVENTS = "/api/v1/namespaces/default/events"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = f"{POLICIES.rpartition('/')[0]}/validatingadmissionpolicybindings"
QUEUES = f"{KUEUE}/clusterqueues"
AT_ONCE = ("--capacity-drop-after", "0s", "--capacity-hysteresis-percent", "0")
ALL = ("ml-research", "team-alpha", "team-beta")


def events(cp: ControlPlane, name: str) -> list[dict[str, Any]]:
    """Those on the node as it is there now."""
    uid = cp.api.get(f"{QUOTAS}/{name}")["metadata"]["uid"]
    return cp.api.items(f"{EVENTS}?fieldSelector=involvedObject.uid={uid}")


def reasons(cp: ControlPlane, name: str) -> list[str]:
    return sorted(event["reason"] for event in events(cp, name))


def wait_event(cp: ControlPlane, name: str, reason: str, word: str = "") -> dict[str, Any]:
    def there() -> dict[str, Any]:
        found = events(cp, name)
        alike = [e for e in found if e["reason"] == reason and word in e["message"]]
        assert alike, [f"{e['reason']}: {e['message']}" for e in found]
        return alike[0]

    return eventually(there, 20, f"the event {reason} on {name}")


def seen_four_times(
    cp: ControlPlane, controller: Controller, name: str, kind: str, reason: str
) -> None:
    """In the condition, an Event, the metric and the log."""
    message = trees.wait_told(cp, name, kind, reason)
    event = wait_event(cp, name, reason)
    assert event["type"] == "Warning"
    assert message[:200] in event["message"]
    series = f'quota_translator_node_reason{{condition="{kind}",quota="{name}",reason="{reason}"}}'
    eventually(lambda: f"{series} 1.0" in controller.get("/metrics")[1], 10, series)

    def logged() -> bool:
        return any(
            line.get("reason") == reason and name in line.get("quota", "") and line["pass_id"] > 0
            for line in map(json.loads, controller.log().splitlines())
            if line["level"] == "warning"
        )

    eventually(logged, 10, f"{reason} of {name} in the log")


@contextmanager
def refusing(cp: ControlPlane, name: str) -> Iterator[None]:
    """The API server refuses a ClusterQueue of this name."""
    rule = {
        "apiGroups": ["kueue.x-k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["clusterqueues"],
    }
    validation = {"expression": f"object.metadata.name != '{name}'", "message": "not on my watch"}
    cp.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "not-this-one"},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [validation],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "not-this-one"},
            "spec": {"policyName": "not-this-one", "validationActions": ["Deny"]},
        },
    )
    probe = kueue_object("ClusterQueue", name, {})

    def refuses() -> bool:
        try:
            cp.api.create(f"{QUEUES}?dryRun=All", probe)
        except ApiError as error:
            return "not on my watch" in error.message
        return False

    try:
        eventually(refuses, 30, "the policy to be in force")
        yield
    finally:
        cp.api.delete(f"{BINDINGS}/not-this-one")
        cp.api.delete(f"{POLICIES}/not-this-one")


@pytest.mark.case("A-96")
def test_every_refusal_is_seen_four_times_with_one_reason(clean: ControlPlane) -> None:
    """A freeze, a stranger's object, the server's refusal, and a Kueue that does not answer."""
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST) as controller:
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, *ALL)

        trees.edit(cp, "team-alpha", budget(20))
        seen_four_times(cp, controller, "ml-research", "Ready", "ContainmentViolated")
        assert " frozen: " in cp.kubectl("describe", "acceleratorquota", "ml-research")
        # What is beneath froze for that reason: its condition says so, and no Event of its own.
        assert trees.wait_told(cp, "team-beta", "Ready", "ContainmentViolated")
        trees.edit(cp, "team-alpha", budget(16))
        trees.wait_sound(cp, *ALL)
        wait_event(cp, "ml-research", "Thawed", "it was ContainmentViolated")
        assert reasons(cp, "team-beta") == []

        cp.api.create(QUEUES, kueue_object("ClusterQueue", "taken", {"namespaceSelector": {}}))
        trees.put(cp, team("taken", budget(1), parent="root"))
        seen_four_times(cp, controller, "taken", "Materialized", "ObjectConflict")

        with refusing(cp, "unwanted"):
            trees.put(cp, team("unwanted", budget(1), parent="root"))
            seen_four_times(cp, controller, "unwanted", "Materialized", "MaterializationFailed")
            assert wait_event(cp, "unwanted", "MaterializationFailed", "not on my watch")

        cp.stop_kueue()
        try:
            trees.edit(cp, "team-beta", budget(7, borrowing=4))
            seen_four_times(cp, controller, "team-beta", "Materialized", "KueueUnavailable")
        finally:
            cp.start_kueue()
        trees.wait_sound(cp, "team-beta", timeout=60)
        assert wait_event(cp, "team-beta", "Materialized", "KueueUnavailable")["type"] == "Normal"


@pytest.mark.case("A-96")
def test_what_happens_is_told_once_and_a_restart_does_not_tell_it_again(
    clean: ControlPlane,
) -> None:
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST, *AT_ONCE) as controller:
        trees.put(cp, group("ml", budget(8)), team("a", budget(8), parent="ml"))
        trees.put(cp, team("b", budget(16), parent="root"))
        trees.wait_sound(cp, "ml", "a", "b")

        for number in (3, 4):
            nodes.delete_node(cp, f"gpu-{number}")
        wait_event(cp, "root", "CapacityFell", "fell from 32 to")
        eventually(lambda: trees.mark(cp) == "16", 20, "the mark to be 16")
        wait_event(cp, "root", "Oversubscribed")

        cp.api.merge(f"{QUEUES}/b", {"spec": {"cohortName": "elsewhere"}})
        told = wait_event(cp, "b", "DriftRepaired")
        assert "ClusterQueue b: put back cohortName" in told["message"]

        trees.edit(cp, "a", budget(9))
        wait_event(cp, "ml", "ContainmentViolated", "frozen: ")
        before = {name: reasons(cp, name) for name in ("root", "ml", "a", "b")}

        controller.stop()
        controller.start()
        # A change that is told after the restart: all that came before it has been judged again.
        trees.edit(cp, "b", budget(40))
        wait_event(cp, "b", "CapacityExceeded", "frozen: ")
        after = {name: reasons(cp, name) for name in ("root", "ml", "a", "b")}
        after["b"].remove("CapacityExceeded")
        assert after == before

        trees.edit(cp, "a", budget(8))
        trees.wait_sound(cp, "a")
        uid = cp.api.get(f"{QUOTAS}/a")["metadata"]["uid"]
        cp.api.delete(f"{QUOTAS}/a")
        of_a = f"{EVENTS}?fieldSelector=involvedObject.uid={uid},reason=Drained"
        assert eventually(lambda: cp.api.items(of_a), 20, "the event Drained of a")
