"""The examples are what their README says: sound, or broken in every way there is."""

from pathlib import Path
from typing import Any

import pytest

from quota_translator.core.options import Options
from quota_translator.core.verdict import RANKS
from quota_translator.local.load import load
from quota_translator.local.present import document
from quota_translator.local.run_plan import DONE, VIOLATED, now, run_plan, view_of

EXAMPLES = Path("examples")


def plan_of(name: str) -> dict[str, Any]:
    return document(view_of(load([EXAMPLES / name]), (), None, Options(), now()))


def test_every_example_is_tested_and_explained() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert found == {"guide", "university", "company", "broken"}
    assert all((EXAMPLES / name / "README.md").is_file() for name in found)


@pytest.mark.parametrize("name", ["guide", "university", "company"])
def test_it_is_sound(name: str) -> None:
    code, out, err = run_plan([EXAMPLES / name])
    assert (code, err) == (DONE, "")
    assert out.splitlines()[-1].startswith("Sound: ")
    assert "Oversubscribed" not in out
    assert max(len(line) for line in out.splitlines()) <= 100


def test_the_guide_is_the_guides_world() -> None:
    found = plan_of("guide")
    rows = [(r["resourceFlavor"], r["allocatable"], r["highWaterMark"]) for r in found["capacity"]]
    assert rows == [("a100", "0", "0"), ("a100", "32", "32")]
    assert [(n["name"], [b["nominal"] for b in n["budgets"]]) for n in found["nodes"]] == [
        ("root", []),
        ("ml-research", ["24"]),
        ("team-alpha", ["16"]),
        ("team-beta", ["8"]),
    ]


def test_the_university_has_parked_sick_and_unlabelled_nodes_and_a_topology() -> None:
    found = plan_of("university")
    rows = {
        r["resourceFlavor"]: r for r in found["capacity"] if r["resourceName"] == "nvidia.com/gpu"
    }
    assert (rows["a100"]["allocatable"], rows["a100"]["unavailable"]) == ("4", "4")
    assert (rows["l40s"]["installed"], rows["l40s"]["unhealthy"]) == ("11", "1")
    assert rows["a100-slice"]["highWaterMark"] == "28"
    assert [r["examples"] for r in found["unattributed"]] == [["donated-1"]]
    queues = {o["metadata"]["name"]: o for o in found["objects"] if o["kind"] == "ClusterQueue"}
    assert len(queues["biology"]["spec"]["resourceGroups"]) == 1
    assert len(queues["robotics"]["spec"]["resourceGroups"]) == 2


def test_the_company_has_three_levels_enforced_groups_tpus_and_namespaces() -> None:
    found = plan_of("company")
    assert max(node["path"].count("/") for node in found["nodes"]) == 3
    cohorts = {o["metadata"]["name"]: o for o in found["objects"] if o["kind"] == "Cohort"}
    assert {name for name, o in cohorts.items() if "resourceGroups" in o["spec"]} >= {
        "research",
        "foundation-models",
    }
    assert any(r["resourceName"] == "google.com/tpu" and r["installed"] == "32"
               for r in found["capacity"])  # fmt: skip
    spaces = {o["metadata"]["namespace"] for o in found["objects"] if o["kind"] == "LocalQueue"}
    assert len(spaces) == 3


def test_the_broken_one_shows_every_reason_and_leaves_the_healthy_alone() -> None:
    code, out, _ = run_plan([EXAMPLES / "broken"])
    assert code == VIOLATED
    found = plan_of("broken")
    assert {violation["reason"] for violation in found["violations"]} == set(RANKS)
    assert all(violation["source"].count(":") == 1 for violation in found["violations"])
    ready = {n["name"]: n["conditions"][0]["status"] for n in found["nodes"]}
    assert ready["healthy"] == "True"
    assert "no-such-flavor: FlavorMissing: " in out
    twin = next(v for v in found["violations"] if v["node"] == "twin")
    assert "more.yaml" in twin["message"]
    assert "tree.yaml" in twin["message"]


@pytest.mark.parametrize("name", ["guide", "university", "company", "broken"])
def test_comments_and_lines_stay_within_the_page(name: str) -> None:
    for path in (EXAMPLES / name).iterdir():
        assert all(len(line) <= 100 for line in path.read_text().splitlines()), path
