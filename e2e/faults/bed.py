"""A converged cluster with a controller behind the fault proxy, and looks at what it asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from e2e.controller import Controller
from e2e.controlplane.cluster import ControlPlane
from e2e.faults.exchange import Seen
from e2e.proxy import FaultProxy
from e2e.shapes import converge, objects
from e2e.trees import Document
from e2e.waiting import eventually

KUEUE_PATH = "^/apis/kueue.x-k8s.io/"
QUOTAS_PATH = "/acceleratorquotas"
# The lists that a controller follows; what is watched one object at a time is not among them.
FOLLOWED = (
    "/acceleratorquotas$",
    "/nodes$",
    "/api/v1/namespaces$",
    "/resourceflavors$",
    "/cohorts$",
    "/clusterqueues$",
    "/localqueues$",
)
TREE = 4  # the guide's tree, and root
_OF_AN_INCARNATION = ("uid", "resourceVersion", "creationTimestamp", "generation")


@dataclass
class Bed:
    cp: ControlPlane
    proxy: FaultProxy
    controller: Controller

    # --- what was asked -------------------------------------------------------------------

    def writes(self, since: int, path: str = KUEUE_PATH) -> Counter[str]:
        """Writes of Kueue's objects, or of others, by verb and name."""
        return Counter(told(seen) for seen in self.proxy.seen("write", path, since))

    def writes_of_all(self, since: int) -> Counter[str]:
        """Writes of Kueue's objects and of the tree, statuses too."""
        return self.writes(since) + self.writes(since, QUOTAS_PATH)

    def asked(self, path: str, since: int) -> list[str]:
        """The lists and watches of a kind in order, with what came of them."""
        found = self.proxy.seen("", path, since)
        return [f"{s.verb} {s.outcome}" for s in found if s.verb in ("list", "watch")]

    def wait_watching(self, count: int = len(FOLLOWED), timeout: float = 45) -> None:
        """Until every followed kind is watched."""

        def look() -> bool:
            missing = [path for path in FOLLOWED if not self.proxy.watching(path)]
            assert len(missing) == len(FOLLOWED) - count, missing
            return True

        eventually(look, timeout, "the watches to be open")

    # --- what is there --------------------------------------------------------------------

    def shapes(self) -> dict[Any, Document]:
        """Kueue's objects without what tells one incarnation from another."""
        return shapes(self.cp)

    def wait_converged(self, timeout: float = 60) -> None:
        converge(self.cp, TREE, timeout)


def shapes(cp: ControlPlane) -> dict[Any, Document]:
    return {
        key: {
            "spec": found["spec"],
            "metadata": {k: v for k, v in found["metadata"].items() if k not in _OF_AN_INCARNATION},
        }
        for key, found in objects(cp).items()
    }


def told(seen: Seen) -> str:
    """`patch clusterqueues team-a`, `patch acceleratorquotas/status root`."""
    parts = seen.path.removesuffix("/status").split("/")
    plural = parts[-1] if seen.verb == "create" else parts[-2]
    status = "/status" if seen.path.endswith("/status") else ""
    return f"{seen.verb} {plural}{status} {seen.name}"
