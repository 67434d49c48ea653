"""What costs nothing: nodes that report, passes that find nothing, an hour of a flapping node."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest

from e2e.controller import QUOTAS, USER, running, wait_seconds
from e2e.controlplane.audit import Audit, count
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.nodes import GPU, set_ready, touch_status
from e2e.shapes import (
    NO_STAMP,
    amount,
    converge,
    hardware,
    nominal,
    objects,
    ours,
    passes,
    quiet,
    writes,
)
from e2e.trees import budget, edit, group, guide_tree, put, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
STAMP = "patch acceleratorquotas/status root"
NODES = 50
MINUTES = 2
# A kubelet with nothing to say writes its node's status every five minutes (and its lease every ten
# seconds, which kwok does here, too). Ten times that is one write per node and half minute.
TOUCHES = NODES * MINUTES * 2


@pytest.mark.case("A-37")
@pytest.mark.timeout(420)
def test_nothing_is_asked_while_nodes_report_and_nothing_changes(
    clean: ControlPlane, audit: Audit
) -> None:
    names = hardware(clean, NODES)
    with running(clean) as controller:
        put(clean, *guide_tree())
        converge(clean, 4)
        start = quiet(audit)
        begun = time.monotonic()
        for number, name in enumerate(itertools.islice(itertools.cycle(names), TOUCHES)):
            touch_status(clean, name, f"report {number}")
            wait_seconds(max(0.0, begun + (number + 1) * 60 * MINUTES / TOUCHES - time.monotonic()))
        end = audit.mark()
        assert controller.is_ready()
    everybody = audit.between(start, end)
    reports = [r for r in everybody if str(r).startswith("patch nodes/status gpu-")]
    assert len(reports) >= TOUCHES
    asked = count(audit.between(start, end, user=USER))
    stamps = asked.pop(STAMP, 0)
    assert MINUTES - 1 <= stamps <= MINUTES + 1
    reopened = {request for request in asked if request.startswith("watch ")}
    assert set(asked) - reopened == set()


@pytest.mark.case("A-73", "A-37", "FC-D01", "fault 27")
def test_a_pass_that_changes_nothing_writes_nothing(clean: ControlPlane, audit: Audit) -> None:
    """Amounts that the server keeps in another form than they were written in are no change."""
    hardware(clean, nodes=0)
    with running(clean, *NO_STAMP, "--capacity-resources", "") as controller:
        plain = (
            amount(GPU, "1000"),
            amount("cpu", "0.5"),
            amount("memory", "1024Mi"),
        )
        put(clean, group("ml", amount("cpu", "2000m")), team("a", *plain, parent="ml"))
        converge(clean, 3)
        quotas = {
            resource["name"]: resource["nominalQuota"]
            for item in objects(clean)["ClusterQueue", "", "a"]["spec"]["resourceGroups"]
            for flavor in item["flavors"]
            for resource in flavor["resources"]
        }
        assert quotas[GPU] == "1k"
        assert quotas["cpu"] == "500m"
        assert quotas["memory"] == "1Gi"

        mark = quiet(audit)
        before = passes(controller.get("/metrics")[1])
        for number in range(3):
            note = {"metadata": {"annotations": {"note": str(number)}}}
            clean.api.merge(f"{QUOTAS}/a", note)
            eventually(
                lambda: passes(controller.get("/metrics")[1]) > before + number,  # noqa: B023
                what="a pass",
            )
        quiet(audit)
        assert ours(audit, mark) == []

        # The same amounts in other words: a new generation, so its status says so; no more.
        mark = audit.mark()
        same = (amount(GPU, "1k"), amount("cpu", "500m"), amount("memory", "1Gi"))
        edit(clean, "a", *same)
        converge(clean, 3)
        quiet(audit)
        assert writes(audit, mark) == Counter({"patch acceleratorquotas/status a": 1})


@pytest.mark.case("FC-A04")
def test_a_node_that_flaps_moves_no_mark_and_no_quota(clean: ControlPlane, audit: Audit) -> None:
    names = hardware(clean)
    flaps = 3
    with running(clean, *NO_STAMP, "--capacity-drop-after", "60s"):
        put(clean, group("ml", budget(32)), team("a", budget(32), parent="ml"))
        converge(clean, 3)
        before = objects(clean)
        mark = quiet(audit)
        for ready in (False, True) * flaps:
            set_ready(clean, names[2], ready=ready)
            usable = "32" if ready else "24"
            eventually(lambda: _row(clean, GPU)["allocatable"] == usable, 30, usable)  # noqa: B023
            row = _row(clean, GPU)
            assert (row["installed"], row["highWaterMark"]) == ("32", "32")
            assert "pending" not in row
        quiet(audit)
        # One status for each visible change, on root, where the machines are shown.
        assert writes(audit, mark) == Counter({STAMP: 2 * flaps})
        assert objects(clean) == before
        assert nominal(clean, "a") == "32"


def _row(cp: ControlPlane, resource: str) -> dict[str, str]:
    rows = cp.api.get(f"{QUOTAS}/root")["status"]["capacity"]
    found: dict[str, str] = next(row for row in rows if row["resourceName"] == resource)
    return found
