"""The fixtures of the fault tests: one converged tree a file, a new controller on it a test.

A controller that has met faults opens its watches less often for minutes, which is right, and would
make the tests hang on each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e import slate
from e2e.controller import USER, Controller, install_crd
from e2e.controlplane.cluster import ControlPlane
from e2e.faults.bed import TREE, Bed, shapes
from e2e.proxy import FaultProxy
from e2e.shapes import NO_STAMP, converge, hardware
from e2e.trees import FAST, NAMESPACE, guide_tree, put

FLAGS = (*NO_STAMP, *FAST)


@dataclass(frozen=True)
class Lab:
    """The guide's machines and tree in Kueue, and the way to them."""

    cp: ControlPlane
    proxy: FaultProxy

    def controller(self, *flags: str, namespaces: str = NAMESPACE) -> Controller:
        kubeconfig = self.proxy.kubeconfig(USER)
        return Controller(self.cp, *FLAGS, *flags, namespaces=namespaces, kubeconfig=kubeconfig)


@pytest.fixture(scope="module")
def lab(control_plane: ControlPlane) -> Iterator[Lab]:
    """Everything but a controller: it has converged, and ended."""
    slate.clean(control_plane)
    install_crd(control_plane)
    hardware(control_plane)
    with FaultProxy(control_plane) as proxy:
        found = Lab(control_plane, proxy)
        with found.controller():
            put(control_plane, *guide_tree())
            converge(control_plane, TREE)
        yield found


@pytest.fixture
def bed(lab: Lab) -> Iterator[Bed]:
    """A controller that watches everything. Each fault begins converged, and ends so."""
    before = shapes(lab.cp)
    with lab.controller() as controller:
        found = Bed(lab.cp, lab.proxy, controller)
        found.wait_watching()
        yield found
        lab.proxy.clear()
        found.wait_converged()
        assert shapes(lab.cp) == before
        assert "Traceback" not in controller.log()
