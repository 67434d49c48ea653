"""What was asked of the API server, and whether anything moved: counts, states, still objects."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.controller import QUOTAS, USER, wait_seconds
from e2e.controlplane.audit import Audit, Record
from e2e.controlplane.audit import count as counted
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.nodes import ready_status
from e2e.trees import KUEUE, Document, condition, lab, verdicts
from e2e.waiting import eventually

PLURALS = {
    "ResourceFlavor": "resourceflavors",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
}
# The stamp on root would make every exact count a race with the clock. The claim on the tree is
# renewed all the same, by itself, but not before 75 s have passed.
NO_STAMP = ("--capacity-report-interval", "1h")
QUIET = 2.0


# --- making -----------------------------------------------------------------------------------


def amount(resource: str, nominal: str) -> Document:
    """A budget as a person may write it: any resource, any form of number."""
    return {"resourceName": resource, "resourceFlavor": "a100", "nominal": nominal}


def hardware(cp: ControlPlane, nodes: int = 4, gpus: int = 8) -> list[str]:
    """The guide's machines (or more, or larger ones), its flavor and its namespace; all Ready."""
    lab(cp, *[gpus] * nodes)
    names = [f"gpu-{i + 1}" for i in range(nodes)]

    def look() -> bool:
        late = [name for name in names if ready_status(cp.api, name) != "True"]
        assert not late, late
        return True

    eventually(look, 60, "the machines to be Ready")
    return names


# --- looking ----------------------------------------------------------------------------------


def reason(cp: ControlPlane, name: str, kind: str = "Ready") -> str:
    """`True Admitted`: a condition's status and reason; "" when it is not there yet."""
    row = condition(cp, name, kind)
    return f"{row['status']} {row['reason']}" if row else ""


def converge(cp: ControlPlane, count: int, timeout: float = 60) -> None:
    """Wait until the tree has so many nodes, root counted, and all are Ready and Materialized."""

    def look() -> bool:
        quotas = cp.api.items(QUOTAS)
        assert len(quotas) == count, [quota["metadata"]["name"] for quota in quotas]
        missing = [quota["metadata"]["name"] for quota in quotas if not _is_sound(quota)]
        assert not missing, {name: verdicts(cp, name) for name in missing[:3]}
        return True

    eventually(look, timeout, "the tree to be Ready and Materialized")


def _is_sound(quota: Document) -> bool:
    generation = quota["metadata"]["generation"]
    holding = {
        row["type"]
        for row in quota.get("status", {}).get("conditions", [])
        if row["status"] == "True" and row["observedGeneration"] == generation
    }
    return {"Ready", "Materialized"} <= holding


def objects(cp: ControlPlane) -> dict[tuple[str, str, str], Document]:
    """Kueue's objects by kind, namespace and name, without status and field ownership."""
    found: dict[tuple[str, str, str], Document] = {}
    for kind, plural in PLURALS.items():
        for item in cp.api.items(f"{KUEUE}/{plural}"):
            metadata = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
            key = (kind, metadata.get("namespace", ""), metadata["name"])
            found[key] = {"kind": kind, "metadata": metadata, "spec": item.get("spec", {})}
    return found


def nominal(cp: ControlPlane, queue: str) -> str:
    """The first quota of a ClusterQueue as Kueue has it."""
    spec = cp.api.get(f"{KUEUE}/clusterqueues/{queue}")["spec"]
    found: str = spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]
    return found


# --- counting ---------------------------------------------------------------------------------


def ours(audit: Audit, mark: int) -> list[Record]:
    return audit.since(mark, user=USER)


def writes(audit: Audit, mark: int) -> Counter[str]:
    """Our writes since a mark, each kind of them with its number."""
    return counted(record for record in ours(audit, mark) if record.is_write)


def quiet(audit: Audit, seconds: float = QUIET) -> int:
    """Wait until we have asked nothing for a while; a mark at the end of it."""

    def look() -> int:
        mark = audit.mark()
        wait_seconds(seconds)
        asked = ours(audit, mark)
        assert not asked, [str(record) for record in asked]
        return audit.mark()

    return eventually(look, 60, f"{seconds:g} seconds without a request of ours")


def passes(metrics: str) -> float:
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in metrics.splitlines()
        if line.startswith("quota_translator_passes_total")
    )


# --- every state in between -------------------------------------------------------------------


class Watched:
    """The events of one kind, as kubectl was told of them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def events(self) -> list[tuple[str, Document]]:
        text, found = self._file.read_text(), []
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            try:
                event, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:  # still being written
                break
            found.append((event["type"], event["object"]))
        return found

    def states(self) -> Iterator[dict[str, Document]]:
        """The objects by name after each event."""
        state: dict[str, Document] = {}
        for kind, item in self.events():
            if kind == "DELETED":
                state.pop(item["metadata"]["name"], None)
            else:
                state[item["metadata"]["name"]] = item
            yield dict(state)

    def version(self, name: str) -> str:
        """The newest resourceVersion that was seen of an object."""
        versions = [i["metadata"]["resourceVersion"] for _, i in self.events() if _is(i, name)]
        return versions[-1] if versions else ""


def _is(item: Document, name: str) -> bool:
    return bool(item["metadata"]["name"] == name)


@contextmanager
def watching(cp: ControlPlane, plural: str, file: Path) -> Iterator[Watched]:
    """Watch a kind of Kueue's; at least one object of it has to be there."""
    command = [str(cp.bin("kubectl")), "--kubeconfig", str(cp.kubeconfig), "get"]
    command += [f"{plural}.kueue.x-k8s.io", "--watch", "--output-watch-events", "-o", "json"]
    with file.open("wb") as output, subprocess.Popen(command, stdout=output) as process:
        try:
            watched = Watched(file)
            eventually(watched.events, 30, f"the watch of {plural} to begin")
            yield watched
        finally:
            process.terminate()
