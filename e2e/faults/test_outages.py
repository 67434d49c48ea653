"""What the controller stands on goes away and comes back: the API server, its data, Kueue."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.controller import QUOTAS, USER, running, wait_seconds
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.nodes import delete_node
from e2e.shapes import NO_STAMP, converge, hardware, nominal, objects, quiet, reason, writes
from e2e.trees import KUEUE, budget, edit, guide_tree, mark, names, put, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
TEAMS = {"team-alpha", "team-beta"}
BOOKMARKS = 150.0  # seconds in which at least two bookmarks come


@pytest.fixture
def own(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster for one test that wrecks it. Nothing is scheduled in it."""
    del control_plane  # only so that everything is built
    cp = ControlPlane(scheduler=False)
    cp.start(lambda _: None)
    with cp:
        yield cp


def test_the_api_server_is_restarted(clean: ControlPlane, audit: Audit) -> None:
    """Nothing is deleted or written again, and it goes on without a restart of its own."""
    hardware(clean)
    with running(clean, *NO_STAMP) as controller:
        put(clean, *guide_tree())
        converge(clean, 4)
        quiet(audit)
        before, place, pid = objects(clean), audit.mark(), controller.pid
        with clean.api_server_down():
            wait_seconds(5)
            assert controller.get("/healthz")[0] == 200
        eventually(lambda: controller.get("/readyz")[0] == 200, 60, "it to be ready again")
        edit(clean, "team-beta", budget(7, 4))
        eventually(lambda: nominal(clean, "team-beta") == "7", 60, "an edit to arrive")
        quiet(audit)
        asked = writes(audit, place)
        assert asked.pop("patch clusterqueues team-beta") == 1
        assert set(asked) <= {f"patch acceleratorquotas/status {n}" for n in ("team-beta", "root")}
        after = objects(clean)
        assert after.keys() == before.keys()
        assert {k: o["metadata"]["uid"] for k, o in after.items()} == {
            k: o["metadata"]["uid"] for k, o in before.items()
        }
        assert controller.pid == pid
        assert "Traceback" not in controller.log()


@pytest.mark.case("fault 11")
@pytest.mark.timeout(400)
def test_etcd_is_restored_from_an_older_backup(own: ControlPlane, tmp_path: Path) -> None:
    """The tree and Kueue's objects go back in time together: nothing is deleted, and what was
    written since the backup is made again from the tree as it is now."""
    audit = Audit(own)
    hardware(own)
    with running(own, *NO_STAMP, "--capacity-drop-after", "1s") as controller:
        put(own, *guide_tree())
        converge(own, 4)
        with own.etcd_down() as data:
            shutil.copytree(data, tmp_path / "backup")
        converge(own, 4, timeout=120)
        # After the backup: a team more, a share less, and a machine that is gone.
        edit(own, "team-beta", budget(4, 4))
        put(own, team("team-gamma", budget(2), parent="ml-research"))
        converge(own, 5)
        delete_node(own, "gpu-4")
        eventually(lambda: mark(own) == "24", 60, "the mark to follow")
        quiet(audit)
        place = audit.mark()
        with own.etcd_down() as data:
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "backup", data)
        eventually(lambda: controller.get("/readyz")[0] == 200, 120, "it to be ready again")
        converge(own, 4, timeout=120)
        eventually(lambda: nominal(own, "team-beta") == "8", 60, "the restored share in Kueue")
        # The machine is back with the backup, and so is the mark.
        eventually(lambda: mark(own) == "32", 60, "the restored mark")
        assert reason(own, "team-alpha") == "True Admitted"
        # A watch from a version that lies in the future is silent; the next bookmark, which comes
        # each minute, is older than what was seen, and that means to list again.
        edit(own, "team-beta", budget(6, 4))
        eventually(lambda: nominal(own, "team-beta") == "6", BOOKMARKS, "an edit to arrive")
        assert names(own, "clusterqueues") == TEAMS
        # What the server says is gone may be cleaned up after, in vain.
        deletions = [r for r in audit.since(place, user=USER) if r.verb == "delete"]
        assert {r.code for r in deletions} <= {404}


@pytest.mark.case("fault 19", "FC-H01")
def test_kueue_is_stopped_for_a_minute(clean: ControlPlane, audit: Audit) -> None:
    """Its webhook answers nobody: writes wait, few are tried, nothing is deleted, and the tree
    may be edited meanwhile."""
    hardware(clean)
    with running(clean, *NO_STAMP):
        put(clean, *guide_tree())
        converge(clean, 4)
        quiet(audit)
        place = audit.mark()
        clean.stop_kueue(kill=True)
        try:
            edit(clean, "team-alpha", budget(12))
            told = eventually(
                lambda: reason(clean, "team-alpha", "Materialized") == "False KueueUnavailable",
                what="the reason",
            )
            assert told
            assert reason(clean, "team-alpha") == "True Admitted"
            put(clean, team("team-gamma", budget(2), parent="ml-research"))
            wait_seconds(60)
            assert names(clean, "clusterqueues") == TEAMS
            tries = writes(audit, place)
            # After 0.5 s at first, and then after twice as long each time; chance shortens pauses.
            assert tries["patch clusterqueues team-alpha"] <= 14, tries
            assert tries["create clusterqueues"] + tries["create clusterqueues team-gamma"] <= 14
            statuses = {k: n for k, n in tries.items() if "/status" in k}
            assert sum(statuses.values()) <= 12, statuses
        finally:
            clean.start_kueue()
        converge(clean, 5)
        assert nominal(clean, "team-alpha") == "12"
        assert not [k for k in writes(audit, place) if k.startswith("delete")]
        assert clean.api.find(f"{KUEUE}/clusterqueues/team-gamma")
        assert clean.api.find(f"{QUOTAS}/team-gamma")
