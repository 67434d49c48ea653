"""What `plan` prints of each example, given to a real API server and Kueue's webhooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.controlplane.cluster import ControlPlane
from e2e.shapes import PLURALS
from e2e.trees import KUEUE, Document
from quota_translator.local.run_plan import run_plan

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).parent.parent / "examples"
# Nodes and the tree stay where they are: `plan` reads them from the example itself.
GIVEN = {
    "Namespace": "/api/v1/namespaces",
    "Topology": f"{KUEUE}/topologies",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
}


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir()))
@pytest.mark.case("FC-D01")
def test_kueue_takes_what_an_example_renders_and_keeps_it_as_it_is(
    clean: ControlPlane, tmp_path: Path, example: str
) -> None:
    folder = EXAMPLES / example
    documents = _documents(folder)
    for kind, path in GIVEN.items():
        for document in documents:
            if document["kind"] == kind and document["metadata"]["name"] != "default":
                clean.api.create(f"{path}?fieldValidation=Strict", _bare(document))
    for document in documents:  # what the example says is there already, in its own order
        if document["kind"] in PLURALS and document["kind"] not in GIVEN:
            _create(clean, document)

    plan = _plan(folder)
    given = {_name(document) for document in documents}
    assert plan["objects"]
    assert plan["changes"]  # there is something that the second look must no longer find
    for item in plan["objects"]:
        if _name(item) in given:
            clean.api.merge(_path(item) + "/" + item["metadata"]["name"], item)
        else:
            _create(clean, item)

    # A second look, at what the server made of it.
    live = tmp_path / "live.json"
    live.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _live(clean)}))
    again = _plan(_without_kueue(folder, documents, tmp_path / "rest"), live)
    assert [change for change in again["changes"] if change["action"] != "keep"] == []
    assert again["objects"] == plan["objects"]


def _documents(folder: Path) -> list[Document]:
    found: list[Document] = []
    for path in sorted(folder.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document:
                found += document["items"] if document["kind"] == "List" else [document]
    return found


def _without_kueue(folder: Path, documents: list[Document], rest: Path) -> Path:
    """The example without the objects that are live now; itself where it has none."""
    if not any(document["kind"] in PLURALS for document in documents):
        return folder
    rest.mkdir()
    kept = [document for document in documents if document["kind"] not in PLURALS]
    (rest / "rest.yaml").write_text(yaml.safe_dump_all(kept, sort_keys=False))
    return rest


def _plan(*paths: Path) -> dict[str, Any]:
    code, out, err = run_plan(paths, output="json")
    assert code in (0, 2), err
    plan: dict[str, Any] = json.loads(out)
    return plan


def _create(cp: ControlPlane, item: Document) -> None:
    cp.api.create(f"{_path(item)}?fieldValidation=Strict", _bare(item))


def _bare(document: Document) -> Document:
    """Without what a server adds: the example may show an object as kubectl printed it."""
    dropped = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")
    metadata = {k: v for k, v in document["metadata"].items() if k not in dropped}
    return {k: v for k, v in document.items() if k != "status"} | {"metadata": metadata}


def _path(item: Document) -> str:
    namespace = item["metadata"].get("namespace")
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{KUEUE}{middle}/{PLURALS[item['kind']]}"


def _name(item: Document) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def _live(cp: ControlPlane) -> list[Document]:
    found = []
    for kind, plural in PLURALS.items():
        whole = cp.api.get(f"{KUEUE}/{plural}")
        found += [{"apiVersion": whole["apiVersion"], "kind": kind} | i for i in whole["items"]]
    return found
