"""The chart, installed by a real helm with its defaults, and the controller run as it says.

with installed(cp, {"materialize": {"enrolledNamespaces": ["ml-serving"]}}) as release:
    release.controllers[0].get("/readyz")
    release.upgrade({"webhook": {"enabled": False}})
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.controlplane.cluster import ControlPlane
from e2e.pod import Pod
from e2e.standin import StandIn, standin
from e2e.waiting import eventually

CHART = Path(__file__).resolve().parent.parent / "helm" / "quota-translator"
NAME = "quota-translator"
OWN_NAMESPACE = "quota-translator"
ENROLLED = {"materialize": {"enrolledNamespaces": ["ml-serving"]}}
HELM_LIMIT = 120.0
READY_LIMIT = 60.0
DEPLOYMENT = f"/apis/apps/v1/namespaces/{OWN_NAMESPACE}/deployments/{NAME}"
USER = f"system:serviceaccount:{OWN_NAMESPACE}:{NAME}"  # in the audit log


class HelmError(Exception):
    """helm ended with an error; the text is what it said."""


def helm(cp: ControlPlane, *arguments: str) -> str:
    """Run helm as the administrator; its output. Raises HelmError."""
    home = cp.folder / "helm"
    environment = os.environ | {
        "KUBECONFIG": str(cp.kubeconfig),
        "HELM_CACHE_HOME": str(home / "cache"),
        "HELM_CONFIG_HOME": str(home / "config"),
        "HELM_DATA_HOME": str(home / "data"),
    }
    done = subprocess.run(
        [str(cp.bin("helm")), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HELM_LIMIT,
    )
    if done.returncode != 0:
        raise HelmError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Release:
    """One installation of the chart, with its controllers."""

    def __init__(self, cp: ControlPlane, machine: StandIn) -> None:
        self._cp, self._machine = cp, machine
        self.installed = False

    @property
    def controllers(self) -> list[Pod]:
        """The replicas that are not on their way out, oldest first."""
        pods = self._machine.pods
        return [pod for pod in pods if "deletionTimestamp" not in pod.document["metadata"]]

    def install(self, values: Mapping[str, Any], *flags: str) -> None:
        """`helm install`, with no flag of its own that a person would not need."""
        self._run("install", values, "--create-namespace", *flags)
        self.installed = True

    def upgrade(self, values: Mapping[str, Any], *flags: str, wait: bool = True) -> None:
        """`helm upgrade` to these values, until it is rolled out."""
        self._run("upgrade", values, *flags)
        if wait:
            self.wait()

    def rollback(self, revision: int = 0) -> None:
        helm(self._cp, "rollback", NAME, str(revision), "--namespace", OWN_NAMESPACE)
        self.wait()

    def uninstall(self) -> str:
        """`helm uninstall`; what it said. The pods are gone when this returns."""
        said = helm(self._cp, "uninstall", NAME, "--namespace", OWN_NAMESPACE)
        self.installed = False
        eventually(lambda: not self._machine.pods, READY_LIMIT, "the pods to be gone")
        return said

    def wait(self) -> None:
        """Until the Deployment is rolled out, and no pod of before is left."""
        try:
            eventually(self._is_rolled_out, READY_LIMIT, "the Deployment to be rolled out")
        except AssertionError as error:
            logs = "\n".join(f"--- {p.name}\n{p.log()[-3000:]}" for p in self._machine.pods)
            raise AssertionError(f"{error}\n{logs}") from None

    def _is_rolled_out(self) -> bool:
        found = self._cp.api.get(DEPLOYMENT)
        wanted, status = found["spec"]["replicas"], found.get("status", {})
        assert status.get("observedGeneration") == found["metadata"]["generation"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        assert counts == [wanted] * 3, counts
        states = [pod.get("/readyz") for pod in self._machine.pods]
        assert [code for code, _ in states] == [200] * wanted, states
        return True

    def _run(self, verb: str, values: Mapping[str, Any], *flags: str) -> None:
        file = self._cp.folder / "values.yaml"
        file.write_text(yaml.safe_dump({"mode": "workload", **values}))
        where = ("--namespace", OWN_NAMESPACE, "-f", str(file))
        helm(self._cp, verb, NAME, str(CHART), *where, *flags)


@contextmanager
def installed(
    cp: ControlPlane,
    values: Mapping[str, Any] | None = None,
    *,
    machine: StandIn | None = None,
    replicas: int = 1,
    wait: bool = True,
) -> Iterator[Release]:
    """The chart installed and ready; uninstalled at the end, if the test has not done so.

    `machine`: the stand-in that runs it, where several releases use one.
    """
    with ExitStack() as stack:
        release = Release(cp, machine or stack.enter_context(standin(cp)))
        try:
            release.install({"replicaCount": replicas, **(values or {})})
            if wait:
                release.wait()
            yield release
        finally:
            if release.installed:
                release.uninstall()
