"""What a tree means for the people who run things: what fits, what waits, and on which machines."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from e2e import trees
from e2e.controller import QUOTAS, running, wait_seconds
from e2e.controlplane import nodes
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, NAMESPACE, budget, group, job, team
from e2e.waiting import eventually
from quota_translator.core.names import RETIRE

pytestmark = pytest.mark.e2e
RACK = "example.com/rack"
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
COVER = "quota-translator-cover"


def pod_at(cp: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cp.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
    return found


def is_gated(pod: dict[str, Any]) -> bool:
    reasons = [c.get("reason") for c in pod["status"].get("conditions", [])]
    return bool(pod["spec"].get("schedulingGates")) and "SchedulingGated" in reasons


@pytest.mark.case("A-80", "FC-F01", "FC-F02")
def test_a_team_borrows_what_its_neighbour_leaves_idle(clean: ControlPlane) -> None:
    """The guide's tree: 12 fit in team-beta while team-alpha is idle, and the 13th waits."""
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, "ml-research", "team-alpha", "team-beta")
        # An absent limit would be no limit to Kueue, and a group's share would be additional.
        assert trees.gpu_cell(trees.queue(cp, "team-alpha")) == {
            "nominalQuota": "16",
            "borrowingLimit": "0",
        }
        cohort = cp.api.get(f"{trees.KUEUE}/cohorts/ml-research")
        assert trees.quotas_of(cohort) == {}

        trees.put(cp, job("twelve", "team-beta", pods=12))
        trees.wait_admitted(cp, "twelve")
        trees.put(cp, trees.pod("shell", "team-beta"))
        trees.wait_tried(cp, "shell")
        assert is_gated(pod_at(cp, "shell")), pod_at(cp, "shell")
        eventually(lambda: len(trees.running_pods(cp, "twelve")) == 12, what="12 pods to run")

        def told() -> bool:
            seen = {name: trees.share(cp, name) for name in ("team-beta", "ml-research")}
            rows = {name: (row.get("admitted"), row.get("borrowed")) for name, row in seen.items()}
            assert rows == {"team-beta": ("12", "4"), "ml-research": ("12", "0")}
            return True

        eventually(told, what="use to be told")
        assert trees.status(cp, "team-beta")["summary"] == "nvidia.com/gpu a100 12/8+4"
        assert is_gated(pod_at(cp, "shell"))

        trees.end_job(cp, "twelve")
        eventually(
            lambda: pod_at(cp, "shell")["status"]["phase"] == "Running", what="the pod to run"
        )


@pytest.mark.case("A-76")
def test_borrowing_reaches_an_unused_share_anywhere_in_the_tree(clean: ControlPlane) -> None:
    cp = clean
    trees.lab(cp, 8)
    with running(cp, *FAST):
        trees.put(
            cp,
            group("vision", budget(8)),
            group("robots", parent="vision"),
            team("idle", budget(8), parent="robots"),
            group("speech"),
            team("busy", budget(0, 6), parent="speech"),
        )
        trees.wait_sound(cp, "idle", "busy")
        trees.put(cp, job("six", "busy", 6), job("seventh", "busy", 1))
        trees.wait_admitted(cp, "six")
        trees.wait_tried(cp, "seventh")
        eventually(lambda: trees.share(cp, "busy").get("borrowed") == "6", what="6 borrowed")


def test_hardware_that_leaves_lowers_the_mark_and_a_budget_above_it_is_frozen(
    clean: ControlPlane,
) -> None:
    """2 of 32 retired keep the mark for a day; a machine that is gone lowers it."""
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    quick = (*FAST, "--capacity-drop-after", "1s")
    with running(cp, *quick):
        trees.put(
            cp,
            group("ml", budget(28)),
            team("alpha", budget(16), parent="ml"),
            team("beta", budget(12), parent="ml"),
        )
        trees.wait_sound(cp, "ml", "alpha", "beta")
        assert trees.mark(cp) == "32"
        retired = {nodes.GPU: 6}
        nodes.set_allocatable(cp, "gpu-4", retired, capacity=retired)
        eventually(
            lambda: trees.capacity(cp)["pending"][0]["kind"] == "Settle", what="the mark to wait"
        )
        wait_seconds(2)  # longer than a drop would take
        row = trees.capacity(cp)
        assert (row["allocatable"], row["highWaterMark"]) == ("30", "32")
        assert [(wait["kind"], wait["value"]) for wait in row["pending"]] == [("Settle", "30")]
    with running(cp, *quick, "--capacity-settle-after", "2s"):
        eventually(lambda: trees.mark(cp) == "30", what="the mark to settle at 30")
        trees.wait_sound(cp, "ml", "alpha", "beta")
        before = trees.unchanging(cp, "clusterqueues", "alpha")

        nodes.delete_node(cp, "gpu-4")
        message = trees.wait_told(cp, "ml", "Ready", "CapacityExceeded")
        assert trees.mark(cp) == "24"
        assert "28" in message
        assert "24" in message
        trees.wait_told(cp, "alpha", "Materialized", "Frozen")
        trees.edit(cp, "alpha", budget(12))
        trees.wait_told(cp, "alpha", "Materialized", "Frozen")
        assert trees.unchanging(cp, "clusterqueues", "alpha") == before

        trees.edit(cp, "ml", budget(24))
        trees.wait_sound(cp, "ml", "alpha", "beta")
        assert trees.gpu_cell(trees.queue(cp, "alpha")) == {
            "nominalQuota": "12",
            "borrowingLimit": "0",
        }


@pytest.mark.case("FC-H05", "A-77")
def test_a_job_without_gpus_is_not_pinned_to_gpu_machines(clean: ControlPlane) -> None:
    cp = clean
    trees.lab(cp, 8)
    nodes.add_node(cp, "cpu-1", wait=False)
    with running(cp, *FAST):
        trees.put(cp, group("ml"), team("alpha", budget(8), parent="ml"))
        trees.wait_sound(cp, "alpha")
        trees.put(cp, job("launcher", "alpha", 0), job("worker", "alpha", 4))
        trees.wait_admitted(cp, "launcher", "worker")
        assert set(trees.flavors_given(cp, "launcher").values()) == {COVER}
        assert trees.flavors_given(cp, "worker") == {
            "cpu": COVER,
            "memory": COVER,
            nodes.GPU: "a100",
        }
        eventually(lambda: trees.running_pods(cp, "launcher"), what="the launcher to run")
        (launcher,) = trees.pods_of(cp, "launcher")
        (worker,) = eventually(lambda: trees.pods_of(cp, "worker"), what="the worker's pod")
        assert launcher["spec"].get("nodeSelector", {}) == {}
        assert worker["spec"]["nodeSelector"] == {nodes.PRODUCT_LABEL: nodes.A100}


def test_teams_with_a_topology_take_plain_jobs_and_those_that_ask_for_it(
    clean: ControlPlane,
) -> None:
    cp = clean
    trees.lab(cp, 8)
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    trees.put(
        cp,
        trees.kueue_object("Topology", "racks", {"levels": levels}),
        trees.flavor("h100", topology="racks"),
    )
    for number, rack in enumerate(("r1", "r2"), 1):
        labels = {nodes.PRODUCT_LABEL: trees.PRODUCTS["h100"], RACK: rack}
        nodes.add_node(cp, f"h100-{number}", labels, {nodes.GPU: 8})
    near = {REQUIRED_TOPOLOGY: RACK}
    with running(cp, *FAST):
        trees.put(
            cp,
            group("ml"),
            team("pure", budget(8, flavor="h100"), parent="ml"),
            team("mixed", budget(8, flavor="h100"), budget(8), parent="ml"),
        )
        trees.wait_sound(cp, "pure", "mixed")
        trees.put(
            cp,
            job("pure-plain", "pure", 2),
            job("pure-near", "pure", 2, pods=2, annotations=near),
            job("mixed-plain", "mixed", 2),
            job("mixed-near", "mixed", 2, pods=2, annotations=near),
        )
        trees.wait_admitted(cp, "pure-plain", "pure-near", "mixed-plain", "mixed-near")
        given = {
            name: trees.flavors_given(cp, name)[nodes.GPU]
            for name in ("pure-plain", "pure-near", "mixed-plain", "mixed-near")
        }
        assert given == {
            "pure-plain": "h100",
            "pure-near": "h100",
            "mixed-plain": "a100",
            "mixed-near": "h100",
        }
        trees.put(cp, job("mixed-helper", "mixed", 0), job("pure-helper", "pure", 0))
        trees.wait_admitted(cp, "mixed-helper", "pure-helper")
        eventually(lambda: len(trees.running_pods(cp, "mixed-near")) == 2, what="both pods to run")
        racks = {
            cp.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")["metadata"]["labels"][RACK]
            for pod in trees.running_pods(cp, "mixed-near")
        }
        assert len(racks) == 1


@pytest.mark.case("A-65")
def test_a_budget_on_a_missing_flavor_is_left_out_until_the_flavor_is_there(
    clean: ControlPlane,
) -> None:
    cp = clean
    trees.lab(cp, 8)
    with running(cp, *FAST):
        trees.put(cp, group("ml"), team("alpha", budget(8), budget(0, 2, flavor="l4"), parent="ml"))
        message = trees.wait_told(cp, "alpha", "Materialized", "FlavorMissing")
        assert "l4" in message
        assert "spec.budgets[1]" in message
        assert trees.condition(cp, "alpha", "Ready")["status"] == "True"
        seen = trees.quotas_of(trees.queue(cp, "alpha"))
        assert {flavor for flavor, _ in seen} == {"a100", COVER}

        trees.put(cp, trees.flavor("l4"))
        trees.wait_sound(cp, "alpha")
        assert trees.gpu_cell(trees.queue(cp, "alpha"), "l4") == {
            "nominalQuota": "0",
            "borrowingLimit": "2",
        }


@pytest.mark.case("FC-G05")
def test_a_budget_that_is_taken_away_in_use_stays_at_zero_until_it_is_free(
    clean: ControlPlane,
) -> None:
    """Kueue forgets the use of what a queue no longer lists, and would give it to others again."""
    cp = clean
    trees.lab(cp, 8, flavors=("a100", "l4"))
    labels = {nodes.PRODUCT_LABEL: trees.PRODUCTS["l4"]}
    nodes.add_node(cp, "l4-1", labels, {nodes.GPU: 6}, wait=False)
    with running(cp, *FAST):
        trees.put(
            cp,
            group("ml"),
            team("alpha", budget(8), budget(4, 2, flavor="l4"), parent="ml"),
            team("beta", budget(2, flavor="l4"), parent="ml"),
        )
        trees.wait_sound(cp, "alpha", "beta")
        trees.put(cp, job("inference", "alpha", 6, on=labels))
        trees.wait_admitted(cp, "inference")
        eventually(
            lambda: trees.share(cp, "alpha", "l4").get("borrowed") == "2", what="2 to be borrowed"
        )

        trees.edit(cp, "alpha", budget(8))
        zero = {"nominalQuota": "0", "borrowingLimit": "0"}
        eventually(
            lambda: trees.gpu_cell(trees.queue(cp, "alpha"), "l4") == zero, what="l4 to be 0"
        )
        trees.put(cp, job("other", "beta", 1, on=labels))
        trees.wait_tried(cp, "other")
        wait_seconds(4)  # longer than an unused pair is kept
        assert trees.gpu_cell(trees.queue(cp, "alpha"), "l4") == zero
        assert trees.admitted(cp) == {"inference"}

        trees.end_job(cp, "inference")
        trees.wait_admitted(cp, "other")
        eventually(
            lambda: trees.gpu_cell(trees.queue(cp, "alpha"), "l4") is None, what="l4 to be gone"
        )
        trees.wait_sound(cp, "alpha")


@pytest.mark.case("A-105")
def test_a_label_that_moves_leaves_what_runs_charged_to_the_old_team(clean: ControlPlane) -> None:
    cp = clean
    trees.lab(cp, 8, 8)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    with running(cp, *FAST):
        trees.put(
            cp,
            group("ml"),
            team("old", budget(8), parent="ml"),
            team("new", budget(8), parent="ml"),
        )
        trees.wait_sound(cp, "old", "new")
        cp.api.create(path, deployment("serve", "old", 4))
        (pod,) = eventually(lambda: serving(cp, "old"), what="the pod to run")
        trees.put(cp, job("train", "new", 8))
        trees.wait_admitted(cp, "train")

        cp.api.merge(f"{path}/serve", deployment("serve", "new", 4))
        trees.wait_tried(cp, waiting_pod(cp, "new"))
        wait_seconds(1)
        assert [one["metadata"]["uid"] for one in serving(cp, "old")] == [pod["metadata"]["uid"]]
        assert uses(cp, "old", "new") == {"old": "4", "new": "8"}

        trees.end_job(cp, "train")
        eventually(lambda: serving(cp, "new"), what="the new pod to run")
        eventually(
            lambda: uses(cp, "old", "new") == {"old": "0", "new": "4"}, what="the charge to move"
        )
        assert serving(cp, "old") == []


def deployment(name: str, queue: str, gpus: int) -> dict[str, Any]:
    """One pod, which is replaced by the next one before it goes."""
    labels = {"app": name, trees.QUEUE_LABEL: queue}
    spec = trees.pod_spec(gpus) | {"restartPolicy": "Always"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def pods_in(cp: ControlPlane, queue: str) -> list[dict[str, Any]]:
    selector = f"app,{trees.QUEUE_LABEL}={queue}"
    return cp.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}")


def serving(cp: ControlPlane, queue: str) -> list[dict[str, Any]]:
    return [pod for pod in pods_in(cp, queue) if pod["status"].get("phase") == "Running"]


def waiting_pod(cp: ControlPlane, queue: str) -> str:
    (pod,) = eventually(lambda: pods_in(cp, queue), what="a pod that waits")
    return str(pod["metadata"]["name"])


def uses(cp: ControlPlane, *teams: str) -> dict[str, str]:
    return {name: trees.share(cp, name).get("admitted", "0") for name in teams}


@pytest.mark.case("FC-A08")
def test_a_pool_that_is_empty_is_shared_by_its_declared_size(clean: ControlPlane) -> None:
    """32 on machines that do not exist yet; the first one that comes is used at once."""
    cp = clean
    trees.lab(cp, 8, flavors=("a100", "l4"))
    with running(cp, *FAST):
        trees.put(cp, team("batch", budget(32, flavor="l4"), parent="root"))
        message = trees.wait_told(cp, "batch", "Ready", "CapacityExceeded")
        assert "was never seen on any node" in message

        declared = {"resourceName": nodes.GPU, "resourceFlavor": "l4", "quantity": 32}
        cp.api.merge(f"{QUOTAS}/root", {"spec": {"expectedCapacity": [declared]}})
        trees.wait_sound(cp, "batch")
        row = trees.capacity(cp, "l4")
        assert (row["declared"], row["installed"], row["everSeen"]) == ("32", "0", False)
        trees.put(cp, job("scale-up", "batch", 4))
        trees.wait_admitted(cp, "scale-up")
        labels = {nodes.PRODUCT_LABEL: trees.PRODUCTS["l4"]}
        nodes.add_node(cp, "l4-1", labels, {nodes.GPU: 8})
        eventually(lambda: trees.running_pods(cp, "scale-up"), what="the job to run")
        eventually(lambda: trees.mark(cp, "l4") == "8", what="the machine to be seen")
        trees.wait_sound(cp, "batch")

        cp.api.merge(
            f"{QUOTAS}/root", {"spec": {"expectedCapacity": [declared | {"quantity": 16}]}}
        )
        message = trees.wait_told(cp, "batch", "Ready", "CapacityExceeded")
        assert "the declared capacity is 16: lower it by 16" in message


@pytest.mark.case("A-40", "A-39")
def test_hardware_that_is_gone_for_good_is_retired_by_a_command(clean: ControlPlane) -> None:
    cp = clean
    trees.lab(cp, 8, 8)
    program = (sys.executable, "-m", "quota_translator", "capacity", "retire")

    def retire() -> subprocess.CompletedProcess[str]:
        command = [*program, nodes.GPU, "a100", "--kubeconfig", str(cp.kubeconfig)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    with running(cp, *FAST, "--capacity-drop-after", "1s"):
        trees.put(cp, team("alpha", budget(8), parent="root"))
        trees.wait_sound(cp, "alpha")
        refused = retire()
        assert refused.returncode == 1
        assert "2 node(s) report 16; take them away first" in refused.stderr

        stamp = trees.capacity(cp)["observedAt"]
        for name in ("gpu-1", "gpu-2"):
            nodes.delete_node(cp, name)
        eventually(lambda: trees.capacity(cp).get("measured") is False, what="the pool to be empty")
        row = trees.capacity(cp)
        assert row["highWaterMark"] in {"8", "16"}, "an empty pool is no loss"
        assert row["observedAt"] >= stamp
        trees.wait_sound(cp, "alpha")
        done = retire()
        assert done.returncode == 0, done.stderr
        assert "freeze until their budgets are lowered: alpha" in done.stdout
        trees.wait_told(cp, "alpha", "Ready", "CapacityExceeded")
        assert (trees.mark(cp), trees.capacity(cp)["everSeen"]) == ("0", False)

        def is_consumed() -> bool:
            metadata = cp.api.get(f"{QUOTAS}/root")["metadata"]
            return RETIRE not in metadata.get("annotations", {})

        eventually(is_consumed, what="the annotation to be taken off")
        assert "has no mark" in retire().stderr
        nodes.add_gpu_node(cp, "gpu-3", 8)
        trees.wait_sound(cp, "alpha")
