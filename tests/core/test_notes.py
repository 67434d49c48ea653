"""Of several reasons one is shown, in the order that is documented, and every one is explained."""

import itertools
from pathlib import Path

import pytest

from quota_translator.core.notes import PRECEDENCE, Note, foremost
from quota_translator.core.verdict import RANKS

ORDER = (
    "Frozen",
    "ObjectConflict",
    "KueueUnavailable",
    "MaterializationFailed",
    "ParentNotMaterialized",
    "WaitingForShrink",
    "FlavorMissing",
    "FlavorTerminating",
    "QueueInactive",
    "DriftContested",
    "Draining",
    "Progressing",
)
CONDITIONS = (
    "Oversubscribed",
    "AmbiguousFlavor",
    "EnvelopeOverdrawn",
    "ForeignMember",
    "UsageDiffers",
)
PAGE = Path(__file__).parents[2] / "docs" / "conditions.md"


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(ORDER)))
def test_of_two_reasons_the_earlier_is_shown(first: str, second: str) -> None:
    notes = [Note("a", second, "b"), Note("a", first, "d"), Note("a", first, "c")]
    assert foremost(notes) == foremost(reversed(notes)) == Note("a", first, "c; d")


def test_no_note_is_no_reason_and_no_reason_is_left_out() -> None:
    assert foremost(()) is None
    assert set(PRECEDENCE) == set(ORDER)


@pytest.mark.parametrize("reason", [*RANKS, *PRECEDENCE, *CONDITIONS])
def test_every_reason_and_condition_is_documented_with_a_remedy(reason: str) -> None:
    conditions = PAGE.read_text().partition("\n## Events")[0]
    rows = [line for line in conditions.splitlines() if line.startswith(f"| `{reason}` |")]
    assert len(rows) == 1
    remedy = rows[0].rstrip(" |").rpartition("| ")[2]
    assert len(remedy) >= 4
