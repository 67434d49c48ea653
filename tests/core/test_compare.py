"""Comparing what is wanted with what is live: what is said where the latter cannot be known."""

import pytest

from quota_translator.core.compare import compare
from quota_translator.core.names import COHORT, KINDS, Key
from quota_translator.core.notes import KUEUE_UNAVAILABLE, Note
from quota_translator.core.world import Desired, Facts, World

ML = Desired(Key(COHORT, "", "ml"), "ml", frozenset({"ml"}), {})
MISSING = "Kueue's Cohort objects are not served as kueue.x-k8s.io/v1beta2"
MEND = "(install Kueue, or a newer one)"
WHY_UNKNOWN = [
    ("nobody asked yet", Facts(), "Kueue's Cohort objects are not read yet"),
    ("served but not read", Facts(frozenset(KINDS)), "Kueue's Cohort objects are not read yet"),
    ("not installed", Facts(frozenset()), f"{MISSING} {MEND}"),
    (
        "too old",
        Facts(frozenset(), ("v1alpha1", "v1beta1")),
        f"{MISSING}, only as v1alpha1, v1beta1 {MEND}",
    ),
    ("in part", Facts(frozenset(KINDS) - {COHORT}, ("v1beta2", "v1beta1")), f"{MISSING} {MEND}"),
]


@pytest.mark.parametrize(
    ("facts", "told"), [entry[1:] for entry in WHY_UNKNOWN], ids=[e[0] for e in WHY_UNKNOWN]
)
def test_what_is_missing_of_kueue_is_told_apart_from_what_is_only_late(
    facts: Facts, told: str
) -> None:
    world = World(quotas=(), known=frozenset(KINDS) - {COHORT}, facts=facts)
    found = compare({ML.key: ML}, frozenset(), world, "quota-translator")
    text = f"{told}: no Cohort is written or deleted"
    assert found.missing == {}
    assert found.notes == {Note("ml", KUEUE_UNAVAILABLE, text)}
