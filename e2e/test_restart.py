"""The process: its start, its pages, its end, and what it does not do again after either."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.controller import QUOTAS, USER, Controller, install_crd, remove_crd, running
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.nodes import cordon
from e2e.shapes import NO_STAMP, converge, hardware, objects, ours, quiet, writes
from e2e.trees import KUEUE, NAMESPACE, Document, budget, group, guide_tree, namespace, put, team
from e2e.waiting import eventually
from quota_translator.local.run_plan import run_plan

pytestmark = pytest.mark.e2e
STAMP = "patch acceleratorquotas/status root"
TEAMS = 66  # with their group and root, two LocalQueues each, and the cover flavor: 201 objects


def test_it_stops_cleanly_and_writes_nothing_when_it_starts_again(
    clean: ControlPlane, audit: Audit
) -> None:
    hardware(clean)
    with running(clean) as controller:
        put(clean, *guide_tree())
        converge(clean, 4)
        quiet(audit)
        before = objects(clean)
        asked = time.monotonic()
        assert controller.stop() == 0
        assert time.monotonic() - asked < 5

        mark = audit.mark()
        controller.start()
        quiet(audit)
        assert set(writes(audit, mark)) <= {STAMP}
        assert objects(clean) == before
        # One list of each of the seven kinds; the sound of a start.
        lists = Counter(r.resource for r in ours(audit, mark) if r.verb == "list")
        assert set(lists.values()) == {1}
        assert len(lists) == 7
    # Nothing went wrong on the way, and the log says so.
    levels = Counter(json.loads(line)["level"] for line in controller.log().splitlines())
    assert set(levels) == {"info"}


def test_killed_in_the_middle_of_200_objects_it_ends_where_it_would_have(
    clean: ControlPlane, audit: Audit, tmp_path: Path
) -> None:
    hardware(clean, nodes=2, gpus=TEAMS)
    put(clean, namespace("ml-training"))
    install_crd(clean)
    teams = [team(f"team-{i:02}", budget(2), parent="ml") for i in range(TEAMS)]
    tree = [group("ml", budget(2 * TEAMS)), *teams]
    put(clean, *tree)
    plan = _plan(clean, tmp_path / "before", tree)
    assert len(plan["objects"]) == 3 * TEAMS + 3

    mark = audit.mark()
    enrolled = f"{NAMESPACE},ml-training"
    flags = (*NO_STAMP, "--write-concurrency", "2")
    controller = Controller(clean, *flags, namespaces=enrolled)
    try:
        controller.start(ready=False)
        _look_closely(lambda: len(clean.api.items(f"{KUEUE}/clusterqueues")) > TEAMS // 4)
        controller.kill()
        written = objects(clean)
        assert len(written) < len(plan["objects"])  # else it was not in the middle

        controller.start()
        converge(clean, TEAMS + 2)
        quiet(audit)
        found = objects(clean)
        assert {key: _said(item) for key, item in found.items() if key[2] != "a100"} == {
            _key(item): _said(item) for item in plan["objects"]
        }
        assert _plan(clean, tmp_path / "after", tree)["changes"] == []
        # What had been written was found, not written again.
        creations = [r for r in audit.since(mark, user=USER) if r.verb == "create"]
        made = Counter(str(r) for r in creations if r.code == 201)
        assert set(made.values()) == {1}
        same = {key: item["metadata"]["uid"] for key, item in written.items()}
        assert {key: found[key]["metadata"]["uid"] for key in written} == same
    finally:
        controller.stop()


def _look_closely(look: Callable[[], bool]) -> None:
    """Without a pause: what is waited for is over in a second."""
    until = time.monotonic() + 60
    while not look():
        assert time.monotonic() < until


def _plan(cp: ControlPlane, folder: Path, tree: list[Document]) -> dict[str, Any]:
    """What `plan` says over the cluster as it is now."""
    folder.mkdir()
    lists = ("/api/v1/nodes", "/api/v1/namespaces", QUOTAS)
    for number, path in enumerate(lists):
        _dump(folder / f"{number}.json", cp, path)
    for plural in ("resourceflavors", "cohorts", "clusterqueues", "localqueues"):
        _dump(folder / f"{plural}.json", cp, f"{KUEUE}/{plural}")
    code, out, err = run_plan([folder], output="json", enrolled=[NAMESPACE, "ml-training"])
    assert code == 0, err
    plan: dict[str, Any] = json.loads(out)
    return plan


def _dump(file: Path, cp: ControlPlane, path: str) -> None:
    """A list as kubectl prints it: its items know their kind."""
    whole = cp.api.get(path)
    kind = whole["kind"].removesuffix("List")
    items = [{"apiVersion": whole["apiVersion"], "kind": kind} | i for i in whole["items"]]
    if items:
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _key(item: Document) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def _said(item: Document) -> Document:
    """Labels, and the part of a spec that is ours to say."""
    defaulted = ("queueingStrategy", "flavorFungibility", "stopPolicy", "admissionScope")
    spec = {name: value for name, value in item["spec"].items() if name not in defaulted}
    return {"labels": item["metadata"]["labels"], "spec": spec}


def test_it_is_ready_when_it_has_judged_a_tree(clean: ControlPlane) -> None:
    remove_crd(clean)
    controller = Controller(clean, *NO_STAMP)
    try:
        controller.start(ready=False)
        eventually(lambda: controller.get("/healthz")[0] == 200, what="an answer to /healthz")
        eventually(lambda: controller.get("/readyz")[0] == 503, what="not ready")
        assert controller.get("/readyz")[1].startswith("not ready: ")
        install_crd(clean)
        eventually(controller.is_ready, 60, "ready, once the CRD is there")
        assert clean.api.get(f"{QUOTAS}/root")["spec"] == {"role": "Cohort"}
    finally:
        assert controller.stop() == 0


def test_metrics_say_what_is_there(clean: ControlPlane) -> None:
    hardware(clean)
    with running(clean, *NO_STAMP) as controller:
        put(clean, *guide_tree())
        converge(clean, 4)
        cordon(clean, "gpu-4")
        wanted = {
            'capacity_allocatable{flavor="a100",resource="nvidia.com/gpu"}': 24.0,
            'capacity_unavailable{flavor="a100",resource="nvidia.com/gpu"}': 8.0,
            'capacity_allocatable{flavor="a100",resource="google.com/tpu"}': 0.0,
            'capacity_nodes{flavor="a100",resource="nvidia.com/gpu",state="schedulable"}': 3.0,
            'capacity_nodes{flavor="a100",resource="nvidia.com/gpu",state="unavailable"}': 1.0,
            _budget("nominal", "ml-research", "Cohort"): 24.0,
            _budget("nominal", "team-alpha", "ClusterQueue"): 16.0,
            _budget("nominal", "team-beta", "ClusterQueue"): 8.0,
            _budget("admitted", "team-beta", "ClusterQueue"): 0.0,
            'synced{kind="ClusterQueue"}': 1.0,
            'synced{kind="Node"}': 1.0,
        }

        def look() -> bool:
            series = _series(controller.get("/metrics")[1])
            assert {name: series.get(name) for name in wanted} == wanted
            return True

        eventually(look, what="the gauges")


def _budget(figure: str, quota: str, role: str) -> str:
    labels = f'flavor="a100",plane="workload",quota="{quota}",resource="nvidia.com/gpu"'
    return f'budget_{figure}{{{labels},role="{role}"}}'


def _series(text: str) -> dict[str, float]:
    """By name without our prefix, labels in alphabetical order."""
    found = {}
    for line in text.splitlines():
        if line.startswith("quota_translator_"):
            name, _, value = line.removeprefix("quota_translator_").rpartition(" ")
            bare, brace, labels = name.partition("{")
            ordered = ",".join(sorted(labels.removesuffix("}").split(",")))
            found[f"{bare}{{{ordered}}}" if brace else bare] = float(value)
    return found


def test_root_is_there_also_when_nothing_is_measured(clean: ControlPlane, audit: Audit) -> None:
    """No watch of nodes, no row, and a budget beyond what any machine has is sound."""
    hardware(clean, nodes=1)
    mark = audit.mark()
    with running(clean, "--capacity-resources", ""):
        eventually(lambda: clean.api.find(f"{QUOTAS}/root"), what="root")
        put(clean, group("ml", budget(1000)), team("a", budget(1000), parent="ml"))
        converge(clean, 3)
        quiet(audit)
        assert clean.api.get(f"{QUOTAS}/root")["status"].get("capacity", []) == []
        assert [str(r) for r in ours(audit, mark) if r.resource == "nodes"] == []
