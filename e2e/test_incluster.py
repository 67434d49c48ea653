"""The way a pod reaches its API server: the mounted ServiceAccount, where it really is mounted.

All other tests name a kubeconfig. Here the controller runs in a mount namespace of its own in which
the files lie where a kubelet puts them, and is told nothing but the two variables of every pod.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from e2e import trees
from e2e.controller import install_crd
from e2e.controlplane.cluster import ControlPlane
from e2e.pod import account_token
from e2e.prometheus import free_port, get
from e2e.trees import FAST
from e2e.waiting import eventually

NAMESPACE, ACCOUNT = "ml-serving", "in-a-pod"
# In here /run is another folder: the kubelet's files are seen by this process only.
SCRIPT = """
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io
cp -r "$0" /run/secrets/kubernetes.io/serviceaccount
exec "$@"
"""


def can_mount() -> bool:
    """Root may make mount namespaces, unless this machine's sandbox forbids it."""
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/run"]
    return subprocess.run(tried, capture_output=True, timeout=10).returncode == 0


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not can_mount(), reason="needs root and mount namespaces (unshare)"),
]


@pytest.fixture
def account(clean: ControlPlane, tmp_path: Path) -> Path:
    """A ServiceAccount that may do everything, as the files that a kubelet mounts."""
    group = "rbac.authorization.k8s.io"
    trees.lab(clean, 8, 8, 8, 8)
    clean.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"tests-{ACCOUNT}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    )
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(account_token(clean.api, NAMESPACE, ACCOUNT))
    (folder / "namespace").write_text(NAMESPACE)
    shutil.copy(clean.ca, folder / "ca.crt")
    return folder


@pytest.fixture
def health(clean: ControlPlane, account: Path, tmp_path: Path) -> Iterator[str]:
    """The controller runs; where its own server is."""
    install_crd(clean)
    address = f"127.0.0.1:{free_port()}"
    host, port = urlsplit(clean.url).hostname, urlsplit(clean.url).port
    environment = {
        "PATH": os.environ["PATH"],
        "KUBERNETES_SERVICE_HOST": str(host),
        "KUBERNETES_SERVICE_PORT": str(port),
    }
    own = [sys.executable, "-m", "quota_translator", "run", "--health-bind-address", address]
    own += ["--metrics-bind-address", address, "--materialize-enrolled-namespaces", NAMESPACE]
    # Leadership on: the Lease goes into the pod's namespace, which is in the files too.
    command = ["unshare", "--mount", "sh", "-ec", SCRIPT, str(account), *own, *FAST]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, cwd=Path(__file__).parent.parent
        )
    try:
        yield f"http://{address}"
    finally:
        print((tmp_path / "log").read_text()[-4000:])
        process.terminate()
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_the_mounted_service_account_is_all_that_a_pod_needs(
    clean: ControlPlane, health: str
) -> None:
    def is_ready() -> bool:
        try:
            return get(f"{health}/readyz")[0] == 200
        except OSError:
            return False

    eventually(is_ready, 60, "the controller to be ready")
    trees.put(clean, *trees.guide_tree())
    trees.wait_sound(clean, "ml-research", "team-alpha", "team-beta")
    leases = clean.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
    assert [lease["metadata"]["name"] for lease in leases if lease["spec"].get("holderIdentity")]
    _, text = get(f"{health}/metrics")
    resident = next(line for line in text.splitlines() if line.startswith("process_resident"))
    print("resident MiB:", round(float(resident.split()[1]) / 2**20, 1))
