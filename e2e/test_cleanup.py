"""`quota-translator cleanup`, as a person runs it: too early, half-way, and to the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e import trees
from e2e.controller import CRD, QUOTAS, running
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.shapes import NO_STAMP, converge, hardware, objects
from e2e.trees import (
    FAST,
    KUEUE,
    Document,
    end_job,
    guide_tree,
    job,
    names,
    put,
    running_pods,
    wait_admitted,
)
from e2e.waiting import eventually
from quota_translator.core.webhookconfig import CONFIGURATION, admission_configuration
from quota_translator.kube.secrets import LABELS

pytestmark = pytest.mark.e2e
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/quota-translator"
SECRET = "/api/v1/namespaces/default/secrets/quota-translator-webhook-cert"
WEBHOOK = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}"
ELECTED = (
    *("--leader-election-enabled", "true", "--namespace", "default"),
    *("--leader-election-lease-duration", "4s", "--leader-election-renew-deadline", "2s"),
    *("--leader-election-retry-period", "500ms"),
)
PERSON = "a-person"


def cleanup(cp: ControlPlane, *flags: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what it says to programs, and what it says to people on the way."""
    kubeconfig = cp.new_kubeconfig(PERSON, groups=("system:masters",))
    command = [sys.executable, "-m", "quota_translator", "cleanup", "--kubeconfig"]
    done = subprocess.run(
        [*command, str(kubeconfig), "--namespace", "default", "-o", "json", *flags],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def secret() -> Document:
    metadata = {"name": "quota-translator-webhook-cert", "namespace": "default", "labels": LABELS}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def kept(cp: ControlPlane) -> dict[Any, Any]:
    """Kueue's objects, without what Kueue says of them."""
    return {key: (item["metadata"]["uid"], item["spec"]) for key, item in objects(cp).items()}


@pytest.mark.case("A-101", "FC-H01")
def test_everything_is_taken_away_once_the_controller_is_gone(
    clean: ControlPlane, audit: Audit
) -> None:
    cp = clean
    hardware(cp)
    with running(cp, *FAST, *NO_STAMP, *ELECTED) as controller:
        put(cp, *guide_tree())
        converge(cp, 4)
        put(cp, job("train", "team-alpha", 4))
        wait_admitted(cp, "train")
        eventually(lambda: running_pods(cp, "train"), what="the pod to run")
        (pod,) = running_pods(cp, "train")
        # As the chart leaves them behind: a webhook that nobody answers, and its Secret.
        cp.apply(admission_configuration({"url": "https://127.0.0.1:9/x"}))
        cp.api.create("/api/v1/namespaces/default/secrets", secret())

        start, before = audit.mark(), kept(cp)
        code, shown, _ = cleanup(cp)
        assert (code, shown["dryRun"], shown["complete"]) == (0, True, False)
        assert shown["removed"][0] == f"ValidatingWebhookConfiguration {CONFIGURATION}"
        assert "Cohort ml-research" in shown["removed"]
        assert "ResourceFlavor a100" not in shown["removed"]
        code, _, told = cleanup(cp, "--yes")
        assert code == 1
        assert "a controller is alive and would make everything again" in told
        assert [r for r in audit.since(start, user=PERSON) if r.is_write] == []
        assert kept(cp) == before
        controller.kill()

    # Somebody has begun by hand, and Kueue is down.
    cp.api.delete(f"{KUEUE}/namespaces/{trees.NAMESPACE}/localqueues/team-beta")
    cp.stop_kueue()
    try:
        code, shown, told = cleanup(cp, "--yes")
    finally:
        cp.start_kueue()
    assert code == 2, (shown, told)
    assert "is alive" in told  # it looked whether the one that was killed still lives
    assert shown["failed"] == []
    down = "and no workload holds anything of it: only Kueue takes its own finalizer off; does"
    assert any(
        line.startswith("ClusterQueue team-beta") and down in line for line in shown["waiting"]
    )
    assert cp.api.find(WEBHOOK) is None
    assert cp.api.find(SECRET) is None
    assert cp.api.find(LEASE) is None
    assert {tuple(q["metadata"].get("finalizers", [])) for q in cp.api.items(QUOTAS)} == {()}

    # Kueue is back: now only work holds what is left.
    eventually(lambda: names(cp, "clusterqueues") == {"team-alpha"}, what="the end of team-beta")
    code, shown, _ = cleanup(cp, "--yes")
    assert code == 2, shown
    train = f"1 workload still runs in it: Job {trees.NAMESPACE}/train"
    assert shown["waiting"] == [
        f"ClusterQueue team-alpha is being deleted; {train}",
        "Cohort ml-research stays while it is the parent of ClusterQueue team-alpha",
        "Cohort root stays while it is the parent of Cohort ml-research",
    ]
    (after,) = running_pods(cp, "train")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    end_job(cp, "train")
    eventually(lambda: names(cp, "clusterqueues") == set(), what="the end of team-alpha")
    code, shown, _ = cleanup(cp, "--yes")
    assert (code, shown["complete"]) == (0, True)
    assert shown["removed"] == ["Cohort ml-research", "Cohort root"]
    code, shown, _ = cleanup(cp, "--yes")
    assert (code, shown["complete"], shown["removed"], shown["released"]) == (0, True, [], [])
    assert {key[2] for key in objects(cp)} == {"a100"}

    # What is people's goes when they say so, and nothing is stuck.
    assert len(cp.api.items(QUOTAS)) == 4
    for quota in cp.api.items(QUOTAS):
        cp.api.delete(f"{QUOTAS}/{quota['metadata']['name']}")
    cp.api.delete(CRD)
    eventually(lambda: cp.api.find(CRD) is None, what="the CRD to be gone")
    code, shown, _ = cleanup(cp)
    assert code == 0
    assert "AcceleratorQuota is not served: its CRD is gone already" in shown["notes"]
