"""docs/guide.md, command by command, against the real thing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from e2e.controller import Controller, remove_crd
from e2e.controlplane.cluster import ControlPlane
from e2e.guide import Step, steps
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
TOP = Path(__file__).parent.parent
GUIDE = TOP / "docs" / "guide.md"


class Reader:
    """Does what the guide's reader does, in a folder of its own."""

    def __init__(self, cp: ControlPlane, folder: Path) -> None:
        self._cp = cp
        self._folder = folder
        self.controller: Controller | None = None
        for name in ("manifests", "examples"):
            (folder / name).symlink_to(TOP / name)

    def do(self, step: Step) -> None:
        if step.kind == "file":
            (self._folder / step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "controller":
            flags = step.text.split()
            assert flags[:2] == ["quota-translator", "run"]
            self.controller = Controller(self._cp, *flags[2:], namespaces="").start()
        elif step.kind == "eventually":
            eventually(lambda: self._run(step), 60, f"the guide's output of {step.text.strip()}")
        elif step.kind in ("run", "fails"):
            self._run(step)
        else:
            assert step.kind == "setup"

    def _run(self, step: Step) -> bool:
        environment = os.environ | {
            "KUBECONFIG": str(self._cp.kubeconfig),
            "PATH": f"{self._cp.bin('kubectl').parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-c", step.text],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        fails = step.kind == "fails"
        assert (done.returncode != 0) == fails, f"{step}: {done.stdout}{done.stderr}"
        seen = done.stderr if fails else done.stdout
        if step.output is not None:
            assert seen.rstrip() == step.output.rstrip(), f"{step} printed:\n{seen}"
        return True


@pytest.mark.case("A-30", "A-80", "A-63", "A-71")
@pytest.mark.timeout(600)
def test_the_guide_runs_as_it_is_written(clean: ControlPlane, tmp_path: Path) -> None:
    remove_crd(clean)
    reader = Reader(clean, tmp_path)
    try:
        for step in steps(GUIDE):
            reader.do(step)
    finally:
        if reader.controller is not None:
            reader.controller.stop()
