"""What a change costs, to the single request, and in which order the requests go."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.controller import QUOTAS, running
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.shapes import (
    NO_STAMP,
    converge,
    hardware,
    nominal,
    objects,
    ours,
    quiet,
    reason,
    watching,
    writes,
)
from e2e.trees import (
    KUEUE,
    NAMESPACE,
    Document,
    budget,
    edit,
    group,
    guide_tree,
    job,
    namespace,
    put,
    team,
    wait_told,
)
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
OURS = {"quota-translator.dev/managed-by": "quota-translator"}


@pytest.mark.case("A-89")
def test_changes_cost_what_differs(clean: ControlPlane, audit: Audit) -> None:
    hardware(clean)
    enrolled = f"{NAMESPACE},ml-training"
    with running(clean, *NO_STAMP, namespaces=enrolled):
        put(clean, *guide_tree())
        converge(clean, 4)

        # A share: the queue, and the one status that shows it.
        mark = quiet(audit)
        edit(clean, "team-alpha", budget(12))
        eventually(lambda: nominal(clean, "team-alpha") == "12", what="the new share")
        converge(clean, 4)
        quiet(audit)
        assert writes(audit, mark) == Counter(
            {"patch clusterqueues team-alpha": 1, "patch acceleratorquotas/status team-alpha": 1}
        )
        assert [r for r in ours(audit, mark) if r.verb in ("get", "list")] == []

        # A namespace: its LocalQueues. No status shows how many there are.
        mark = audit.mark()
        put(clean, namespace("ml-training"))
        eventually(
            lambda: len(clean.api.items(f"{KUEUE}/namespaces/ml-training/localqueues")) == 2,
            what="two LocalQueues",
        )
        quiet(audit)
        assert writes(audit, mark) == Counter(
            {
                "create localqueues ml-training/team-alpha": 1,
                "create localqueues ml-training/team-beta": 1,
            }
        )

        # Use: the statuses of the team and of what it stands beneath.
        mark = audit.mark()
        put(clean, job("train", "team-beta", 4))
        eventually(lambda: _admitted(clean, "team-beta") == "4", what="4 admitted")
        quiet(audit)
        seen = writes(audit, mark)
        assert {request for request in seen if "acceleratorquotas/status" not in request} == set()
        assert set(seen) == {
            "patch acceleratorquotas/status team-beta",
            "patch acceleratorquotas/status ml-research",
        }
        assert seen.total() <= 4  # reserved may be seen a moment before admitted


def _admitted(cp: ControlPlane, name: str) -> str:
    rows = cp.api.get(f"{QUOTAS}/{name}")["status"]["budgets"]
    return str(rows[0].get("admitted", ""))


@pytest.mark.case("A-70", "A-71", "fault 26")
def test_parents_come_first_and_go_last(clean: ControlPlane, audit: Audit) -> None:
    hardware(clean)
    foreign = {"kind": "Cohort", "metadata": {"name": "theirs"}, "spec": {"parentName": "root"}}
    copied = {"kind": "Cohort", "metadata": {"name": "copy", "labels": OURS | _of("deep")}}
    for cohort in (foreign, copied):
        cohort["apiVersion"] = "kueue.x-k8s.io/v1beta2"
        clean.api.create(f"{KUEUE}/cohorts", cohort)
    cover = "delete resourceflavors quota-translator-cover"
    mark = audit.mark()
    with running(clean, *NO_STAMP):
        # Children before their parents, as a sync may bring them.
        put(
            clean,
            team("leaf", budget(4), parent="deep"),
            group("deep", budget(8), parent="ml"),
            group("ml", budget(16)),
        )
        converge(clean, 4)
        created = [str(r) for r in ours(audit, mark) if r.verb == "create" and r.code == 201]
        order = ["create cohorts root", "create cohorts ml", "create cohorts deep"]
        order += ["create clusterqueues leaf", f"create localqueues {NAMESPACE}/leaf"]
        assert [request for request in created if request in order] == order

        mark = quiet(audit)
        for name in ("ml", "deep", "leaf"):
            clean.api.delete(f"{QUOTAS}/{name}")
        eventually(lambda: ("Cohort", "", "ml") not in objects(clean), what="ml to be gone")
        quiet(audit)
        deleted = [str(r) for r in ours(audit, mark) if r.verb == "delete"]
        assert deleted.index(cover) > deleted.index("delete clusterqueues leaf")
        assert [request for request in deleted if request != cover] == [
            f"delete localqueues {NAMESPACE}/leaf",
            "delete clusterqueues leaf",
            "delete cohorts deep",
            "delete cohorts ml",
        ]
        left = {key for key in objects(clean) if key[0] == "Cohort"}
        assert left == {("Cohort", "", name) for name in ("root", "theirs", "copy")}


def _of(quota: str) -> dict[str, str]:
    return {"quota-translator.dev/quota": quota}


@pytest.mark.case("FC-E01", "fault 26")
def test_a_branch_turned_upside_down_is_never_a_cycle(
    clean: ControlPlane, audit: Audit, tmp_path: Path
) -> None:
    hardware(clean)
    before = (group("a"), group("b", parent="a"), team("t", budget(8), parent="b"))
    with running(clean, *NO_STAMP), watching(clean, "cohorts", tmp_path / "cohorts") as watched:
        put(clean, *before)
        converge(clean, 4)
        mark = quiet(audit)
        _together(
            lambda: clean.api.merge(f"{QUOTAS}/a", {"spec": {"parentRef": {"name": "b"}}}),
            lambda: clean.api.merge(f"{QUOTAS}/b", {"spec": {"parentRef": {"name": "root"}}}),
        )
        converge(clean, 4)
        quiet(audit)
        versions = {
            key[2]: item["metadata"]["resourceVersion"]
            for key, item in objects(clean).items()
            if key[0] == "Cohort"
        }
        eventually(
            lambda: all(watched.version(name) == version for name, version in versions.items()),
            what="the watch to have brought everything",
        )
        states = [_parents(state) for state in watched.states()]
        assert states[-1] == {"root": "", "a": "b", "b": "root"}
        assert [state for state in states if _has_cycle(state)] == []
        # No Cohort ever hung beneath one that was not there: that would be an unlimited root.
        assert [s for s in states if not set(s.values()) <= {"", *s}] == []
        assert writes(audit, mark)["patch cohorts a"] == 1
        assert writes(audit, mark)["patch cohorts b"] == 1


def _parents(state: dict[str, Document]) -> dict[str, str]:
    return {name: item.get("spec", {}).get("parentName", "") for name, item in state.items()}


def _has_cycle(parents: dict[str, str]) -> bool:
    for name in parents:
        at = name
        for _ in parents:
            at = parents.get(at, "")
        if at:
            return True
    return False


@pytest.mark.case("FC-E02")
def test_two_good_edits_that_are_too_much_together(clean: ControlPlane, audit: Audit) -> None:
    hardware(clean)
    with running(clean, *NO_STAMP):
        put(
            clean,
            group("ml", budget(24)),
            team("left", budget(10), parent="ml"),
            team("right", budget(10), parent="ml"),
        )
        converge(clean, 4)
        quiet(audit)
        _together(
            lambda: edit(clean, "left", budget(14)),
            lambda: edit(clean, "right", budget(14)),
        )
        wait_told(clean, "ml", "Ready", "ContainmentViolated")
        quiet(audit)
        ready = clean.api.get(f"{QUOTAS}/ml")["status"]["conditions"][0]["message"]
        assert "is 24 but its children total 28" in ready
        # The edit that came first may have been good by itself; both together never were.
        held = {nominal(clean, "left"), nominal(clean, "right")}
        assert held in ({"10"}, {"10", "14"})
        assert [reason(clean, name) for name in ("left", "right")] == 2 * [
            "False ContainmentViolated"
        ]
        edit(clean, "left", budget(10))
        converge(clean, 4)
        assert (nominal(clean, "left"), nominal(clean, "right")) == ("10", "14")


def _together(*calls: Callable[[], object]) -> None:
    """Start them at the same moment, and wait for all."""
    barrier = threading.Barrier(len(calls))
    errors: list[Exception] = []

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            call()
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
