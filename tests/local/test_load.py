"""Folders to records: what is read, what is skipped, and every way in which it can be bad."""

import os
from pathlib import Path

import pytest

from quota_translator.core.names import Key
from quota_translator.local import files
from quota_translator.local.load import Loaded, load

QUOTA = """\
apiVersion: quota-translator.dev/v1beta1
kind: AcceleratorQuota
metadata:
  name: team
spec:
  role: ClusterQueue
  parentRef: {name: root}
  budgets:
    - resourceName: nvidia.com/gpu
      resourceFlavor: a100
      nominal: 8
"""
FLAVOR = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: a100}
"""


def given(folder: Path, **texts: str) -> Loaded:
    for name, text in texts.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load([folder])


def said(loaded: Loaded, folder: Path) -> list[str]:
    return [str(problem).replace(f"{folder}/", "") for problem in loaded.problems]


def test_the_guide_is_read_whole() -> None:
    loaded = load([Path("examples/guide")])
    assert loaded.problems == ()
    assert [str(entry) for entry in loaded.entries] == [
        "ResourceFlavor a100",
        "Namespace ml-serving",
        *(f"Node gpu-{number}" for number in range(1, 5)),
        "AcceleratorQuota ml-research",
        "AcceleratorQuota team-alpha",
        "AcceleratorQuota team-beta",
    ]


def test_every_kind_becomes_its_record(tmp_path: Path) -> None:
    kueue = "apiVersion: kueue.x-k8s.io/v1beta2\n"
    loaded = given(
        tmp_path,
        a="apiVersion: v1\nkind: Node\nmetadata: {name: m}\nstatus: {allocatable: {a/b: 3}}\n",
        b="apiVersion: v1\nkind: Namespace\nmetadata: {name: s}\nstatus: {phase: Terminating}\n",
        c=FLAVOR,
        d=f"{kueue}kind: Cohort\nmetadata: {{name: g}}\nspec: {{parentName: root}}\n",
        e=f"{kueue}kind: ClusterQueue\nmetadata: {{name: q}}\nspec: {{cohortName: g}}\n",
        f=f"{kueue}kind: LocalQueue\nmetadata: {{name: l, namespace: s}}\n",
        g=f"{kueue}kind: LocalQueue\nmetadata: {{name: l}}\nspec: {{clusterQueue: q}}\n",
        h=QUOTA,
    )
    assert loaded.problems == ()
    node, space, flavor, *kueue_objects, quota = loaded.entries
    assert node.node is not None
    assert list(node.node.allocatable) == ["a/b"]
    assert space.space is not None
    assert space.space.terminating
    assert flavor.flavor is not None
    assert [entry.live.key for entry in kueue_objects if entry.live] == [
        Key("Cohort", "", "g"),
        Key("ClusterQueue", "", "q"),
        Key("LocalQueue", "s", "l"),
        Key("LocalQueue", "default", "l"),
    ]
    assert quota.quota is not None
    assert quota.quota.source == f"{tmp_path}/h.yaml:1"


def test_fields_have_lines(tmp_path: Path) -> None:
    loaded = given(tmp_path, tree=f"# first\n{QUOTA}")
    source = f"{tmp_path}/tree.yaml"
    assert loaded.where(f"{source}:2", "spec.budgets[0].nominal") == f"{source}:12"
    assert loaded.where(f"{source}:2", "") == f"{source}:2"
    assert loaded.where("elsewhere:1", "spec") == "elsewhere:1"


def test_folders_are_searched_but_not_what_is_hidden(tmp_path: Path) -> None:
    given(tmp_path, **{"deep/er/tree": QUOTA, ".hidden": "a: 'b", ".state/x": "a: 'b"})
    (tmp_path / "notes.txt").write_text("a: 'b")
    (tmp_path / "flavor.json").write_text(
        '{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": '
        '"ResourceFlavor", "metadata": {"name": "a100"}}'
    )
    loaded = load([tmp_path, tmp_path / "deep", tmp_path / "deep/er/tree.yaml"])
    assert loaded.problems == ()
    assert [str(entry) for entry in loaded.entries] == [
        "AcceleratorQuota team",
        "ResourceFlavor a100",
    ]


def test_other_kinds_are_skipped_and_counted(tmp_path: Path) -> None:
    other = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"
    values = "replicas: 3\n"
    service = "apiVersion: serving.knative.dev/v1\nkind: Node\nmetadata: {name: x}\n"
    loaded = given(tmp_path, a=QUOTA, b=f"{other}---\n{other}---\n{values}", c=service)
    assert loaded.problems == ()
    (note,) = loaded.notes
    kinds = "2 Deployment, 1 document without kind and apiVersion, 1 serving.knative.dev/v1 Node"
    assert note == f"skipped, because they are of no concern here: {kinds}"


def test_omes_trees_are_read_with_a_note(tmp_path: Path) -> None:
    ome = QUOTA.replace("quota-translator.dev", "ome.io")
    loaded = given(tmp_path, a=ome, b=ome.replace("team", "other"))
    assert loaded.problems == ()
    (note,) = loaded.notes
    assert note == (
        "2 object(s) of apiVersion ome.io/v1beta1 are read as quota-translator.dev/v1beta1 "
        f"(first at {tmp_path}/a.yaml:1); to convert a file, change its apiVersion, nothing else"
    )


@pytest.mark.case("FC-D05")
@pytest.mark.parametrize(
    ("written", "amount", "note"),
    [
        ("8", "8", ""),
        ("+8", "8", ""),
        ("8.0", "8", "is written 8.0, which means 8"),
        ("010", "8", "is written 010, which means 8"),
        ("1e3", "1k", "is written 1e3, which means 1000"),
        ("1_000", "1k", "is written 1_000, which means 1000"),
        ('"010"', "10", ""),
        ("1500m", "1500m", ""),
    ],
)
def test_amounts_are_what_the_server_reads(
    tmp_path: Path, written: str, amount: str, note: str
) -> None:
    loaded = given(tmp_path, tree=QUOTA.replace("nominal: 8", f"nominal: {written}"))
    assert loaded.problems == ()
    (entry,) = loaded.entries
    assert entry.quota is not None
    assert entry.quota.budgets[0].nominal.canonical() == amount
    where = f"{tmp_path}/tree.yaml:11: AcceleratorQuota team: spec.budgets[0].nominal "
    assert loaded.notes == ((where + note,) if note else ())


@pytest.mark.case("FC-D05")
@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("yes", "is the boolean true, written yes"),
        ("1.5", "is the number 1.5; an amount is a whole number or text"),
        ("[8]", "is a list"),
        ("1e-3", "is the number 0.001, written 1e-3"),
    ],
)
def test_an_amount_that_is_neither_number_nor_text_is_one_error(
    tmp_path: Path, written: str, words: str
) -> None:
    loaded = given(tmp_path, tree=QUOTA.replace("nominal: 8", f"nominal: {written}"))
    (problem,) = said(loaded, tmp_path)
    assert problem.startswith(
        f"tree.yaml:11: AcceleratorQuota team: spec.budgets[0].nominal {words}"
    )
    assert "in quotes" in problem


@pytest.mark.parametrize(
    ("before", "after", "line", "expected"),
    [
        ("  role:", "  color: red\n  role:", 6, "unknown field spec.color"),
        ("nominal: 8", "nominal: 8\n      limit: 1", 12, "unknown field spec.budgets[0].limit"),
        ("spec:", "data: {}\nspec:", 5, "unknown field data"),
        ("  role:", "  distribution: {}\n  role:", 6, "spec.distribution.policy is required"),
        ("spec:", "spec: []\nstatus:", 5, "spec is a list, not an object"),
        ("Flavor: a100", "Flavor: 100", 10, "spec.budgets[0].resourceFlavor is the number 100, "),
        ("{name: root}", "root", 7, "spec.parentRef is the text 'root', not an object"),
        ("metadata:", "metadata: # {prod: yes}\n  labels: {prod: yes}", 4, ("metadata.labels[prod] "
         "is the boolean true, not text: put it in quotes")),
    ],
)  # fmt: skip
def test_what_the_server_refuses_is_a_problem(
    tmp_path: Path, before: str, after: str, line: int, expected: str
) -> None:
    loaded = given(tmp_path, tree=QUOTA.replace(before, after, 1))
    (problem,) = said(loaded, tmp_path)
    assert problem.startswith(f"tree.yaml:{line}: AcceleratorQuota team: {expected}")


@pytest.mark.parametrize(
    ("before", "after", "line", "expected"),
    [
        ("name: team", "title: team", 3, "AcceleratorQuota: metadata.name is missing"),
        ("name: team", "name: 7", 4, "AcceleratorQuota: metadata.name is the number 7, not text"),
        ("v1beta1", "v1", 1, ("AcceleratorQuota of apiVersion quota-translator.dev/v1 is not read: "
         "write quota-translator.dev/v1beta1")),
        ("AcceleratorQuota", "Quota", 2, ("quota-translator.dev/v1beta1 has no kind Quota: write "
         "AcceleratorQuota")),
    ],
)  # fmt: skip
def test_an_object_that_cannot_be_identified_is_a_problem(
    tmp_path: Path, before: str, after: str, line: int, expected: str
) -> None:
    loaded = given(tmp_path, tree=QUOTA.replace(before, after, 1))
    (problem,) = said(loaded, tmp_path)
    assert problem.startswith(f"tree.yaml:{line}: {expected}")


def test_what_the_trees_rules_forbid_is_left_to_check(tmp_path: Path) -> None:
    loaded = given(tmp_path, a=QUOTA, b=QUOTA.replace("8", '"-8"').replace("ClusterQueue", "Team"))
    assert loaded.problems == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("just text\n", "x.yaml:1: an object was expected here, and found the text 'just text'"),
        ("- a\n- b\n", "x.yaml:1: an object was expected here, and found a list"),
        ("kind: List\napiVersion: v1\nitems: [3]\n",
         "x.yaml:3: an object was expected here, and found the number 3"),
        (FLAVOR.replace("v1beta2", "v1beta1"), ("x.yaml:1: ResourceFlavor of apiVersion "
         "kueue.x-k8s.io/v1beta1 is not read: write kueue.x-k8s.io/v1beta2")),
        (f"{FLAVOR}spec:\n  nodeLabels:\n    gpu: true\n", ("x.yaml:6: ResourceFlavor a100: "
         "spec.nodeLabels[gpu] is the boolean true, not text")),
        (f"{FLAVOR}spec:\n  nodeTaints: 3\n", "x.yaml:5: ResourceFlavor a100: Expected `array"),
        ("a:\n\tb: 1\n", "x.yaml:2: not YAML: a tab in the indentation; indent with spaces"),
    ],
)  # fmt: skip
def test_bad_documents_are_problems(tmp_path: Path, text: str, expected: str) -> None:
    loaded = given(tmp_path, x=text)
    (problem,) = said(loaded, tmp_path)
    assert problem.startswith(expected)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    loaded = given(tmp_path, a="a: 'b", b=f"{QUOTA}      x: 1\n---\ntext\n---\n{FLAVOR}", c=QUOTA)
    assert [problem.split(": ")[0] for problem in said(loaded, tmp_path)] == [
        "a.yaml:1",
        "b.yaml:12",
        "b.yaml:14",
    ]
    assert len(loaded.entries) == 2


def test_an_object_that_stands_twice_is_a_problem_naming_both_places(tmp_path: Path) -> None:
    loaded = given(tmp_path, a=FLAVOR, b=f"{QUOTA}---\n{FLAVOR}")
    assert said(loaded, tmp_path) == [
        "b.yaml:13: ResourceFlavor a100 stands here and at a.yaml:1: keep one of them"
    ]


def test_two_quotas_of_one_name_are_the_trees_business(tmp_path: Path) -> None:
    loaded = given(tmp_path, a=QUOTA, b=QUOTA)
    assert loaded.problems == ()
    assert len(loaded.entries) == 2


def test_nothing_to_read_is_a_problem(tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    (other := tmp_path / "other.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    assert "no .yaml, .yml or .json file in here" in said(load([empty]), tmp_path)[0]
    assert "no such file or folder" in said(load([tmp_path / "gone"]), tmp_path)[0]
    assert "no path was given" in said(load([]), tmp_path)[0]
    (problem,) = said(load([other]), tmp_path)
    assert problem.startswith("other.yaml: nothing to read in 1 file(s): none of Node, ")
    assert "1 Pod" in problem


def test_what_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert said(load([tmp_path]), tmp_path) == [
        "loop.yaml: cannot be read: Too many levels of symbolic links",
        "pipe.yaml: is not a regular file",
    ]


def test_a_file_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 2**20)
    loaded = given(tmp_path, big=f"# {'x' * 2**20}\n{QUOTA}")
    assert said(loaded, tmp_path) == [
        "big.yaml: is larger than 1 MiB, the most that is read: split it"
    ]
