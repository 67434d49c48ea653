"""How nodes of the tree leave it: at work, all at once, by accident, and in another role."""

from __future__ import annotations

import pytest

from e2e import trees
from e2e.controller import CRD, QUOTAS, USER, install_crd, running, wait_seconds
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.shapes import NO_STAMP, converge, hardware, nominal, objects
from e2e.trees import (
    FAST,
    KUEUE,
    MANAGED_BY,
    NAMESPACE,
    budget,
    condition,
    end_job,
    group,
    job,
    kueue_object,
    names,
    put,
    running_pods,
    team,
    wait_admitted,
    wait_sound,
    wait_told,
)
from e2e.waiting import eventually
from quota_translator.core.names import FINALIZER, SWEEP_ORPHANS

pytestmark = pytest.mark.e2e
OTHERS = "example.com/hold"


def finalizers(cp: ControlPlane, name: str) -> list[str]:
    found: list[str] = cp.api.get(f"{QUOTAS}/{name}")["metadata"].get("finalizers", [])
    return found


def delete(cp: ControlPlane, *nodes: str) -> None:
    for name in nodes:
        cp.api.delete(f"{QUOTAS}/{name}")


def wait_gone(cp: ControlPlane, *nodes: str, timeout: float = 30) -> None:
    def gone() -> bool:
        left = [name for name in nodes if cp.api.find(f"{QUOTAS}/{name}")]
        assert not left, {name: trees.verdicts(cp, name) for name in left}
        return True

    eventually(gone, timeout, f"{', '.join(nodes)} to be gone")


def wait_says(cp: ControlPlane, name: str, *texts: str, kind: str = "Materialized") -> str:
    """Until a condition of a node has all of these in its message."""

    def says() -> str:
        message = str(condition(cp, name, kind).get("message", ""))
        assert all(text in message for text in texts), message
        return message

    return eventually(says, 30, f"{name} to say {' and '.join(texts)}")


@pytest.mark.case("A-97", "FC-G01", "FC-G02")
def test_a_team_that_is_deleted_at_work_says_what_holds_it_and_goes_by_itself(
    clean: ControlPlane, audit: Audit
) -> None:
    cp = clean
    hardware(cp)
    start = audit.mark()
    with running(cp, *FAST, *NO_STAMP, "--status-workload-names", "true"):
        node = team("team-a", budget(8), parent="root")
        node["metadata"]["finalizers"] = [OTHERS]
        put(cp, node)
        wait_sound(cp, "team-a", "root")
        assert finalizers(cp, "team-a") == [OTHERS, FINALIZER]
        writes = [str(r) for r in audit.since(start, user=USER) if r.is_write]
        claim = writes.index("patch acceleratorquotas team-a")
        first = next(n for n, line in enumerate(writes) if line.endswith(" team-a") and n != claim)
        assert claim < first

        put(cp, *(job(f"train-{n}", "team-a", gpus) for n, gpus in ((1, 4), (2, 2), (3, 2))))
        wait_admitted(cp, "train-1", "train-2", "train-3")
        eventually(lambda: running_pods(cp, "train-1"), what="the pod of train-1")
        pods = {
            pod["metadata"]["uid"] for n in (1, 2, 3) for pod in trees.pods_of(cp, f"train-{n}")
        }
        delete(cp, "team-a")
        told = wait_says(cp, "team-a", "3 workloads still hold 8 nvidia.com/gpu on a100")
        assert f"Job {NAMESPACE}/train-1 since" in told
        assert condition(cp, "team-a", "Materialized")["reason"] == "Draining"
        assert "it was deleted at 20" in condition(cp, "team-a", "Terminating")["message"]

        # Nothing new is admitted, and whatever runs goes on.
        put(cp, job("late", "team-a"))
        end_job(cp, "train-1")
        wait_says(cp, "team-a", "2 workloads still hold 4 nvidia.com/gpu on a100")
        assert "late" not in trees.admitted(cp)
        left = {pod["metadata"]["uid"] for n in (2, 3) for pod in running_pods(cp, f"train-{n}")}
        assert left < pods
        assert len(left) == 2
        queue = trees.queue(cp, "team-a")
        assert queue["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

        end_job(cp, "train-2")
        end_job(cp, "train-3")
        wait_says(cp, "team-a", "nothing of it is left in Kueue", OTHERS)
        assert finalizers(cp, "team-a") == [OTHERS]
        assert names(cp, "clusterqueues") == set()
        assert names(cp, "localqueues") == set()
        cp.api.merge(f"{QUOTAS}/team-a", {"metadata": {"finalizers": None}})
        wait_gone(cp, "team-a")
        assert names(cp, "cohorts") == {"root"}


@pytest.mark.case("FC-G08")
def test_everything_is_deleted_at_once(clean: ControlPlane, audit: Audit) -> None:
    """Without the webhook, which would ask for a second run. Parents wait for their children."""
    cp = clean
    hardware(cp)
    with running(cp, *FAST, *NO_STAMP):
        put(cp, *trees.guide_tree())
        converge(cp, 4)
        put(cp, job("train", "team-alpha", 8))
        wait_admitted(cp, "train")
        start = audit.mark()
        delete(cp, "root", "ml-research")
        wait_says(cp, "root", "goes when it is the last node", kind="Terminating")
        wait_says(cp, "ml-research", "team-alpha, team-beta", kind="Terminating")
        wait_sound(cp, "ml-research", "team-alpha", "team-beta")  # they count as before
        delete(cp, "team-beta", "team-alpha")
        wait_gone(cp, "team-beta")
        told = wait_says(cp, "team-alpha", "1 workload held 8 nvidia.com/gpu on a100 when Kueue")
        assert "ClusterQueue team-alpha" in told
        wait_says(cp, "ml-research", "Cohort ml-research", "ClusterQueue team-alpha still uses it")
        end_job(cp, "train")
        wait_gone(cp, "team-alpha", "ml-research")
        # A tree has a root as long as the controller runs.
        wait_sound(cp, "root")
        assert names(cp, "clusterqueues") == set()
        assert names(cp, "cohorts") == {"root"}
        done = [str(r) for r in audit.since(start, user=USER) if r.verb in ("delete", "patch")]
        order = [
            done.index(f"delete {what}")
            for what in ("clusterqueues team-alpha", "cohorts ml-research", "cohorts root")
        ]
        assert order == sorted(order)


@pytest.mark.case("A-54", "FC-E10", "A-72")
def test_a_name_comes_back_in_the_other_role(clean: ControlPlane) -> None:
    cp = clean
    hardware(cp)
    with running(cp, *FAST, *NO_STAMP):
        put(cp, team("x", budget(40), parent="root"))  # frozen from the beginning
        wait_told(cp, "x", "Ready", "CapacityExceeded")
        first = trees.status(cp, "x")["materialization"]["frozenAt"]
        delete(cp, "x")
        wait_gone(cp, "x")
        wait_seconds(1)  # times are in whole seconds
        put(cp, team("x", budget(40), parent="root"))
        wait_told(cp, "x", "Ready", "CapacityExceeded")
        assert trees.status(cp, "x")["materialization"]["frozenAt"] > first
        trees.edit(cp, "x", budget(4))
        wait_sound(cp, "x")
        uid = trees.queue(cp, "x")["metadata"]["uid"]

        delete(cp, "x")
        wait_gone(cp, "x")
        put(cp, group("x", budget(8)), team("y", budget(4), parent="x"))
        wait_sound(cp, "x", "y")
        assert names(cp, "clusterqueues") == {"y"}
        assert names(cp, "cohorts") == {"root", "x"}
        assert names(cp, "localqueues") == {f"{NAMESPACE}/y"}

        delete(cp, "y")
        wait_gone(cp, "y")
        delete(cp, "x")
        wait_gone(cp, "x")
        put(cp, team("x", budget(4), parent="root"))
        wait_sound(cp, "x")
        assert names(cp, "cohorts") == {"root"}
        assert trees.queue(cp, "x")["metadata"]["uid"] != uid


TEAMS = ("a", "b", "c", "d")


@pytest.mark.case("fault 11")
def test_the_crd_is_removed_and_installed_again(clean: ControlPlane) -> None:
    """Kueue keeps everything. What came back with the tree is as before; the rest waits."""
    cp = clean
    hardware(cp)
    tree = [group("ml", budget(8)), *(team(name, budget(2), parent="ml") for name in TEAMS)]
    with running(cp, *FAST, *NO_STAMP, "--materialize-orphan-after", "2s") as controller:
        put(cp, *tree)
        converge(cp, 6)
        put(cp, job("train", "a", 2))
        wait_admitted(cp, "train")
        before = {key: item["metadata"]["uid"] for key, item in objects(cp).items()}
        cp.api.delete(CRD)
        eventually(lambda: cp.api.find(CRD) is None, 60, "the CRD to be gone")
        install_crd(cp)
        wait_told(cp, "root", "OrphansHeld", "OrphansHeld", "True", 60)
        told = condition(cp, "root", "OrphansHeld")["message"]
        assert told.startswith("5 of the 6 nodes behind our objects in Kueue are gone")
        assert f"{SWEEP_ORPHANS}=5" in told
        wait_seconds(3)  # longer than a few of them would have stayed
        assert {key: item["metadata"]["uid"] for key, item in objects(cp).items()} == before

        put(cp, *tree[:1])
        wait_sound(cp, "ml", timeout=60)
        wait_says(cp, "root", f"{SWEEP_ORPHANS}=4", kind="OrphansHeld")
        confirm = {"metadata": {"annotations": {SWEEP_ORPHANS: "5"}}}
        cp.api.merge(f"{QUOTAS}/root", confirm)
        wait_says(cp, "root", "it says '5' now", kind="OrphansHeld")
        assert names(cp, "clusterqueues") == set(TEAMS)
        confirm["metadata"]["annotations"][SWEEP_ORPHANS] = "4"
        cp.api.merge(f"{QUOTAS}/root", confirm)
        eventually(lambda: names(cp, "clusterqueues") == {"a"}, what="the sweep")
        end_job(cp, "train")
        eventually(lambda: names(cp, "clusterqueues") == set(), what="the end of the last")
        eventually(lambda: not condition(cp, "root", "OrphansHeld"), what="the all-clear")
        annotations = cp.api.get(f"{QUOTAS}/root")["metadata"].get("annotations", {})
        assert SWEEP_ORPHANS not in annotations
        assert names(cp, "cohorts") == {"root", "ml"}
        assert "Traceback" not in controller.log()


def test_a_few_objects_without_a_node_go_after_a_while(clean: ControlPlane) -> None:
    cp = clean
    hardware(cp)
    with running(cp, *FAST, *NO_STAMP, "--materialize-orphan-after", "4s") as controller:
        put(cp, team("a", budget(2), parent="root"), team("b", budget(2), parent="root"))
        wait_sound(cp, "a", "b")
        controller.stop()
        delete(cp, "a")
        cp.api.merge(f"{QUOTAS}/a", {"metadata": {"finalizers": None}})  # by somebody impatient
        controller.start()
        trees.edit(cp, "b", budget(3))
        eventually(lambda: nominal(cp, "b") == "3", what="an edit to arrive")
        assert names(cp, "clusterqueues") == {"a", "b"}
        eventually(lambda: names(cp, "clusterqueues") == {"b"}, what="the sweep")
        assert names(cp, "localqueues") == {f"{NAMESPACE}/b"}
        assert condition(cp, "root", "OrphansHeld") == {}


@pytest.mark.case("A-106")
def test_a_queue_with_work_in_it_is_handed_over_by_labels(clean: ControlPlane) -> None:
    cp = clean
    hardware(cp)
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]
    resources += [{"name": n, "nominalQuota": q} for n, q in (("cpu", "64"), ("memory", "1Ti"))]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": [cell["name"] for cell in resources],
                "flavors": [{"name": "a100", "resources": resources}],
            }
        ],
    }
    put(
        cp,
        kueue_object("ClusterQueue", "old", spec),
        kueue_object("LocalQueue", "old", {"clusterQueue": "old"}, NAMESPACE),
        job("train", "old", 4),
    )
    wait_admitted(cp, "train")
    eventually(lambda: running_pods(cp, "train"), what="the pod to run")
    (pod,) = running_pods(cp, "train")
    uid = trees.queue(cp, "old")["metadata"]["uid"]
    with running(cp, *FAST, *NO_STAMP):
        put(cp, team("old", budget(4), parent="root"))
        wait_told(cp, "old", "Materialized", "ObjectConflict")
        ours = {"metadata": {"labels": {MANAGED_BY: USER, "quota-translator.dev/quota": "old"}}}
        for path in (
            f"{KUEUE}/clusterqueues/old",
            f"{KUEUE}/namespaces/{NAMESPACE}/localqueues/old",
        ):
            cp.api.merge(path, ours)
        wait_sound(cp, "old")
        eventually(lambda: trees.share(cp, "old").get("admitted") == "4", what="the use")
        queue = trees.queue(cp, "old")
        assert queue["metadata"]["uid"] == uid
        assert queue["spec"]["cohortName"] == "root"
        assert trees.gpu_cell(queue) == {"nominalQuota": "4", "borrowingLimit": "0"}
        (after,) = running_pods(cp, "train")
        assert after["metadata"]["uid"] == pod["metadata"]["uid"]
