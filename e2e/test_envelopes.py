"""Enforced groups: by Kueue's own admission they never hold more than their budget and its limit.

Jobs never end here and nobody is evicted, so that what a group holds only grows: what it holds in
the end is the most it ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e import trees
from e2e.controller import USER, running, wait_seconds
from e2e.controlplane import nodes
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, KUEUE, budget, group, job, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
TEAMS = ("team-a", "team-b")


def own_of(cp: ControlPlane, name: str) -> dict[str, Any] | None:
    """What a group's Cohort holds itself."""
    return trees.gpu_cell(cp.api.get(f"{KUEUE}/cohorts/{name}"))


@contextmanager
def enforced_six(cp: ControlPlane) -> Iterator[None]:
    """A group of 6 with teams of 4 and 0, next to a team that leaves 20 idle for whoever may."""
    trees.lab(cp, 32)
    with running(cp, *FAST):
        trees.put(
            cp,
            group("boxed", budget(6, enforced=True)),
            team("team-a", budget(4, 10), parent="boxed"),
            team("team-b", budget(0, 10), parent="boxed"),
            group("others"),
            team("idle", budget(20), parent="others"),
        )
        trees.wait_sound(cp, "boxed", *TEAMS, "idle")
        yield


def crowd(cp: ControlPlane, queue: str, count: int) -> None:
    """So many Jobs of one GPU each."""
    trees.put(cp, *(job(f"{queue}-{number}", queue) for number in range(count)))


def wait_held(cp: ControlPlane, wanted: int) -> None:
    """Until the group's teams hold so much, and then for long enough that Kueue has tried more."""

    def so_much() -> bool:
        found = trees.held(cp, *TEAMS)
        assert found == wanted, f"it holds {found}"
        return True

    eventually(so_much, 30, f"the group to hold {wanted}")
    wait_seconds(2)
    assert trees.held(cp, *TEAMS) == wanted


@pytest.mark.case("A-74")
def test_an_enforced_group_never_holds_more_than_its_budget_and_its_limit(
    clean: ControlPlane,
) -> None:
    cp = clean
    with enforced_six(cp):
        # 4 of the 6 are promised to team-a, so the Cohort itself holds what is left for all.
        assert own_of(cp, "boxed") == {"nominalQuota": "2", "borrowingLimit": "0"}
        crowd(cp, "team-b", 5)
        crowd(cp, "team-a", 5)
        wait_held(cp, 6)

        trees.edit(cp, "boxed", budget(6, 1, enforced=True))
        trees.wait_sound(cp, "boxed")
        wait_held(cp, 7)
        eventually(
            lambda: trees.share(cp, "boxed").get("borrowed") == "1", what="1 borrowed to be told"
        )


@pytest.mark.case("A-74")
def test_borrowing_stops_at_the_group_and_goes_on_when_it_no_longer_enforces(
    clean: ControlPlane,
) -> None:
    """24 for the group; its teams have 16 and 8, and 8 idle next door are not for them."""
    cp = clean
    trees.lab(cp, 8, 8, 8, 8)
    with running(cp, *FAST):
        trees.put(
            cp,
            group("ml", budget(24, enforced=True)),
            team("team-a", budget(16), parent="ml"),
            team("team-b", budget(8, 24), parent="ml"),
            team("idle", budget(8), parent="root"),
        )
        trees.wait_sound(cp, "ml", *TEAMS, "idle")
        assert own_of(cp, "ml") == {"nominalQuota": "0", "borrowingLimit": "0"}
        trees.put(cp, job("most", "team-b", 20))
        trees.wait_admitted(cp, "most")
        trees.put(cp, *(job(f"two-{number}", "team-a", 2) for number in range(3)))
        wait_held(cp, 24)

        trees.edit(cp, "ml", budget(24))
        wait_held(cp, 26)
        assert own_of(cp, "ml") is None


@pytest.mark.case("A-74", "A-68")
def test_a_frozen_team_with_a_larger_share_counts_with_what_it_has(clean: ControlPlane) -> None:
    cp = clean
    nodes.add_node(
        cp, "l4-1", {nodes.PRODUCT_LABEL: trees.PRODUCTS["l4"]}, {nodes.GPU: 2}, wait=False
    )
    trees.put(cp, trees.flavor("l4"))
    with enforced_six(cp):
        before = trees.unchanging(cp, "clusterqueues", "team-a")
        # Its other budget is above the hardware, so the smaller share does not reach Kueue.
        trees.edit(cp, "team-a", budget(1, 10), budget(50, flavor="l4"))
        trees.wait_told(cp, "team-a", "Ready", "CapacityExceeded")
        crowd(cp, "team-b", 8)
        crowd(cp, "team-a", 8)
        wait_held(cp, 6)
        trees.edit(cp, "team-b", budget(5, 10))
        message = trees.wait_told(cp, "team-b", "Materialized", "WaitingForShrink")
        assert "ClusterQueue team-a (4, frozen)" in message
        wait_held(cp, 6)
        assert trees.unchanging(cp, "clusterqueues", "team-a") == before

        trees.edit(cp, "team-b", budget(0, 10))
        trees.edit(cp, "boxed", budget(3, enforced=True))
        message = trees.wait_told(cp, "boxed", "EnvelopeOverdrawn", "EnvelopeOverdrawn", "True")
        assert "4 stand beneath it and its budget is 3, 1 less" in message
        trees.wait_sound(cp, "boxed", "team-b")
        wait_held(cp, 6)

        trees.edit(cp, "team-a", budget(1, 10))
        trees.wait_sound(cp, "boxed", *TEAMS)
        assert trees.condition(cp, "boxed", "EnvelopeOverdrawn") == {}
        assert own_of(cp, "boxed") == {"nominalQuota": "2", "borrowingLimit": "0"}
        assert trees.gpu_cell(trees.queue(cp, "team-a")) == {
            "nominalQuota": "1",
            "borrowingLimit": "10",
        }
        wait_held(cp, 6)


@pytest.mark.case("A-74")
def test_a_share_is_raised_and_another_cut_in_one_edit(clean: ControlPlane, audit: Audit) -> None:
    """The cut comes first, and what it had admitted stays: nothing above 6 is admitted between."""
    cp = clean
    with enforced_six(cp):
        crowd(cp, "team-a", 4)
        wait_held(cp, 4)
        crowd(cp, "team-b", 8)
        wait_held(cp, 6)
        start = audit.mark()
        trees.edit(cp, "team-b", budget(5, 10))
        trees.edit(cp, "team-a", budget(1, 10))
        trees.wait_sound(cp, "boxed", *TEAMS)
        assert own_of(cp, "boxed") == {"nominalQuota": "0", "borrowingLimit": "0"}
        sent = [
            record.name
            for record in audit.since(start, user=USER)
            if record.verb == "patch" and record.resource in ("clusterqueues", "cohorts")
        ]
        assert sent.index("team-a") < sent.index("team-b")
        wait_held(cp, 6)
        trees.end_job(cp, "team-a-0")
        wait_held(cp, 6)
        assert trees.held(cp, "team-b") == 3
