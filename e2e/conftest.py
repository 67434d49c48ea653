"""The fixtures of the end-to-end tests: one control plane a worker, a clean slate a test.

The tests mostly wait for real clocks, so two workers halve the time on two cores.

What is missing of the control plane is built after the tests are collected, and only if one of them
wants it: there the progress of a quarter of an hour is seen, and no test's time limit counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import slate
from e2e.controlplane import build
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane, check_kueue_certificates
from e2e.controlplane.processes import ControlPlaneError

FIXTURE = "control_plane"
KEPT_LOGS = pytest.StashKey[list[str]]()
_OUTPUT = "kept_logs"  # what a worker of a parallel run tells the process that prints


# Files that take minutes, the longest first: one that is begun last keeps the other worker waiting.
SLOW_FILES = (
    "test_crash",
    "test_rbac",
    "test_leadership",
    "test_guide",
    "test_chart",
    "test_outages",
    "test_envelopes",
    "test_workloads",
    "test_lifecycle",
    "test_churn",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.stem
        return SLOW_FILES.index(name) if name in SLOW_FILES else len(SLOW_FILES)

    items.sort(key=place)


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(FIXTURE in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    try:
        check_kueue_certificates()
        build.ensure(_reporter(session.config))
    except (ControlPlaneError, build.BuildError) as error:
        pytest.exit(f"no control plane, so no end-to-end tests.\n{error}", returncode=1)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if logs := config.stash.get(KEPT_LOGS, []):
        terminalreporter.section("control plane")
        terminalreporter.write_line(f"its logs, and the audit log, are kept in {', '.join(logs)}")


def _keep(config: pytest.Config, logs: Path) -> None:
    output = getattr(config, "workeroutput", None)  # only a worker of a parallel run has it
    if output is not None:
        output[_OUTPUT] = str(logs)
    else:
        config.stash.setdefault(KEPT_LOGS, []).append(str(logs))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker has ended (pytest-xdist)."""
    logs = getattr(node, "workeroutput", {}).get(_OUTPUT)
    if logs is not None:
        node.config.stash.setdefault(KEPT_LOGS, []).append(logs)


def _reporter(config: pytest.Config) -> Callable[[str], None]:
    """Lines that are seen at once, whatever is captured."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")

    def report(line: str) -> None:
        if terminal is None:
            return
        if capture is None:
            terminal.write_line(line)
            return
        with capture.global_and_fixture_disabled():
            terminal.write_line(line)

    return report


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The cluster of this run. Tests that leave something behind use ``clean`` instead."""
    cp = ControlPlane()
    cp.start(_reporter(request.config))
    yield cp
    logs = cp.stop(keep_logs=request.session.testsfailed > 0)
    if logs is not None:
        _keep(request.config, logs)


@pytest.fixture
def clean(control_plane: ControlPlane) -> ControlPlane:
    """The cluster of this run, with nothing left of the tests before."""
    slate.clean(control_plane)
    return control_plane


@pytest.fixture
def audit(control_plane: ControlPlane) -> Audit:
    """The audit log of the cluster: mark a place, then count the requests since."""
    return Audit(control_plane)
