"""What the documents show is what the program prints; what they list is all that there is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from quota_translator import errors, webhook
from quota_translator.core import admission, advice, happenings
from quota_translator.core.conditions import (
    AMBIGUOUS_FLAVOR,
    ENVELOPE_OVERDRAWN,
    FOREIGN_MEMBER,
    ORPHANS_HELD,
    OVERSUBSCRIBED,
    TERMINATING,
    USAGE_DIFFERS,
)
from quota_translator.core.happenings import Happening
from quota_translator.core.notes import DRAINING, PRECEDENCE
from quota_translator.core.options import WARNINGS
from quota_translator.core.results import Outcome
from quota_translator.core.verdict import PARENT_MISSING, RANKS
from quota_translator.families import PREFIX, SECTIONS, Family
from quota_translator.local.files import MAX_BYTES
from quota_translator.local.yaml_text import MAX_ALIASED, MAX_DEPTH
from tests.test_cli import TOP, call

DOCUMENTS = sorted(
    [*TOP.glob("*.md"), *(TOP / "docs").glob("*.md"), *(TOP / "examples").glob("*/README.md")]
)


def text(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def anchors(document: Path) -> set[str]:
    heads = [line for line in document.read_text("utf-8").splitlines() if line.startswith("#")]
    words = [re.sub(r"[^\w -]", "", head.lstrip("# ").lower()) for head in heads]
    return {word.replace(" ", "-") for word in words}


def test_the_readme_shows_what_make_run_prints(tmp_path: Path) -> None:
    done = call("run", "--local", "examples/guide", "--output", str(tmp_path), "--once")
    assert done.stdout.replace(str(tmp_path), "out/guide") in text("README.md")


def test_the_plan_of_the_guide_is_shown_as_it_is_printed() -> None:
    assert call("plan", "examples/guide").stdout in text("docs/local-mode.md")


def test_the_violation_that_is_shown_is_the_one_that_is_printed(tmp_path: Path) -> None:
    for file in (TOP / "examples/guide").glob("*.yaml"):
        edited = file.read_text().replace('nominal: "16"', 'nominal: "20"')
        (tmp_path / file.name).write_text(edited)
    (line,) = (
        line.replace(str(tmp_path), "examples/guide")
        for line in call("plan", str(tmp_path)).stdout.splitlines()
        if "ContainmentViolated: " in line
    )
    assert line in text("README.md")
    shown = call("plan", str(tmp_path), "-o", "json").stdout.replace(
        str(tmp_path), "examples/guide"
    )
    found = re.search(r'  "violations": \[.*?\n  \],\n', shown, re.DOTALL)
    assert found is not None
    assert found[0] in text("docs/local-mode.md")


CONDITIONS = [
    ENVELOPE_OVERDRAWN,
    FOREIGN_MEMBER,
    OVERSUBSCRIBED,
    AMBIGUOUS_FLAVOR,
    ORPHANS_HELD,
    USAGE_DIFFERS,
    TERMINATING,
]


@pytest.mark.parametrize(
    ("after", "reasons"),
    [
        ("## Ready is False", list(RANKS)),
        ("## Materialized is False", list(PRECEDENCE)),
        ("## Conditions that are there only", CONDITIONS),
    ],
)
def test_every_reason_is_documented_in_the_order_of_precedence(
    after: str, reasons: list[str]
) -> None:
    section = text("docs/conditions.md").partition(after)[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == reasons


def arguments(module: ModuleType, call: str, place: int) -> Iterator[ast.expr]:
    """What a module's source gives as this argument wherever it calls this function."""
    for found in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
        if isinstance(found, ast.Call) and ast.unparse(found.func) == call:
            yield from found.args[place : place + 1]


def words(module: ModuleType, call: str, place: int) -> set[str]:
    """Of these arguments the texts: written there, or by the name of a constant. The others are
    given as they are written."""
    found = set()
    for one in arguments(module, call, place):
        text = ast.unparse(one)
        found.add(str(one.value if isinstance(one, ast.Constant) else vars(module).get(text, text)))
    return found


def test_every_event_is_documented_with_its_type() -> None:
    section = text("docs/conditions.md").partition("\n## Events\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE))
    # What is not a constant there is the reason of a condition, or its type (`kind`).
    assert words(happenings, "Happening", 2) == {"reason"}
    assert words(happenings, "_of", 1) - {"reason", "kind"} == set(rows)
    assert rows == {reason: type_of(reason) for reason in rows}
    others = {*PRECEDENCE, *CONDITIONS} - {"Frozen", "Progressing"}
    assert {reason for reason in others if type_of(reason) == "Normal"} == {DRAINING, TERMINATING}


def type_of(reason: str) -> str:
    return "Warning" if Happening("", "", reason, "").is_warning else "Normal"


def test_every_reason_of_the_webhook_is_documented() -> None:
    metrics = text("docs/metrics.md").partition("\n## Reasons of the webhook\n")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", metrics.partition("\n## ")[0], re.MULTILINE)
    listed = [reason for row in rows for reason in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len(set(listed))
    advised = words(advice, "Advice", 0) | words(admission, "Advice", 0)
    assert advised >= set(WARNINGS)
    others = words(admission, "Decision", 2) | words(webhook, "Decision", 2)
    others |= words(webhook, "self._observe", 2)
    others -= {PARENT_MISSING, "NodeKindInvalid", "decision.reason", "type(error).__name__"}
    assert set(listed) == advised | others | errors_of_a_list()
    for reason in advised:
        assert f"`{reason}`" in text("docs/webhook.md")


def errors_of_a_list() -> set[str]:
    """The names of all errors that listing the tree can end in."""
    of_writes_and_watches = {"NotLeading", "Silent", "Conflict", "AlreadyExists"}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    names = {kind.__name__ for kind in kinds if issubclass(kind, errors.ApiError)}
    return names - of_writes_and_watches - {"ApiError"}


def test_the_limits_of_the_input_are_documented() -> None:
    limits = " ".join(text("docs/local-mode.md").partition("Limits:")[2][:200].split())
    assert f"{MAX_BYTES // 2**20} MiB" in limits
    assert f"{MAX_DEPTH} levels" in limits
    assert f"{MAX_ALIASED:,} values" in limits


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(TOP)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        place, _, anchor = link.partition("#")
        target = document.parent / place if place else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_metric_is_documented_with_its_labels_and_meaning() -> None:
    for title, families in SECTIONS.items():
        section = text("docs/metrics.md").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert rows == [_metric_row(family) for family in families]


def test_every_result_of_a_write_is_documented() -> None:
    section = text("docs/metrics.md").partition("\n## Results of writes\n")[2].partition("\n## ")[0]
    results = set(get_args(Outcome)) - {"skipped", "unchanged"}  # these were not sent
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == results


def _metric_row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    kind = " Histogram." if family.kind == "histogram" else ""
    name = family.shown.removeprefix(f"{PREFIX}_")
    return f"| `{name}` | {labels} | {family.text}{kind} |"
