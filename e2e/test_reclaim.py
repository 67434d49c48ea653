"""Lent shares: who gets them back, from whom, and when, on Kueue's own admission."""

from __future__ import annotations

from typing import Any

import pytest

from e2e import trees
from e2e.controller import QUOTAS, running, wait_seconds
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, budget, group, job, team
from e2e.waiting import eventually
from quota_translator.core.names import STATES

pytestmark = pytest.mark.e2e


def prefer(cp: ControlPlane, name: str, **policies: Any) -> None:
    """State a node's preemption."""
    cp.api.merge(f"{QUOTAS}/{name}", {"spec": {"preemption": policies}})


def wait_policy(cp: ControlPlane, name: str, policy: str) -> None:
    def has() -> bool:
        return bool(trees.queue(cp, name)["spec"]["preemption"]["reclaimWithinCohort"] == policy)

    eventually(has, what=f"{name} to have reclaimWithinCohort {policy}")


@pytest.mark.case("A-75")
def test_a_lent_share_comes_back_when_the_tree_says_so_and_waits_when_not(
    clean: ControlPlane,
) -> None:
    """24 GPUs: beta has 8 and borrows 4 of alpha's 16; alpha returns and wants all of them."""
    cp = clean
    trees.lab(cp, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, "ml-research", "team-alpha", "team-beta")

        trees.put(cp, *(job(f"beta-{number}", "team-beta", 4) for number in range(3)))
        trees.wait_admitted(cp, "beta-0", "beta-1", "beta-2")
        trees.put(cp, job("alpha-0", "team-alpha", 8), job("alpha-1", "team-alpha", 8))
        eventually(lambda: trees.held(cp, "team-alpha") == 8, what="one of alpha's jobs to run")
        wait_seconds(3)  # nobody is evicted
        assert (trees.held(cp, "team-alpha"), trees.held(cp, "team-beta")) == (8, 12)

        prefer(cp, "ml-research", reclaimWithinCohort="Any")
        for name in ("team-alpha", "team-beta"):
            wait_policy(cp, name, "Any")
        eventually(
            lambda: (trees.held(cp, "team-alpha"), trees.held(cp, "team-beta")) == (16, 8),
            timeout=5,
            what="alpha to have its share back",
        )
        trees.wait_admitted(cp, "alpha-0", "alpha-1")

        # A team's own word counts before its group's; and what is unset is Kueue's default again.
        prefer(cp, "team-alpha", reclaimWithinCohort="Never")
        wait_policy(cp, "team-alpha", "Never")
        cp.api.merge(f"{QUOTAS}/ml-research", {"spec": {"preemption": None}})
        wait_policy(cp, "team-beta", "Never")
        trees.wait_sound(cp, "ml-research", "team-alpha", "team-beta")


@pytest.mark.case("A-83")
def test_a_team_is_stopped_and_drained_from_the_tree(clean: ControlPlane) -> None:
    """What was borrowed by a held team cannot be taken back; draining it frees everything."""
    cp = clean
    trees.lab(cp, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(cp, *trees.guide_tree())
        prefer(cp, "ml-research", reclaimWithinCohort="Any")
        trees.wait_sound(cp, "ml-research", "team-alpha", "team-beta")
        trees.put(cp, *(job(f"beta-{number}", "team-beta", 4) for number in range(3)))
        trees.wait_admitted(cp, "beta-0", "beta-1", "beta-2")
        before = trees.quotas_of(trees.queue(cp, "team-beta"))

        stop(cp, "team-beta", "Hold")
        message = wait_stopped(cp, "team-beta")
        assert "cannot be evicted by those who lent it" in message
        trees.put(cp, job("alpha-0", "team-alpha", 8), job("alpha-1", "team-alpha", 8))
        eventually(lambda: trees.held(cp, "team-alpha") == 8, what="one of alpha's jobs to run")
        wait_seconds(3)
        assert (trees.held(cp, "team-alpha"), trees.held(cp, "team-beta")) == (8, 12)

        stop(cp, "team-beta", "HoldAndDrain")
        trees.wait_admitted(cp, "alpha-0", "alpha-1")
        eventually(lambda: trees.held(cp, "team-beta") == 0, what="beta to be drained")

        # The tree takes its word back: beta runs again, within its share while alpha is at work.
        stop(cp, "team-beta", None)
        eventually(lambda: trees.held(cp, "team-beta") == 8, what="beta to run in its share")
        metadata = trees.queue(cp, "team-beta")["metadata"]
        assert "annotations" not in metadata or STATES not in metadata["annotations"]
        assert trees.quotas_of(trees.queue(cp, "team-beta")) == before


def stop(cp: ControlPlane, name: str, policy: str | None) -> None:
    cp.api.merge(f"{QUOTAS}/{name}", {"spec": {"stopPolicy": policy}})


def wait_stopped(cp: ControlPlane, name: str) -> str:
    def told() -> str:
        found = trees.condition(cp, name, "Materialized")
        assert found.get("status") == "True", found
        assert "is stopped as spec.stopPolicy says" in found["message"], found
        return str(found["message"])

    return eventually(told, 20, f"the stop of {name} to be told")


def test_weights_reach_kueue_and_leave_it_again(clean: ControlPlane) -> None:
    cp = clean
    trees.lab(cp, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, "ml-research", "team-alpha", "team-beta")

        def weight(path: str) -> object:
            spec = cp.api.get(f"{trees.KUEUE}/{path}")["spec"]
            return spec.get("fairSharing", {}).get("weight")

        for name, text in (("ml-research", "3"), ("team-beta", "500m")):
            cp.api.merge(f"{QUOTAS}/{name}", {"spec": {"fairSharing": {"weight": text}}})
        eventually(lambda: weight("cohorts/ml-research") == "3", what="the group's weight")
        eventually(lambda: weight("clusterqueues/team-beta") == "500m", what="the team's weight")
        trees.wait_sound(cp, "ml-research", "team-beta")
        for name in ("ml-research", "team-beta"):
            cp.api.merge(f"{QUOTAS}/{name}", {"spec": {"fairSharing": None}})
        eventually(lambda: weight("cohorts/ml-research") is None, what="no weight on the group")
        eventually(lambda: weight("clusterqueues/team-beta") is None, what="none on the team")
        trees.wait_sound(cp, "ml-research", "team-beta")


@pytest.mark.case("FC-G04")
def test_a_team_that_borrows_moves_with_its_work(clean: ControlPlane) -> None:
    """It runs 12 of 8 + 8 and moves to where only 2 are spare: nobody is evicted."""
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(
            cp,
            group("ml", budget(20, enforced=True)),
            group("web", budget(12, enforced=True)),
            team("beta", budget(8, 8), parent="ml"),
            team("idle", budget(12), parent="ml"),
            team("site", budget(2), parent="web"),
        )
        trees.wait_sound(cp, "ml", "web", "beta", "idle", "site")
        trees.put(cp, *(job(f"beta-{number}", "beta", 4) for number in range(3)))
        trees.put(cp, job("site-0", "site", 2))
        trees.wait_admitted(cp, "beta-0", "beta-1", "beta-2", "site-0")
        uid = trees.queue(cp, "beta")["metadata"]["uid"]

        cp.api.merge(f"{QUOTAS}/beta", {"spec": {"parentRef": {"name": "web"}}})
        trees.wait_sound(cp, "ml", "web", "beta", "site")
        queue = trees.queue(cp, "beta")
        assert (queue["metadata"]["uid"], queue["spec"]["cohortName"]) == (uid, "web")
        wait_seconds(2)
        assert trees.admitted(cp) == {"beta-0", "beta-1", "beta-2", "site-0"}
        eventually(lambda: trees.share(cp, "beta").get("borrowed") == "4", what="4 borrowed")
        # Nothing more is admitted before it is within what its new place has.
        trees.put(cp, job("beta-3", "beta", 1))
        trees.wait_tried(cp, "beta-3")
        for name in ("beta-0", "beta-1"):
            trees.end_job(cp, name)
        trees.wait_admitted(cp, "beta-3")
