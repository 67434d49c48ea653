"""A tree in which everything is wrong at once: each fault is told, with where it is."""

import time
from collections import Counter
from typing import Any

import pytest

from quota_translator.core.check import Context, Verdict, check
from quota_translator.core.reading import read_quota
from quota_translator.core.tree import grow
from quota_translator.core.verdict import RANKS, Violation
from tests.core.build import FLAVORS, rows

GPU = "nvidia.com/gpu"
CHILDREN = 10_000
CONTEXT = Context(capacity=rows("gpu h100 never", gpu="32"), flavors=FLAVORS)


def row(nominal: Any, flavor: str = "a100", resource: str = GPU, **fields: Any) -> dict[str, Any]:
    return {"resourceName": resource, "resourceFlavor": flavor, "nominal": nominal} | fields


def quota(name: str, parent: str | None = "root", *budgets: Any, role: str = "Cohort") -> Any:
    spec: dict[str, Any] = {"role": role, "budgets": list(budgets)}
    if parent is not None:
        spec["parentRef"] = {"name": parent}
    return {"metadata": {"name": name}, "spec": spec}


def team(name: str, parent: str, *budgets: Any) -> Any:
    return quota(name, parent, *budgets, role="ClusterQueue")


CHAIN = [quota(f"deep-{n}", f"deep-{n - 1}" if n else "root") for n in range(50)]
WIDE = [quota("wide", "root", row(1)), *(team(f"w{n}", "wide", row(1)) for n in range(CHILDREN))]
WRONG = [
    quota("root", None),
    quota("root", "wide"),
    quota("self", "self"),
    quota("one", "other"),
    quota("other", "one"),
    team("beneath-a-loop", "one", row(1)),
    quota("dangling", "nowhere"),
    team("beneath-nothing", "dangling", row(1)),
    team("Grün-Größe", "root", row(1)),
    team("n" * 300, "root", row(1)),
    team("", "root", row(1)),
    team("twice", "root", row(1), row(2)),
    team("negative", "root", row(-1)),
    team("garbage", "root", row("8x")),
    team("endless", "root", row("1e99999")),
    team("absent", "root", {"resourceName": GPU, "resourceFlavor": "a100"}),
    team("none", "root"),
    team("fraction", "root", row("0.5")),
    team("more-than-there-is", "root", row("1000000000000000000")),
    team("never", "root", row(1, "h100")),
    team("flavors", "root", *(row(1, f"f{n}") for n in range(65))),
    team("groups", "root", *(row(1, f"f{n}", f"example.com/r{n}") for n in range(17))),
    team("child-of-a-team", "twice", row(1)),
    {"metadata": {"name": "no-spec"}},
    {"metadata": None, "spec": "text"},
    {},
]


@pytest.fixture(scope="module")
def judged() -> Verdict:
    nodes = [read_quota(raw, f"file:{n}") for n, raw in enumerate([*CHAIN, *WIDE, *WRONG])]
    started = time.process_time()
    found = check(grow(nodes), CONTEXT)
    # Generous: what is quadratic in 10,000 children takes minutes.
    assert time.process_time() - started < 20
    return found


def of(verdict: Verdict, name: str) -> list[Violation]:
    return [violation for violation in verdict.violations if violation.node == name]


@pytest.mark.case("fault 38")
@pytest.mark.parametrize(
    ("name", "reason", "field"),
    [
        ("root", "DuplicateNode", "metadata.name"),
        ("self", "ParentCycle", "spec.parentRef.name"),
        ("one", "ParentCycle", "spec.parentRef.name"),
        ("other", "ParentCycle", "spec.parentRef.name"),
        ("beneath-a-loop", "ParentCycle", "spec.parentRef.name"),
        ("beneath-nothing", "Unreachable", ""),
        ("dangling", "ParentMissing", "spec.parentRef.name"),
        ("deep-49", "DepthExceeded", "spec.parentRef.name"),
        ("Grün-Größe", "NameInvalid", "metadata.name"),
        ("n" * 300, "NameInvalid", "metadata.name"),
        ("", "NameInvalid", "metadata.name"),
        ("twice", "BudgetInvalid", "spec.budgets[1]"),
        ("negative", "BudgetInvalid", "spec.budgets[0].nominal"),
        ("garbage", "BudgetInvalid", "spec.budgets[0].nominal"),
        ("endless", "BudgetInvalid", "spec.budgets[0].nominal"),
        ("absent", "BudgetInvalid", "spec.budgets[0].nominal"),
        ("none", "NodeKindInvalid", "spec.budgets"),
        ("fraction", "BudgetInvalid", "spec.budgets[0].nominal"),
        ("more-than-there-is", "CapacityExceeded", "spec.budgets[0].nominal"),
        ("never", "CapacityExceeded", "spec.budgets[0].nominal"),
        ("flavors", "BudgetInvalid", "spec.budgets"),
        ("groups", "BudgetInvalid", "spec.budgets"),
        ("wide", "ContainmentViolated", "spec.budgets[0].nominal"),
        ("no-spec", "NodeKindInvalid", "spec.role"),
    ],
)
def test_each_fault_has_its_reason_and_its_place(
    judged: Verdict, name: str, reason: str, field: str
) -> None:
    found = of(judged, name)
    assert (reason, field) in {(violation.reason, violation.field) for violation in found}
    assert name in judged.frozen


@pytest.mark.case("fault 38")
def test_ten_thousand_children_are_summed_and_named_in_one_violation(judged: Verdict) -> None:
    told = [v for v in of(judged, "wide") if v.reason == "ContainmentViolated"]
    assert len(told) == 1
    assert "lower them by 9999" in told[0].message
    assert judged.frozen["w9999"].origin


@pytest.mark.case("fault 38")
def test_no_message_is_longer_than_a_condition_may_be(judged: Verdict) -> None:
    assert Counter(v.reason for v in judged.violations).keys() <= RANKS.keys()
    assert max(len(violation.message) for violation in judged.violations) < 2000
    assert all("\n" not in violation.message for violation in judged.violations)
