"""A cluster where Kueue is not installed yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import trees
from e2e.controller import QUOTAS, running
from e2e.controlplane import nodes
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, NAMESPACE
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
ALL = ("ml-research", "team-alpha", "team-beta")


@pytest.fixture
def bare(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server alone: to take Kueue's CRDs from the cluster of the run is slower."""
    del control_plane  # only so that everything is built
    cp = ControlPlane(kueue=False, kwok=False, scheduler=False, controller_manager=False)
    cp.start(lambda _: None)
    with cp:
        yield cp


@pytest.mark.case("fault 12")
def test_kueue_that_is_not_there_is_told_and_used_as_soon_as_it_is(bare: ControlPlane) -> None:
    cp = bare
    trees.put(cp, trees.namespace())
    for number in range(1, 5):
        nodes.add_gpu_node(cp, f"gpu-{number}", wait=False)
    with running(cp, *FAST) as controller:
        eventually(lambda: cp.api.find(f"{QUOTAS}/root"), what="root to be created")
        trees.put(cp, *trees.guide_tree())
        for name in ("root", *ALL):
            message = trees.wait_told(cp, name, "Materialized", "KueueUnavailable")
            assert "not served as kueue.x-k8s.io/v1beta2 (install Kueue" in message
            assert trees.condition(cp, name, "Ready")["status"] == "True"
        assert controller.get("/healthz")[0] == 200
        assert controller.is_ready()

        cp.install_kueue_crds()
        cp.start_kueue()
        trees.put(cp, trees.flavor())
        trees.wait_sound(cp, "root", *ALL, timeout=60)  # it asks at least every 30 seconds
        eventually(lambda: trees.mark(cp) == "32", what="the machines to be measured")
        assert trees.names(cp, "clusterqueues") == {"team-alpha", "team-beta"}
        assert trees.names(cp, "localqueues") == {
            f"{NAMESPACE}/team-alpha",
            f"{NAMESPACE}/team-beta",
        }
        assert "Traceback" not in controller.log()
