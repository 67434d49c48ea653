"""The plan command over files: what it prints, in each form, and its exit codes."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from quota_translator.core.options import CapacityOptions, MaterializeOptions, Options
from quota_translator.core.world import Clock
from quota_translator.local.run_plan import run_plan

GUIDE = Path("examples/guide")
CLOCK = Clock(datetime(2026, 1, 1, tzinfo=UTC), 0.0)
KUEUE = "apiVersion: kueue.x-k8s.io/v1beta2\n"
ALPHA = ("ClusterQueue", "team-alpha")


def planned(*paths: Path, code: int = 0, **more: Any) -> dict[str, Any]:
    found, out, err = run_plan(paths, output="json", clock=CLOCK, **more)
    assert (found, err) == (code, "")
    document: dict[str, Any] = json.loads(out)
    return document


def shown(*paths: Path, code: int = 0, **more: Any) -> str:
    found, out, err = run_plan(paths, clock=CLOCK, **more)
    assert (found, err) == (code, "")
    return out


def quota(name: str, amount: str = "8", parent: str = "root", role: str = "ClusterQueue") -> str:
    return f"""\
---
apiVersion: quota-translator.dev/v1beta1
kind: AcceleratorQuota
metadata: {{name: {name}}}
spec:
  role: {role}
  parentRef: {{name: {parent}}}
  budgets:
    - resourceName: nvidia.com/gpu
      resourceFlavor: a100
      nominal: {amount}
"""


GUIDE_TEXT = """\
CAPACITY                MARK  INSTALLED  USABLE  PARKED  UNHEALTHY      NODES
google.com/tpu on a100     0          0       0       0          0  none ever
nvidia.com/gpu on a100    32         32      32       0          0          4

TREE              ROLE   READY  IN KUEUE  USED/SHARE
root              group  yes    not yet   -
└─ ml-research    group  yes    not yet   ?/24 nvidia.com/gpu on a100
   ├─ team-alpha  team   yes    not yet   ?/16 nvidia.com/gpu on a100
   └─ team-beta   team   yes    not yet   ?/8+4 nvidia.com/gpu on a100

CHANGES (7 to create)
  create   ResourceFlavor quota-translator-cover
  create   Cohort root
  create   Cohort ml-research: parentName root
  create   ClusterQueue team-alpha: cohortName ml-research; nvidia.com/gpu on a100 16, borrowing 0
  create   ClusterQueue team-beta: cohortName ml-research; nvidia.com/gpu on a100 8, borrowing 4
  create   LocalQueue team-alpha in ml-serving: clusterQueue team-alpha
  create   LocalQueue team-beta in ml-serving: clusterQueue team-beta

NOTES
  root is not in the input: the controller creates it

Sound: 4 nodes, no violation; 7 to create.
"""


def test_the_guide_as_text() -> None:
    assert shown(GUIDE) == GUIDE_TEXT


def test_the_guide_as_one_document() -> None:
    document = planned(GUIDE)
    assert (document["apiVersion"], document["kind"]) == ("quota-translator.dev/v1beta1", "Plan")
    assert [(row["resourceName"], row["highWaterMark"]) for row in document["capacity"]] == [
        ("google.com/tpu", "0"),
        ("nvidia.com/gpu", "32"),
    ]
    nodes = {node["name"]: node for node in document["nodes"]}
    assert list(nodes) == ["root", "ml-research", "team-alpha", "team-beta"]
    team = nodes["team-beta"]
    assert (team["role"], team["parent"], team["frozen"]) == ("ClusterQueue", "ml-research", False)
    assert team["path"] == "root/ml-research/team-beta"
    assert [row["type"] for row in team["conditions"]] == ["Ready", "Degraded", "Materialized"]
    assert team["budgets"][0]["nominal"] == "8"
    assert document["violations"] == []
    kinds = [f"{o['kind']} {o['metadata']['name']}" for o in document["objects"]]
    assert kinds[:3] == [
        "ResourceFlavor quota-translator-cover",
        "Cohort root",
        "Cohort ml-research",
    ]
    assert {change["action"] for change in document["changes"]} == {"create"}
    assert document["changes"][-1]["namespace"] == "ml-serving"


def test_the_document_has_the_fields_that_programs_rely_on(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("a", "6") + quota("b", '"-6"'))
    document = planned(tmp_path, code=2)
    wanted = {
        "nodes": {"name", "role", "parent", "path", "conditions", "budgets", "frozen"},
        "violations": {"node", "reason", "subject", "field", "message", "source"},
        "objects": {"apiVersion", "kind", "metadata", "spec"},
        "changes": {"action", "kind", "namespace", "name", "fields"},
    }
    assert "capacity" in document
    for part, fields in wanted.items():
        assert document[part]
        assert all(fields <= set(row) for row in document[part]), part
    (violation,) = document["violations"]
    assert (violation["node"], violation["reason"]) == ("b", "BudgetInvalid")
    assert violation["subject"] == "nvidia.com/gpu on a100: nominal"
    assert (violation["field"], violation["source"]) == (
        "spec.budgets[0].nominal",
        f"{tmp_path}/tree.yaml:22",
    )
    queue = next(o for o in document["objects"] if o["kind"] == "ClusterQueue")
    assert {"cohortName", "resourceGroups", "namespaceSelector", "preemption"} <= set(queue["spec"])


def test_a_tree_of_ome_is_planned_with_a_note_of_how_to_convert(tmp_path: Path) -> None:
    ome = quota("a").replace("quota-translator.dev", "ome.io")
    (tmp_path / "tree.yaml").write_text(ome)
    document = planned(tmp_path)
    assert [node["name"] for node in document["nodes"]] == ["root", "a"]
    assert any("to convert a file, change its apiVersion" in note for note in document["notes"])


BOMB = "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}' if before else 'lol'] * 10)}]"
    for before, name in zip(["", *"abcdefgh"], "abcdefghi", strict=True)
)
FLAVOR = f"{KUEUE}kind: ResourceFlavor\nmetadata: {{name: a100}}\n"
BAD = [
    pytest.param("a: 'b\n", "x.yaml:2: not YAML: ", id="not YAML"),
    pytest.param("a:\n\tb: 1\n", "x.yaml:2: not YAML: a tab", id="tabs"),
    pytest.param(BOMB, "aliases expand to more than", id="a bomb of aliases"),
    pytest.param("a: " + "b: " * 2_000_000, "x.yaml:1: not YAML", id="5 MB of nonsense"),
    pytest.param(
        quota("a").replace("AcceleratorQuota", "Quota"), "has no kind Quota: write", id="wrong kind"
    ),
    pytest.param(f"{FLAVOR}---\n{FLAVOR}", "stands here and at", id="an object twice"),
    pytest.param("apiVersion: v1\nkind: Pod\n", "nothing to read in 1 file", id="nothing of ours"),
]


@pytest.mark.parametrize(("content", "words"), BAD)
def test_bad_input_is_one_clear_line_and_exit_1(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x.yaml").write_text(content)
    code, out, err = run_plan([tmp_path])
    assert (code, out) == (1, "")
    assert words in err
    assert err.startswith(str(tmp_path))
    assert err.count("\n") == 1
    assert len(err) < 500


def test_no_file_is_an_error_and_a_name_twice_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run_plan([tmp_path])
    assert (code, out) == (1, "")
    assert "no .yaml, .yml or .json file in here" in err
    (tmp_path / "tree.yaml").write_text(quota("a") + quota("a", "4"))
    monkeypatch.chdir(tmp_path)  # a long path would be cut in the sentence
    (violation,) = planned(Path(), code=2)["violations"]
    assert violation["reason"] == "DuplicateNode"
    assert "(tree.yaml:2, tree.yaml:13): keep one" in violation["message"]


def test_a_large_file_is_read(tmp_path: Path) -> None:
    """5 MB are less than what kubectl prints of a few hundred nodes."""
    padding = "".join(f"# {'x' * 96}\n" for _ in range(52_000))
    (tmp_path / "tree.yaml").write_text(padding + quota("a") + quota("b", '"-1"'))
    assert (tmp_path / "tree.yaml").stat().st_size > 5_000_000
    (violation,) = planned(tmp_path, code=2)["violations"]
    assert violation["source"] == f"{tmp_path}/tree.yaml:52022"


@pytest.mark.case("A-82")
def test_the_same_input_in_any_order_gives_the_same_bytes(tmp_path: Path) -> None:
    documents = [text for path in sorted(GUIDE.glob("*.yaml")) for text in
                 path.read_text().split("---\n")]  # fmt: skip
    for name, texts in (("a", documents), ("b", documents[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.yaml").write_text("---\n".join(texts))
    one, other = planned(tmp_path / "a"), planned(tmp_path / "b")
    assert json.dumps(one["objects"]) == json.dumps(other["objects"])
    assert json.dumps(one["changes"]) == json.dumps(other["changes"])
    later = Clock(datetime(2027, 1, 1, tzinfo=UTC), 99.0)
    assert run_plan([GUIDE], output="json", clock=CLOCK) == run_plan(
        [GUIDE], output="json", clock=later
    )


def test_a_wait_that_starts_now_has_no_time_in_the_document() -> None:
    later = Clock(datetime(2027, 1, 1, tzinfo=UTC), 99.0)
    marks = ["nvidia.com/gpu/a100=64"]
    one, other = (
        run_plan([GUIDE], output="json", marks=marks, clock=clock) for clock in (CLOCK, later)
    )
    assert one == other
    drop = {"kind": "Drop", "value": "32", "elapsed": 0}
    assert drop in json.loads(one[1])["capacity"][1]["pending"]


def test_a_number_that_stays_is_not_told(tmp_path: Path) -> None:
    objects = planned(GUIDE)["objects"]
    alpha = next(o for o in objects if (o["kind"], o["metadata"]["name"]) == ALPHA)
    alpha["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "20"
    live = tmp_path / "live.json"
    live.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    (change,) = planned(GUIDE, live)["changes"]
    what = "nominal nvidia.com/gpu on a100"
    assert change["details"] == [{"what": what, "old": "20", "new": "16"}]


def test_yaml_says_what_json_says() -> None:
    code, out, _ = run_plan([GUIDE], output="yaml", clock=CLOCK)
    assert (code, yaml.safe_load(out)) == (0, planned(GUIDE))


def test_what_a_plan_wants_planned_again_is_no_change(tmp_path: Path) -> None:
    objects = planned(GUIDE)["objects"]
    live = tmp_path / "live.json"
    live.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    assert planned(GUIDE, live)["changes"] == []
    assert "CHANGES: none" in shown(GUIDE, live)


def test_changes_are_told_with_their_fields(tmp_path: Path) -> None:
    objects = planned(GUIDE)["objects"]
    queues = {o["metadata"]["name"]: o for o in objects if o["kind"] == "ClusterQueue"}
    alpha, beta = queues["team-alpha"], queues["team-beta"]
    alpha["metadata"]["labels"] = {}  # somebody else's
    gpus = next(
        g for g in beta["spec"]["resourceGroups"] if "nvidia.com/gpu" in g["coveredResources"]
    )
    gpus["flavors"][0]["resources"][0]["nominalQuota"] = "5"
    beta["spec"]["cohortName"] = "elsewhere"
    gone = {
        **beta,
        "metadata": {
            "name": "gone",
            "labels": {**beta["metadata"]["labels"], "quota-translator.dev/quota": "gone"},
        },
    }
    (tmp_path / "live.json").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [*objects, gone]})
    )
    document = planned(GUIDE, tmp_path)
    found = {(c["action"], c["name"]): c for c in document["changes"]}
    assert found.keys() == {
        ("conflict", "team-alpha"),
        ("update", "team-beta"),
        ("delete", "gone"),
    }
    assert sorted(found["update", "team-beta"]["fields"]) == ["cohortName", "resourceGroups"]
    assert "nobody's label" in found["conflict", "team-alpha"]["message"]
    text = shown(GUIDE, tmp_path)
    assert "nominal nvidia.com/gpu on a100 5 → 8" in text
    assert "cohortName elsewhere → ml-research" in text


@pytest.mark.case("FC-E04")
def test_a_child_may_stand_before_its_parent(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("team-a", parent="ml") + quota("ml", role="Cohort"))
    document = planned(tmp_path)
    assert document["violations"] == []
    cohorts = [o["metadata"]["name"] for o in document["objects"] if o["kind"] == "Cohort"]
    assert cohorts == ["root", "ml"]


def test_violations_carry_the_line_of_the_field_and_freeze(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(
        quota("ml", "8", role="Cohort") + quota("a", "6", "ml") + quota("b", "6", "ml")
    )
    objects = planned(tmp_path, code=2)
    (violation,) = objects["violations"]
    assert violation["reason"] == "ContainmentViolated"
    assert violation["source"] == f"{tmp_path}/tree.yaml:11"
    assert violation["field"] == "spec.budgets[0].nominal"
    assert [node["name"] for node in objects["nodes"] if node["frozen"]] == ["ml", "a", "b"]
    text = shown(tmp_path, code=2)
    assert f"  {tmp_path}/tree.yaml:11: ml: ContainmentViolated: " in text
    assert text.endswith(
        "Not sound: 1 violation(s) on 1 of 4 nodes; 3 node(s) are frozen, and their Kueue objects "
        "stay as they are.\n"
    )


def test_frozen_objects_are_kept(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("a", "6"))
    live = {"kind": "List", "apiVersion": "v1", "items": planned(tmp_path)["objects"]}
    (tmp_path / "live.json").write_text(json.dumps(live))
    (tmp_path / "tree.yaml").write_text(quota("a", '"-6"'))
    (change,) = [c for c in planned(tmp_path, code=2)["changes"] if c["name"] == "a"]
    assert (change["action"], change["kind"]) == ("keep", "ClusterQueue")


def test_siblings_with_one_beginning_are_drawn_apart(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(
        quota("ml", role="Cohort") + quota("ml-ops", role="Cohort") + quota("x", "1", "ml")
        + quota("z", "1", "ml-ops") + quota("lost", "1", "nowhere")
    )  # fmt: skip
    text = shown(tmp_path, code=2)
    lines = [re.split(r"  +(?:group|team|ROLE)", line)[0] for line in text.splitlines()]
    start = lines.index("root")
    assert lines[start : start + 5] == ["root", "├─ ml", "│  └─ x", "└─ ml-ops", "   └─ z"]
    assert lines[start + 6 : start + 8] == ["WITHOUT A PLACE IN THE TREE", "lost"]


def test_no_node_means_that_nothing_is_measured(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("a", "64"))
    document = planned(tmp_path)
    assert document["capacity"] == []
    assert any("capacity is not checked" in note for note in document["notes"])
    assert any("flavors count as unreadable" in note for note in document["notes"])


def test_marks_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("a", "64"))
    document = planned(tmp_path, marks=["nvidia.com/gpu/a100=32"], code=2)
    assert document["violations"][0]["reason"] == "CapacityExceeded"
    assert document["capacity"][0]["highWaterMark"] == "32"
    assert planned(tmp_path, marks=["nvidia.com/gpu/a100=64"])["violations"] == []


def test_a_mark_stands_above_what_is_measured() -> None:
    document = planned(GUIDE, marks=["nvidia.com/gpu/a100=40"])
    assert document["capacity"][1]["highWaterMark"] == "40"
    assert "the mark becomes 32" in shown(GUIDE, marks=["nvidia.com/gpu/a100=40"])


def test_marks_come_from_roots_status_too(tmp_path: Path) -> None:
    row = {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "highWaterMark": "4"}
    root = {
        "apiVersion": "quota-translator.dev/v1beta1",
        "kind": "AcceleratorQuota",
        "metadata": {"name": "root"},
        "spec": {"role": "Cohort"},
        "status": {"capacity": [row]},
    }
    (tmp_path / "tree.yaml").write_text(quota("a", "8") + f"---\n{json.dumps(root)}\n")
    assert planned(tmp_path, code=2)["violations"][0]["reason"] == "CapacityExceeded"


@pytest.mark.parametrize("mark", ["a100=3", "nvidia.com/gpu/a100", "x/y=zz", "x/y=-1", "/y=1"])
def test_a_mark_that_cannot_be_read_is_an_error(mark: str) -> None:
    code, out, err = run_plan([GUIDE], marks=[mark])
    assert (code, out) == (1, "")
    assert err.startswith("--mark: ")
    assert err.count("\n") == 1


def test_enrolled_namespaces_are_taken_to_exist(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("a", "1"))
    document = planned(tmp_path, enrolled=("one", "two"))
    assert [c["namespace"] for c in document["changes"] if c["kind"] == "LocalQueue"] == [
        "one",
        "two",
    ]
    settings = Options(materialize=MaterializeOptions(enrolled_namespaces=("three",)))
    document = planned(tmp_path, options=settings)
    assert [c["namespace"] for c in document["changes"] if c["kind"] == "LocalQueue"] == ["three"]


def test_without_a_namespace_queues_are_shown_and_local_queues_are_not(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text(quota("a", "1"))
    document = planned(tmp_path)
    kinds = [o["kind"] for o in document["objects"]]
    assert "ClusterQueue" in kinds
    assert "LocalQueue" not in kinds
    assert any("no Namespace in the input" in note for note in document["notes"])


def test_no_quota_is_a_tree_of_root_alone(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"{KUEUE}kind: ResourceFlavor\nmetadata: {{name: a100}}\n")
    document = planned(tmp_path)
    assert [node["name"] for node in document["nodes"]] == ["root"]
    assert any("root alone" in note for note in document["notes"])


def test_measuring_may_be_off() -> None:
    text = shown(GUIDE, options=Options(capacity=CapacityOptions(resources=())))
    assert text.startswith("CAPACITY is not known")
    assert "no Node" not in text


def test_problems_are_told_one_a_line_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a:\n\tb: 1\n")
    (tmp_path / "b.yaml").write_text(quota("x", "yes"))
    (tmp_path / "c.yaml").write_text(quota("z"))
    code, out, err = run_plan([tmp_path])
    assert (code, out) == (1, "")
    assert [line.split(": ")[0] for line in err.splitlines()] == [
        f"{tmp_path}/a.yaml:2",
        f"{tmp_path}/b.yaml:11",
    ]
