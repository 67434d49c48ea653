"""docs/guide.md, command by command, against the real thing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.chart import OWN_NAMESPACE
from e2e.controller import QUOTAS, remove_crd
from e2e.controlplane.cluster import ControlPlane
from e2e.guide import Step, steps
from e2e.standin import standin
from e2e.waiting import eventually
from quota_translator.core.names import LABEL_MANAGED_BY

pytestmark = pytest.mark.e2e
TOP = Path(__file__).parent.parent
GUIDE = TOP / "docs" / "guide.md"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
COMMAND_LIMIT = 120  # seconds; a rollout takes some
KINDS = ("clusterqueues", "cohorts", "localqueues", "resourceflavors")


class Reader:
    """Does what the guide's reader does, in a folder of its own."""

    def __init__(self, cp: ControlPlane, folder: Path) -> None:
        self._folder = folder
        tools = (cp.bin("kubectl").parent, cp.bin("helm").parent, Path(sys.executable).parent)
        homes = {f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = (
            os.environ
            | homes
            | {
                "KUBECONFIG": str(cp.kubeconfig),
                "PATH": ":".join([*map(str, tools), os.environ["PATH"]]),
            }
        )
        for name in ("helm", "examples"):
            (folder / name).symlink_to(TOP / name)

    def do(self, step: Step) -> None:
        if step.kind == "file":
            (self._folder / step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "eventually":
            eventually(lambda: self._run(step), 90, f"the guide's output of {step.text.strip()}")
        elif step.kind in ("run", "fails", "about"):
            self._run(step)
        else:
            assert step.kind == "setup"

    def _run(self, step: Step) -> bool:
        done = subprocess.run(
            ["bash", "-c", step.text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_LIMIT,
        )
        fails = step.kind == "fails"
        assert (done.returncode != 0) == fails, f"{step}: {done.stdout}{done.stderr}"
        seen, wanted = done.stderr if fails else done.stdout, step.output
        if wanted is not None and step.kind == "about":
            now = datetime.now(UTC)
            for stamp in STAMP.findall(seen):  # the guide says: renewed each minute
                assert now - datetime.fromisoformat(stamp) < timedelta(minutes=2)
            seen, wanted = STAMP.sub("TIME", seen), STAMP.sub("TIME", wanted)
        if wanted is not None:
            assert seen.rstrip() == wanted.rstrip(), f"{step} printed:\n{seen}"
        return True


def left(cp: ControlPlane) -> list[str]:
    """What there is of ours in Kueue."""
    paths = [f"/apis/kueue.x-k8s.io/v1beta2/{kind}" for kind in KINDS]
    found = [item["metadata"] for path in paths for item in cp.api.items(path)]
    return [
        metadata["name"] for metadata in found if LABEL_MANAGED_BY in metadata.get("labels", {})
    ]


@pytest.mark.case("A-30", "A-80", "A-63", "A-71", "A-101")
@pytest.mark.timeout(900)
def test_the_guide_runs_as_it_is_written(clean: ControlPlane, tmp_path: Path) -> None:
    remove_crd(clean)
    clean.api.delete(f"/api/v1/namespaces/{OWN_NAMESPACE}")
    reader = Reader(clean, tmp_path)
    with standin(clean):
        for step in steps(GUIDE):
            reader.do(step)
    assert left(clean) == []
    assert clean.api.find(QUOTAS) is None
