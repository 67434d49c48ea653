"""What the chart renders, by a real helm."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e.controlplane import build

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "helm" / "quota-translator"
RELEASE, NAMESPACE = "quota-translator", "quota-translator"
ENROLLED: dict[str, Any] = {"materialize": {"enrolledNamespaces": ["ml-serving"]}}
Document = dict[str, Any]


class Refused(Exception):
    """The chart was not rendered; the text is what helm said."""


@cache
def _helm() -> str:
    return str(build.locate().programs["helm"])


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """Run helm, with values as of a file. JSON is YAML, of every version. Raises Refused."""
    command = [_helm(), *arguments, *(() if values is None else ("-f", "-"))]
    text = None if values is None else json.dumps(values, ensure_ascii=False)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return done.stdout


def template(values: Mapping[str, Any]) -> str:
    """`mode: workload` and these values, as YAML."""
    return _template(json.dumps({"mode": "workload", **values}))


@cache
def _template(values: str) -> str:
    where = ("--namespace", NAMESPACE)
    return helm("template", RELEASE, str(CHART), *where, values=json.loads(values))


def render(values: Mapping[str, Any] | None = None) -> list[Document]:
    """The objects, in the order in which helm would send them."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # four times as fast, where there is one
    return [d for d in yaml.load_all(template(values or {}), Loader=loader) if d]


def refusal(values: Mapping[str, Any]) -> str:
    """What helm says to values that it does not take."""
    try:
        template(values)
    except Refused as error:
        return str(error)
    raise AssertionError(f"{values} was rendered")


def find(documents: Sequence[Document], kind: str, name: str = "") -> Document:
    """The one object of this kind (and name)."""
    (found,) = select(documents, kind, name)
    return found


def select(documents: Sequence[Document], kind: str, name: str = "") -> list[Document]:
    return [d for d in documents if d["kind"] == kind and name in ("", d["metadata"]["name"])]


def container(documents: Sequence[Document]) -> Document:
    (found,) = find(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def flags(documents: Sequence[Document]) -> dict[str, str]:
    """The controller's flags by name."""
    words = container(documents)["args"][1:]
    assert all(word.startswith("--") and "=" in word for word in words), words
    pairs = [word.partition("=") for word in words]
    names = [name for name, _, _ in pairs]
    assert len(names) == len(set(names)), names
    return {name: text for name, _, text in pairs}


def rules(documents: Sequence[Document]) -> set[tuple[str, str, str, str, str]]:
    """All that is granted to the controller: (kind, group, resource, name, verb)."""
    granted = set()
    for role in documents:
        if role["kind"] not in ("Role", "ClusterRole") or _for_people(role):
            continue
        for rule in role["rules"]:
            granted |= {
                (role["kind"], group, resource, name, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames", [""])
                for verb in rule["verbs"]
            }
    return granted


def _for_people(role: Document) -> bool:
    return str(role["metadata"]["name"]).endswith(("-viewer", "-editor"))
