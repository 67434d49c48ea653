"""The rules of a node by itself: its name, its fields and its budgets."""

import pytest

from quota_translator.core.check import Verdict
from quota_translator.core.reading import read_quota
from quota_translator.core.world import FieldFault, QuotaNode
from tests.core.build import A100, FLAVORS, identities, judged, node, root, rows, team


@pytest.mark.parametrize(
    ("name", "word"),
    [
        pytest.param("n" * 63, "", id="63 characters fit"),
        pytest.param("team.alpha", "", id="a dot is legal in both"),
        pytest.param("restore", "", id="only the ending is reserved"),
        pytest.param("n" * 64, "at most 63", id="64 are one too many"),
        pytest.param("Team", "lowercase", id="capitals"),
        pytest.param("team_a", "lowercase", id="an underscore"),
        pytest.param("team-", "lowercase", id="a dash at the end"),
        pytest.param("a..b", "lowercase", id="an empty part"),
        pytest.param("", "lowercase", id="no name"),
        pytest.param("default", "without a queue name", id="the name that captures every job"),
        pytest.param("ml.rest", "reserved", id="an ending of ours"),
        pytest.param("ml.intake", "reserved", id="another"),
        pytest.param("ml.m-7", "reserved", id="a part of ours"),
    ],
)
@pytest.mark.case("A-21", "FC-E05", "FC-E07")
def test_names(name: str, word: str) -> None:
    verdict = judged(root(), team(name, gpu="1"))
    if not word:
        assert verdict == Verdict()
        return
    assert [v.reason for v in verdict.violations] == ["NameInvalid"]
    assert word in verdict.violations[0].message
    if "lowercase" not in word:  # which says itself what to write
        assert verdict.violations[0].message.endswith(("choose a shorter one", "another name"))
    assert verdict.violations[0].field == "metadata.name"


@pytest.mark.case("A-21", "FC-E07")
def test_a_second_root_is_a_duplicate_and_freezes_everything() -> None:
    verdict = judged(root(gpu="8"), team("root", parent="ml", gpu="8"), node("ml"))
    assert ("root", "DuplicateNode", "root") in identities(verdict)
    assert verdict.frozen.keys() == {"root", "ml"}


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        pytest.param("gpu a100 8", "", "", id="a share"),
        pytest.param("gpu a100 0", "", "", id="none at all"),
        pytest.param("gpu a100 8 +0 -8", "", "", id="limits at their edges"),
        pytest.param("gpu a100 -0", "", "", id="a negative zero is zero"),
        pytest.param("gpu a100 -5", "nominal", "-5", id="a negative share"),
        pytest.param("gpu a100 8 +-1", "borrowingLimit", "-1", id="borrowing less than nothing"),
        pytest.param("gpu a100 8 --1", "lendingLimit", "-1", id="lending less than nothing"),
        pytest.param("gpu a100 8 -12", "lendingLimit", "is 12 and nominal is 8", id="lending more"),
        pytest.param("gpu a100 0.5", "nominal", "whole units", id="half a device"),
        pytest.param("gpu a100 500m", "nominal", "whole units", id="half a device in milli"),
        pytest.param("gpu a100 1500m", "nominal", "whole units", id="one and a half"),
        pytest.param("gpu a100 3000m", "", "", id="three, spelled in milli"),
        pytest.param("gpu a100 1Ki", "", "", id="1024 devices"),
        pytest.param("gpu a100 8.0", "", "", id="eight with a point"),
        pytest.param("cpu a100 1500m", "", "", id="half a core is fine"),
        pytest.param("memory a100 0.5", "", "", id="memory is no device"),
        pytest.param("gpu a100 1e15", "", "", id="at the maximum"),
        pytest.param("gpu a100 1E3", "", "", id="an exponent, not an exa"),
        pytest.param(
            "gpu a100 1E", "nominal", "is 1000000000000000000, above", id="far above the maximum"
        ),
        pytest.param("gpu a100 4E", "nominal", "is 4000000000000000000, above", id="four exas"),
        pytest.param("cpu a100 1000000000000000.1", "nominal", "above", id="just above it"),
    ],
)
@pytest.mark.case("A-19", "FC-D02", "FC-D04", "FC-F04")
def test_amounts(text: str, field: str, words: str) -> None:
    verdict = judged(root(), team("x", text))
    if not field:
        assert verdict == Verdict()
        return
    (only,) = verdict.violations
    assert only.reason == "BudgetInvalid"
    assert only.field == f"spec.budgets[0].{field}"
    assert only.subject.endswith(f": {field}")
    assert words in only.message


@pytest.mark.case("FC-D07")
def test_every_budget_is_judged_whatever_its_position() -> None:
    verdict = judged(root(), team("x", "gpu a100 8", "gpu h100 4 +-1", "gpu l4 -5 --0"))
    assert [(v.field, v.reason) for v in verdict.violations] == [
        ("spec.budgets[1].borrowingLimit", "BudgetInvalid"),
        ("spec.budgets[2].nominal", "BudgetInvalid"),
    ]


@pytest.mark.parametrize(
    ("texts", "accepted"),
    [
        pytest.param(["gpu a100 16 -12"], True, id="before"),
        pytest.param(["gpu a100 8 -8"], True, id="both lowered in one edit"),
        pytest.param(["gpu a100 8"], True, id="the limit dropped"),
        pytest.param(["gpu a100 8 -12"], False, id="only the share lowered"),
    ],
)
@pytest.mark.case("FC-F05")
def test_a_share_never_lends_more_than_it_has(texts: list[str], accepted: bool) -> None:
    assert (judged(root(), team("x", *texts)).violations == ()) is accepted


@pytest.mark.parametrize(
    ("bad", "subject", "field"),
    [
        pytest.param(
            team("x", "gpu a100 8", "gpu a100 4"), A100, "spec.budgets[1]", id="a pair twice"
        ),
        pytest.param(
            team("x", *(f"gpu f{i} 1" for i in range(17))),
            "spec.budgets",
            "spec.budgets",
            id="17 budgets",
        ),
        pytest.param(
            team("x", "gpu quota-translator-cover 1"),
            "nvidia.com/gpu on quota-translator-cover: resourceFlavor",
            "spec.budgets[0].resourceFlavor",
            id="the controller's own flavor",
        ),
        pytest.param(
            team("x", "gpu A100 1"),
            "nvidia.com/gpu on A100: resourceFlavor",
            "spec.budgets[0].resourceFlavor",
            id="a flavor that cannot be",
        ),
        pytest.param(
            team("x", "nvidia.com/ a100 1"),
            "nvidia.com/ on a100: resourceName",
            "spec.budgets[0].resourceName",
            id="a resource that cannot be",
        ),
    ],
)
def test_pairs(bad: QuotaNode, subject: str, field: str) -> None:
    (only,) = judged(root(), bad).violations
    assert (only.reason, only.subject, only.field) == ("BudgetInvalid", subject, field)


@pytest.mark.parametrize(
    ("nominal", "word"),
    [
        pytest.param(8, "", id="a bare integer"),
        pytest.param("1e3", "", id="text with an exponent is a quantity"),
        pytest.param(8.0, "8.0", id="a fraction of JSON"),
        pytest.param(True, "True", id="what YAML makes of yes"),
        pytest.param("eight", "eight", id="a word"),
        pytest.param(None, "required", id="nothing"),
    ],
)
@pytest.mark.case("A-19", "FC-D05")
def test_what_could_not_be_read_is_one_violation_with_its_path(nominal: object, word: str) -> None:
    entry = {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "nominal": nominal}
    spec = {
        "role": "ClusterQueue",
        "parentRef": {"name": "root"},
        "budgets": [entry | {"lendingLimit": 0}],
    }
    read = read_quota({"metadata": {"name": "x"}, "spec": spec}, "a.yaml:3")
    verdict = judged(root(), read, capacity=rows(gpu=2000), flavors=FLAVORS)
    if not word:
        assert verdict == Verdict()
        return
    (only,) = verdict.violations
    assert only.identity == ("x", "BudgetInvalid", f"{A100}: nominal")
    assert (only.field, only.source) == ("spec.budgets[0].nominal", "a.yaml:3")
    assert only.message.startswith("spec.budgets[0].nominal: ")
    assert word in only.message


def test_16_budgets_are_taken() -> None:
    assert judged(root(), team("x", *(f"gpu f{i} 1" for i in range(16)))) == Verdict()


def test_an_unreadable_share_is_not_compared_with_its_lending_limit() -> None:
    bad = read_quota(
        {
            "metadata": {"name": "x"},
            "spec": {
                "role": "ClusterQueue",
                "parentRef": {"name": "root"},
                "budgets": [
                    {
                        "resourceName": "nvidia.com/gpu",
                        "resourceFlavor": "a100",
                        "nominal": "eight",
                        "lendingLimit": 4,
                    }
                ],
            },
        }
    )
    assert len(judged(root(), bad).violations) == 1


def test_faults_outside_budgets_are_violations_too() -> None:
    def read(spec: dict[str, object], name: str = "x") -> QuotaNode:
        return read_quota({"metadata": {"name": name}, "spec": spec})

    lost = judged(root(), read({"role": "Cohort", "parentRef": {"name": 7}}))
    assert identities(lost) == [("x", "ParentMissing", "root")]
    assert lost.violations[0].message == "spec.parentRef.name: 7 is not the name of a node"
    odd = read({"role": "ClusterQueue", "parentRef": {"name": "root"}, "budgets": "many"})
    assert identities(judged(root(), odd)) == [("x", "BudgetInvalid", "spec.budgets")]
    top = judged(read({"role": "Cohort", "parentRef": {"name": 7}}, "root"))
    assert identities(top) == [("root", "NodeKindInvalid", "spec.parentRef.name")]
    tier = node("x", faults=(FieldFault("spec.priorityTier", "is not text"),))
    named = node("y", faults=(FieldFault("metadata.name", "is not text"),))
    assert identities(judged(root(), tier, named)) == [
        ("x", "NodeKindInvalid", "spec.priorityTier"),
        ("y", "NameInvalid", "metadata.name"),
    ]
