"""A frozen subtree keeps what it has in Kueue, to the byte, until the tree is sound again."""

from __future__ import annotations

import pytest

from e2e.controller import QUOTAS, running
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.shapes import NO_STAMP, converge, hardware, nominal, objects, quiet, reason, writes
from e2e.trees import (
    NAMESPACE,
    Document,
    budget,
    edit,
    group,
    guide_tree,
    namespace,
    put,
    team,
    wait_told,
)
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
FROZEN = ("ml-research", "team-alpha", "team-beta")
VISION = (group("vision", budget(8)), team("team-gamma", budget(4), parent="vision"))


def held(cp: ControlPlane, *names: str) -> dict[tuple[str, str, str], Document]:
    """All objects with these names: specs, labels, resourceVersions."""
    found = {key: item for key, item in objects(cp).items() if key[2] in names}
    assert {key[2] for key in found} == set(names)
    return found


@pytest.mark.case("A-15", "A-68")
def test_a_frozen_subtree_keeps_its_objects_while_its_sibling_is_edited(
    clean: ControlPlane, audit: Audit
) -> None:
    hardware(clean)
    with running(clean, *NO_STAMP, namespaces=f"{NAMESPACE},ml-training"):
        put(clean, *guide_tree(), *VISION)
        converge(clean, 6)
        quiet(audit)
        before = held(clean, *FROZEN)

        mark = audit.mark()
        edit(clean, "team-alpha", budget(20))
        wait_told(clean, "ml-research", "Ready", "ContainmentViolated")
        edit(clean, "team-beta", budget(9))  # no repair: 29 of 24
        edit(clean, "team-gamma", budget(6))
        put(clean, namespace("ml-training"))
        eventually(lambda: nominal(clean, "team-gamma") == "6", what="the sibling's new share")
        eventually(
            lambda: ("LocalQueue", "ml-training", "team-gamma") in objects(clean),
            what="the sibling's queue in the new namespace",
        )
        wait_told(clean, "team-beta", "Ready", "ContainmentViolated")
        quiet(audit)
        for name in ("root", "vision", "team-gamma"):
            assert reason(clean, name) == "True Admitted"
        assert held(clean, *FROZEN) == before
        told = ("acceleratorquotas", "events")
        seen = writes(audit, mark).items()
        others = {w: n for w, n in seen if not w.split()[1].startswith(told)}
        assert others == {
            "patch clusterqueues team-gamma": 1,
            "create localqueues ml-training/team-gamma": 1,
        }

        edit(clean, "team-alpha", budget(15))
        converge(clean, 6)
        assert (nominal(clean, "team-alpha"), nominal(clean, "team-beta")) == ("15", "9")
        assert {("LocalQueue", "ml-training", name) for name in FROZEN[1:]} <= set(objects(clean))


@pytest.mark.case("A-68")
def test_a_node_without_its_parent_keeps_its_objects_and_moves_when_it_is_given_one(
    clean: ControlPlane, audit: Audit
) -> None:
    """Nodes go after their children; only force leaves one without its parent."""
    hardware(clean)
    with running(clean, *NO_STAMP, "--materialize-orphan-after", "2s"):
        put(clean, *VISION)
        converge(clean, 3)
        quiet(audit)
        before = held(clean, "vision", "team-gamma")

        clean.api.delete(f"{QUOTAS}/vision")
        clean.api.merge(f"{QUOTAS}/vision", {"metadata": {"finalizers": None}})
        wait_told(clean, "team-gamma", "Ready", "ParentMissing")
        quiet(audit)
        # The Cohort's node is gone, but its queue still stands beneath it.
        assert held(clean, "vision", "team-gamma") == before

        clean.api.merge(f"{QUOTAS}/team-gamma", {"spec": {"parentRef": {"name": "root"}}})
        converge(clean, 2)
        eventually(lambda: ("Cohort", "", "vision") not in objects(clean), what="vision gone")
        moved = held(clean, "team-gamma")["ClusterQueue", "", "team-gamma"]
        assert moved["spec"]["cohortName"] == "root"
        uid = before["ClusterQueue", "", "team-gamma"]["metadata"]["uid"]
        assert moved["metadata"]["uid"] == uid


@pytest.mark.case("A-14")
def test_a_lower_bound_on_depth_freezes_what_is_below_and_deletes_nothing(
    clean: ControlPlane, audit: Audit
) -> None:
    hardware(clean)
    with running(clean, *NO_STAMP):
        put(clean, *guide_tree())
        converge(clean, 4)
    before = objects(clean)
    with running(clean, *NO_STAMP, "--max-tree-depth", "1"):
        for name in FROZEN[1:]:
            wait_told(clean, name, "Ready", "DepthExceeded")
        edit(clean, "team-alpha", budget(12))
        quiet(audit)
        assert reason(clean, "ml-research") == "True Admitted"
        assert objects(clean) == before
    with running(clean, *NO_STAMP):
        converge(clean, 4)
        assert nominal(clean, "team-alpha") == "12"
