"""The files of the chart that follow from the table of values in `chart.py`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs.chart import DURATION, TEXT, VALUES, Value, matching
from quota_translator.core.crd import crd
from quota_translator.settings import Settings, flag

CHART = Path(__file__).resolve().parent.parent / "helm" / "quota-translator"
NOTE = "# Generated from docs/chart.py by `make manifests`; do not edit.\n"
BEGIN, END = "<!-- values: generated, do not edit -->", "<!-- end of values -->"


def chart_files() -> dict[Path, str]:
    readme = CHART / "README.md"
    return {
        CHART / "values.yaml": _values(),
        CHART / "values.schema.json": json.dumps(_schema(), indent=2, ensure_ascii=False) + "\n",
        CHART / "files" / "options.yaml": NOTE + yaml.safe_dump(options(), sort_keys=False),
        CHART / "files" / "crd.yaml": _crd(),
        readme: _with_table(readme.read_text(encoding="utf-8")),
    }


def _crd() -> str:
    """The CRD, which `helm uninstall` leaves: with it would go the tree."""
    document = crd()
    document["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
    return NOTE + yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)


# --- flags ----------------------------------------------------------------------------------


def options() -> list[dict[str, Any]]:
    """The values that become a flag each, by name; bounds of durations are in seconds."""
    return [_option(value) for value in VALUES if value.is_option and value.by_name]


def _option(value: Value) -> dict[str, Any]:
    kind = _kind(value.setting)
    found: dict[str, Any] = {"path": value.path, "flag": flag(value.setting), "kind": kind}
    if kind == "duration":
        low, high = _bounds(value.setting)
        found |= {"least": low, "most": high, "never": _may_be_never(value.setting)}
    return found


def _kind(name: str) -> str:
    annotation = str(Settings.model_fields[name].annotation)
    found = {"float": "duration", "tuple": "list", "bool": "boolean", "int": "number"}
    return next((kind for part, kind in found.items() if part in annotation), "text")


def _may_be_never(name: str) -> bool:
    return "None" in str(Settings.model_fields[name].annotation)


def _bounds(name: str) -> tuple[Any, Any]:
    limits = {
        key: getattr(part, key)
        for part in Settings.model_fields[name].metadata
        for key in ("ge", "le")
        if hasattr(part, key)
    }
    return limits["ge"], limits["le"]


# --- schema ---------------------------------------------------------------------------------


def _schema() -> dict[str, Any]:
    root: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart quota-translator",
        "description": "Generated from docs/chart.py by `make manifests`.",
        "type": "object",
        "additionalProperties": False,
        # Helm puts it there where the chart is a part of another one.
        "properties": {"global": {"type": "object"}},
    }
    for value in VALUES:
        *groups, name = value.path.split(".")
        place = root
        for group in groups:
            inner = {"type": "object", "additionalProperties": False, "properties": {}}
            place = place["properties"].setdefault(group, inner)
        place["properties"][name] = schema_of(value)
    return root


def schema_of(value: Value) -> dict[str, Any]:
    found = value.schema if value.schema is not None else _of_setting(value.setting)
    return {**found, "description": value.meaning} if value.meaning else found


def _of_setting(name: str) -> dict[str, Any]:
    kind = _kind(name)
    if kind == "duration":
        never = r"|\s*never\s*" if _may_be_never(name) else ""
        return {"anyOf": [matching(f"({DURATION}{never})"), {"const": 0}]}
    if kind == "number":
        low, high = _bounds(name)
        return {"type": "integer", "minimum": low, "maximum": high}
    if kind == "boolean":
        return {"type": "boolean"}
    choices = re.findall(r"'(\w+)'", str(Settings.model_fields[name].annotation))
    return {"enum": choices} if choices else TEXT


# --- what people read -------------------------------------------------------------------------


def _values() -> str:
    lines = [NOTE.strip(), "# What each value means is in README.md, too."]
    inside: list[str] = []
    for value in VALUES:
        *groups, name = value.path.split(".")
        if value.group:
            lines += ["", f"# --- {value.group} ---"]
        for depth, group in enumerate(groups):
            if inside[depth : depth + 1] != [group]:
                lines.append(f"{'  ' * depth}{group}:")
        inside = groups
        indent = "  " * len(groups)
        lines += [f"{indent}# {line}" for line in _wrapped(value.meaning, 96 - len(indent))]
        lines += [indent + line for line in _yaml(name, value.default)]
    return "\n".join(lines) + "\n"


def _yaml(name: str, default: Any) -> Iterator[str]:
    if default is None:
        yield f"{name}:"
        return
    flow = None if isinstance(default, dict | list) and default else True
    text = yaml.safe_dump({name: default}, sort_keys=False, default_flow_style=False)
    yield from text.rstrip("\n").splitlines() if flow is None else [text.strip()]


def _wrapped(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    if line:
        yield line


def _with_table(text: str) -> str:
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n{_table()}\n{END}{tail}"


def _table() -> str:
    rows = ["| value | default | meaning |", "| --- | --- | --- |"]
    for value in VALUES:
        shown = json.dumps(value.default) if value.default is not None else ""
        meaning = value.meaning.replace("|", "\\|")
        rows.append(f"| `{value.path}` | {f'`{shown}`' if shown else ''} | {meaning} |")
    return "\n".join(rows)
