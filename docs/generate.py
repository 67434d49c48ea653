"""Writes what follows from the models: the CRD, the API reference, and files of the chart.

python -m docs.generate           write the files
python -m docs.generate --check   exit 1 when a committed file differs
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.chart_files import chart_files
from quota_translator.core.crd import crd
from quota_translator.core.names import GROUP
from quota_translator.settings import Settings, default_text, flag

HERE = Path(__file__).resolve().parent.parent
CRD = HERE / "manifests" / f"crd-acceleratorquotas.{GROUP}.yaml"
API = HERE / "docs" / "api.md"
OPTIONS = HERE / "docs" / "options.md"


def generated() -> dict[Path, str]:
    text = "# Generated from the models by `make manifests`; do not edit.\n"
    manifest = yaml.safe_dump(crd(), sort_keys=False, width=100, allow_unicode=True)
    return {CRD: text + manifest, API: _api(), OPTIONS: _options(), **chart_files()}


def _api() -> str:
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [
        "# The API, field by field",
        "",
        "Generated from the models by `make manifests`. `AcceleratorQuota`, short name `aq`, group",
        f"`{GROUP}`, version `v1beta1`, cluster-scoped.",
        "",
    ]
    for part in ("spec", "status"):
        lines += [f"## {part}", "", "| field | type | meaning |", "| --- | --- | --- |"]
        lines += list(_rows(schema["properties"][part], part))
        lines.append("")
    lines += ["## Rules that the API server enforces", ""]
    lines += [f"- {rule}" for rule in sorted(set(_rules(schema)))]
    return "\n".join(lines) + "\n"


def _rows(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        kind = _type(field) + (", required" if name in required else "")
        yield f"| `{here}` | {kind} | {field.get('description', '')} |"
        yield from _rows(field, here)
        yield from _rows(field.get("items", {}), f"{here}[]")


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    kind = field.get("format") or field.get("type", "")
    if "enum" in field:
        kind = " \\| ".join(f"`{value}`" for value in field["enum"])
    bound = field.get("maxItems")
    return f"{kind}, at most {bound}" if bound else str(kind)


def _rules(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for rule in schema.get("x-kubernetes-validations", []):
            yield rule["message"]
        for inner in schema.values():
            yield from _rules(inner)


def _options() -> str:
    lines = [
        "# Options of `quota-translator run`",
        "",
        "Generated from the settings by `make manifests`. A flag beats the environment",
        "(`QUOTA_TRANSLATOR_` and the name in capitals), which beats the file given by `--config`.",
        "The same setting three times:",
        "",
        "```",
        "--capacity-hysteresis-percent 20",
        "QUOTA_TRANSLATOR_CAPACITY_HYSTERESIS_PERCENT=20",
        "capacity: {hysteresisPercent: 20}",
        "```",
        "",
        "Durations have a unit (`90s`, `5m`, `1h30m`, `2d`); only 0 needs none. `run` also has",
        "`--config FILE`, and `--local DIR`, `--output DIR` and `--once`",
        "([local-mode.md](local-mode.md)).",
        "",
        "| flag | default | meaning |",
        "| --- | --- | --- |",
    ]
    for name, field in Settings.model_fields.items():
        default = default_text(name)
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{flag(name)}` | {shown} | {field.description} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    stale = []
    for path, text in generated().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(HERE))
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(HERE)}")
    if "--check" in arguments and stale:
        names = ", ".join(str(path) for path in stale)
        print(f"not up to date with the models: {names}; run make manifests", file=sys.stderr)
        return 1
    if not stale:
        print("==> generated files are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
