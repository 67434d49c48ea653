"""The fixtures of the fault tests: one converged tree a file, and a controller on it.

A controller whose watches failed opens them less often for minutes, which is right, and would make
tests hang on each other: those have one each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from e2e import slate
from e2e.controller import USER, Controller, install_crd
from e2e.controlplane.cluster import ControlPlane
from e2e.faults.bed import TREE, Bed, shapes
from e2e.proxy import FaultProxy
from e2e.shapes import NO_STAMP, converge, hardware
from e2e.trees import FAST, NAMESPACE, Document, guide_tree, put

FLAGS = (*NO_STAMP, *FAST)


@dataclass
class Lab:
    """The guide's machines and tree in Kueue, and the way to them."""

    cp: ControlPlane
    proxy: FaultProxy
    shapes: dict[Any, Document] = field(default_factory=dict)

    def controller(self, *flags: str, namespaces: str = NAMESPACE) -> Controller:
        kubeconfig = self.proxy.kubeconfig(USER)
        return Controller(self.cp, *FLAGS, *flags, namespaces=namespaces, kubeconfig=kubeconfig)

    @contextmanager
    def running(self, *flags: str, namespaces: str = NAMESPACE) -> Iterator[Bed]:
        """A controller that watches everything and has nothing to do."""
        self.proxy.clear()  # of what a test that failed has left
        with self.controller(*flags, namespaces=namespaces) as controller:
            found = Bed(self.cp, self.proxy, controller)
            found.wait_watching()
            found.wait_converged()
            yield found
            self.proxy.clear()
            assert "Traceback" not in controller.log()

    @contextmanager
    def unchanged(self, bed: Bed) -> Iterator[None]:
        """In the end there is what there was in the beginning."""
        yield
        self.proxy.clear()
        bed.wait_converged()
        assert shapes(self.cp) == self.shapes


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
        found.shapes = shapes(control_plane)
        yield found


@pytest.fixture
def bed(lab: Lab) -> Iterator[Bed]:
    """A controller of the test's own. Each fault begins converged, and ends so."""
    with lab.running() as found, lab.unchanged(found):
        yield found


@pytest.fixture(scope="module")
def long_running(lab: Lab) -> Iterator[Bed]:
    """A controller for all tests of a file whose faults leave its watches alone."""
    with lab.running() as found:
        yield found
