"""The control plane itself: a Job goes all the way, and nothing is left when it stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e import slate
from e2e.controlplane import nodes
from e2e.controlplane.api import ApiError
from e2e.controlplane.audit import Audit, count
from e2e.controlplane.cluster import ControlPlane, KubectlError
from e2e.controlplane.configuration import COMPLETE_ANNOTATION
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
KUEUE_VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
NAMESPACE = "lab"


def quota_tree(gpus: int) -> list[dict[str, Any]]:
    """A flavor, a Cohort that holds the GPUs, and one queue that may use them all."""
    flavor = {"nodeLabels": {nodes.PRODUCT_LABEL: nodes.A100}}
    cohort = {"resourceGroups": [resource_group(nominalQuota=str(gpus))]}
    queue = {
        "cohortName": "all",
        "namespaceSelector": {},
        "resourceGroups": [resource_group(nominalQuota="0", borrowingLimit=str(gpus))],
    }
    return [
        kueue_object("ResourceFlavor", "a100", flavor),
        kueue_object("Cohort", "all", cohort),
        kueue_object("ClusterQueue", "lab", queue),
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE},
        },
        kueue_object("LocalQueue", "lab", {"clusterQueue": "lab"}, namespace=NAMESPACE),
    ]


def resource_group(**quota: str) -> dict[str, Any]:
    resources = [{"name": nodes.GPU, **quota}]
    return {
        "coveredResources": [nodes.GPU],
        "flavors": [{"name": "a100", "resources": resources}],
    }


def kueue_object(
    kind: str, name: str, spec: dict[str, Any], namespace: str | None = None
) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": KUEUE_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def pod_spec(gpus: int) -> dict[str, Any]:
    limits = {nodes.GPU: str(gpus)}
    container = {"name": "train", "image": "none", "resources": {"limits": limits}}
    return {"restartPolicy": "Never", "containers": [container]}


def job(name: str, gpus: int) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE_LABEL: "lab"}},
        "spec": {"suspend": True, "template": {"spec": pod_spec(gpus)}},
    }


def pods_of(cp: ControlPlane, name: str) -> list[dict[str, Any]]:
    selector = f"?labelSelector=job-name={name}"
    return cp.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods{selector}")


def is_admitted(workload: dict[str, Any]) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any(item["type"] == "Admitted" and item["status"] == "True" for item in conditions)


def running_pod(cp: ControlPlane, name: str) -> dict[str, Any]:
    (pod,) = pods_of(cp, name)
    assert pod["status"]["phase"] == "Running", pod["status"]
    return pod


def test_a_queued_job_is_admitted_runs_and_completes_when_told(clean: ControlPlane) -> None:
    cp = clean
    nodes.add_gpu_node(cp, "gpu-1", 8)
    cp.apply(*quota_tree(8))
    cp.apply(job("train", 4))

    pod = eventually(lambda: running_pod(cp, "train"), what="the Job's pod to run")
    assert pod["spec"]["nodeName"] == "gpu-1"
    workloads = cp.api.items(f"{KUEUE}/namespaces/{NAMESPACE}/workloads")
    assert [is_admitted(workload) for workload in workloads] == [True]

    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
    cp.api.merge(path, {"metadata": {"annotations": {COMPLETE_ANNOTATION: "true"}}})
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train"
    eventually(lambda: cp.api.get(path)["status"].get("succeeded") == 1, what="the Job to complete")


def test_what_does_not_fit_waits(clean: ControlPlane) -> None:
    cp = clean
    nodes.add_gpu_node(cp, "gpu-1", 8)
    cp.apply(*quota_tree(8), job("first", 8))
    eventually(lambda: running_pod(cp, "first"), what="the first Job's pod to run")
    cp.apply(job("second", 1))

    def waiting() -> bool:
        workloads = cp.api.items(f"{KUEUE}/namespaces/{NAMESPACE}/workloads")
        states = {item["metadata"]["name"].split("-")[1]: is_admitted(item) for item in workloads}
        assert states == {"first": True, "second": False}
        queue = cp.api.get(f"{KUEUE}/clusterqueues/lab")
        assert queue["status"]["pendingWorkloads"] == 1, queue["status"]
        return True

    eventually(waiting, what="the second Job to wait in the queue")
    assert pods_of(cp, "second") == []


def test_a_labelled_pod_is_gated_until_it_is_admitted(clean: ControlPlane) -> None:
    cp = clean
    nodes.add_gpu_node(cp, "gpu-1", 8)
    cp.apply(*quota_tree(8))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shell", "namespace": NAMESPACE, "labels": {QUEUE_LABEL: "lab"}},
        "spec": pod_spec(1),
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    eventually(
        lambda: cp.api.find(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"),
        what="the namespace's service account",
    )
    created = cp.api.create(path, pod)
    assert [gate["name"] for gate in created["spec"]["schedulingGates"]]
    eventually(
        lambda: cp.api.get(f"{path}/shell")["status"]["phase"] == "Running",
        what="the pod to run",
    )


def test_wrong_objects_are_refused_by_kueues_webhooks(clean: ControlPlane) -> None:
    spec = {"resourceGroups": [resource_group(nominalQuota="1", borrowingLimit="1")]}
    with pytest.raises(ApiError, match="admission webhook") as refused:
        clean.api.create(f"{KUEUE}/cohorts", kueue_object("Cohort", "root", spec))
    assert refused.value.code == 403


def test_the_audit_log_counts_the_requests_of_one_user(
    clean: ControlPlane, audit: Audit, tmp_path: Path
) -> None:
    cp = clean
    kubeconfig = cp.new_kubeconfig("somebody", ["system:masters"])
    start = audit.mark()
    command = [
        str(cp.bin("kubectl")),
        "--kubeconfig",
        str(kubeconfig),
        "--cache-dir",
        str(tmp_path),
    ]
    subprocess.run([*command, "create", "namespace", NAMESPACE], check=True, capture_output=True)
    cp.api.get(f"/api/v1/namespaces/{NAMESPACE}")

    theirs = audit.since(start, user="somebody")
    assert count(record for record in theirs if record.is_write) == {
        f"create namespaces {NAMESPACE}": 1
    }
    (written,) = [record for record in theirs if record.is_write]
    assert (written.code, written.stage) == (201, "ResponseComplete")
    assert written.user_agent.startswith("kubectl/v1.")
    assert audit.since(start, user_agent="quota-translator-e2e", user="somebody") == []
    assert audit.since(start, user_agent="quota-translator-e2e")


def test_nodes_change_as_they_are_told(clean: ControlPlane) -> None:
    cp = clean
    nodes.add_gpu_node(cp, "gpu-1", 8)
    path = "/api/v1/nodes/gpu-1"
    nodes.set_allocatable(cp, "gpu-1", {nodes.GPU: 6})
    status = cp.api.get(path)["status"]
    assert (status["allocatable"][nodes.GPU], status["capacity"][nodes.GPU]) == ("6", "8")

    nodes.cordon(cp, "gpu-1")
    assert cp.api.get(path)["spec"]["unschedulable"] is True
    nodes.uncordon(cp, "gpu-1")

    nodes.set_ready(cp, "gpu-1", ready=False)
    eventually(
        lambda: any("not-ready" in taint["key"] for taint in cp.api.get(path)["spec"]["taints"]),
        what="the not-ready taint",
    )
    nodes.set_ready(cp, "gpu-1", ready=True)
    eventually(lambda: "taints" not in cp.api.get(path)["spec"], what="the taint to go")
    status = cp.api.get(path)["status"]
    assert (status["allocatable"][nodes.GPU], status["capacity"][nodes.GPU]) == ("6", "8")

    nodes.delete_node(cp, "gpu-1")
    assert cp.api.find(path) is None


def test_a_clean_slate_has_nothing_left(clean: ControlPlane) -> None:
    cp = clean
    nodes.add_gpu_node(cp, "gpu-1", 8)
    cp.apply(*quota_tree(8), job("train", 8))
    eventually(lambda: running_pod(cp, "train"), what="the Job's pod to run")
    slate.clean(cp)
    for path in slate.ORDER:
        left = [item["metadata"]["name"] for item in cp.api.items(path)]
        assert set(left) <= slate.KEPT_NAMESPACES, path


def test_kueue_can_be_stopped_and_started(clean: ControlPlane) -> None:
    cp = clean
    cp.apply(*quota_tree(8))
    cp.stop_kueue()
    with pytest.raises(KubectlError, match="failed calling webhook"):
        cp.apply(kueue_object("Cohort", "another", {}))
    cp.start_kueue()
    cp.apply(kueue_object("Cohort", "another", {}))


# -------------------------------------------------------------- clusters of their own


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not collected yet does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


@pytest.mark.usefixtures("control_plane")
def test_stopping_leaves_no_process_and_no_folder() -> None:
    cp = ControlPlane(kueue=False, kwok=False)
    cp.start(lambda _: None)
    folder, pids = cp.folder, [process.pid for process in cp.processes.values()]
    assert len(pids) == 4
    assert cp.api.items("/apis/kueue.x-k8s.io/v1beta2/clusterqueues") == []
    cp.stop()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert not folder.exists()


RUNNER = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
from e2e.controlplane.cluster import ControlPlane
cp = ControlPlane(kueue=False, kwok=False, scheduler=False, controller_manager=False)
cp.start(lambda line: None)
print(cp.folder, *(process.pid for process in cp.processes.values()), flush=True)
time.sleep(300)
"""


@pytest.mark.usefixtures("control_plane")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=root,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with runner:
        assert runner.stdout is not None
        folder, *pids = runner.stdout.readline().split()
        assert len(pids) == 2
        runner.send_signal(number)
        runner.wait(timeout=60)
    eventually(
        lambda: not any(is_alive(int(pid)) for pid in pids), what="etcd and kube-apiserver to end"
    )
    assert Path(folder).exists() == (number == signal.SIGKILL)
