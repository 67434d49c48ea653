"""Renderings as they were last looked at; `python -m tests.helm.scenarios` writes them anew."""

import pytest

from tests.helm.rendering import CHART, helm
from tests.helm.scenarios import GOLDEN, SCENARIOS, golden


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_rendering_is_as_it_was(name: str) -> None:
    assert golden(name) == (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")


def test_no_rendering_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_lint_is_content(name: str) -> None:
    values = {"mode": "workload", **SCENARIOS[name]}
    assert "1 chart(s) linted, 0 chart(s) failed" in helm(
        "lint", "--strict", str(CHART), values=values
    )
