"""Lent shares: who gets them back, from whom, and when, on Kueue's own admission."""

from __future__ import annotations

from typing import Any

import pytest

from e2e import trees
from e2e.controller import QUOTAS, running, wait_seconds
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, job
from e2e.waiting import eventually

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
