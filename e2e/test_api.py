"""The CRD and the quantities, judged by a real API server."""

from __future__ import annotations

import random
from typing import Any

import pytest

from e2e.controller import install_crd
from e2e.controlplane.api import ApiError
from e2e.controlplane.cluster import ControlPlane
from quota_translator.core.crd import crd
from quota_translator.core.quantity import Quantity

pytestmark = pytest.mark.e2e
MILLI = 10**6  # nanos
QUOTAS = "/apis/quota-translator.dev/v1beta1/acceleratorquotas"


@pytest.fixture
def quotas(clean: ControlPlane) -> ControlPlane:
    install_crd(clean)
    return clean


def quota(name: str = "team-a", **spec: Any) -> dict[str, Any]:
    whole = {"role": "ClusterQueue", "parentRef": {"name": "ml"}, "budgets": [budget()]} | spec
    return {
        "apiVersion": "quota-translator.dev/v1beta1",
        "kind": "AcceleratorQuota",
        "metadata": {"name": name},
        "spec": {field: value for field, value in whole.items() if value is not None},
    }


def budget(**fields: Any) -> dict[str, Any]:
    return {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "nominal": "8"} | fields


def root(**spec: Any) -> dict[str, Any]:
    return quota("root", role="Cohort", parentRef=None, budgets=None, **spec)


def expected(quantity: str | int) -> dict[str, Any]:
    return {"resourceName": "nvidia.com/gpu", "resourceFlavor": "a100", "quantity": quantity}


def group(name: str = "ml", *budgets: dict[str, Any], **spec: Any) -> dict[str, Any]:
    whole = {"role": "Cohort", "parentRef": {"name": "root"}, "budgets": list(budgets)} | spec
    return quota(name, **whole)


def answer(cp: ControlPlane, document: dict[str, Any]) -> str:
    """The server's refusal, or "" when it takes the object (which is not stored)."""
    try:
        cp.api.create(f"{QUOTAS}?dryRun=All&fieldValidation=Strict", document)
    except ApiError as error:
        return f"{error.code} {error.message}"
    return ""


NOT_TAKEN = [
    ("A-21 a name of 64", quota("a" * 64), "at most 63 characters"),
    ("FC-E07 the name default", quota("default"), "the name default is reserved"),
    ("a reserved ending", quota("team.rest"), "are reserved"),
    ("a reserved ending of intakes", quota("team.intake"), "are reserved"),
    ("a reserved infix", quota("a.m-b"), "are reserved"),
    ("a root with a parent", quota("root", role="Cohort", budgets=[]), "root is a Cohort without"),
    (
        "a root that is a team",
        quota("root", parentRef=None),
        "root is a Cohort without a parent",
    ),
    ("A-3 a second root", quota("other", parentRef=None), "only the reserved root may omit"),
    ("A-4 its own parent", quota("team-a", parentRef={"name": "team-a"}), "its own parent"),
    ("an unknown role", quota(role="Team"), "Unsupported value"),
    ("A-8 a team without budgets", quota(budgets=[]), "a ClusterQueue needs at least one budget"),
    ("a team without budgets at all", quota(budgets=None), "needs at least one budget"),
    ("A-8 a group with a tier", group(priorityTier="gold"), "neither priorityTier nor distrib"),
    (
        "a group with a distribution",
        group(distribution={"policy": "Proportional"}),
        "neither priorityTier nor distribution",
    ),
    (
        "a group's budget with a policy",
        group("ml", budget(policy="Proportional")),
        "neither policy nor perCluster",
    ),
    (
        "A-8 limits on a group that is not enforced",
        group("ml", budget(borrowingLimit="1")),
        "limits only when it is enforced",
    ),
    ("enforced on a team", quota(budgets=[budget(enforced=True)]), "enforced belongs to a Cohort"),
    (
        "limits on root",
        quota(
            "root", role="Cohort", parentRef=None, budgets=[budget(enforced=True, lendingLimit=1)]
        ),
        "root has no parent, so its budgets carry no limits",
    ),
    ("Explicit without shares", quota(budgets=[budget(policy="Explicit")]), "needs perCluster"),
    (
        "Proportional with shares",
        quota(budgets=[budget(policy="Proportional", perCluster=[{"cluster": "a", "nominal": 8}])]),
        "takes no perCluster",
    ),
    ("A-19 a negative share", quota(budgets=[budget(nominal="-5")]), "must not be negative"),
    (
        "FC-D07 a negative share in last place",
        quota(
            budgets=[
                budget(),
                budget(resourceFlavor="h100"),
                budget(resourceFlavor="l4", nominal="-5"),
            ]
        ),
        "spec.budgets[2].nominal",
    ),
    (
        "FC-D07 a negative limit",
        quota(budgets=[budget(borrowingLimit="-1")]),
        "borrowingLimit must not be negative",
    ),
    ("A-19 no quantity", quota(budgets=[budget(nominal="8x")]), "is not a Kubernetes quantity"),
    ("FC-D04 half a device", quota(budgets=[budget(nominal="0.5")]), "comes whole"),
    ("FC-D04 500m of a device", quota(budgets=[budget(nominal="500m")]), "comes whole"),
    ("FC-D04 1500m of a device", quota(budgets=[budget(nominal="1500m")]), "comes whole"),
    ("FC-D02 an exa of devices", quota(budgets=[budget(nominal="1E")]), "is above 1e15"),
    ("FC-D02 four exas", quota(budgets=[budget(nominal="4E")]), "is above 1e15"),
    (
        "FC-F04 lending more than it has",
        quota(budgets=[budget(lendingLimit="12")]),
        "lendingLimit is above nominal",
    ),
    (
        "a budget on the cover's flavor",
        quota(budgets=[budget(resourceFlavor="quota-translator-cover")]),
        "takes no budget",
    ),
    ("the same pair twice", quota(budgets=[budget(), budget()]), "Duplicate value"),
    (
        "seventeen budgets",
        quota(budgets=[budget(resourceFlavor=f"f{i}") for i in range(17)]),
        "must have at most 16 items",
    ),
    ("a JSON fraction", quota(budgets=[budget(nominal=8.5)]), "Invalid value"),
    ("a boolean", quota(budgets=[budget(nominal=True)]), "Invalid value"),
    (
        "expected capacity elsewhere than on root",
        group(expectedCapacity=[expected("8")]),
        "expectedCapacity is of the whole cluster",
    ),
    (
        "a negative expected capacity",
        root(expectedCapacity=[expected(-1)]),
        "quantity must not be negative",
    ),
    (
        "half a device expected",
        quota(
            "root", role="Cohort", parentRef=None, budgets=None, expectedCapacity=[expected("500m")]
        ),
        "comes whole",
    ),
    ("a group with namespaces", group(namespaces=["a"]), "a Cohort takes no work"),
    ("no namespaces", quota(namespaces=[]), "should have at least 1 items"),
    (
        "namespaces by name and by label",
        quota(namespaces=["a"], namespaceSelector={"matchLabels": {"team": "a"}}),
        "exclude each other",
    ),
    (
        "an expression without values",
        quota(namespaceSelector={"matchExpressions": [{"key": "team", "operator": "In"}]}),
        "In and NotIn need values",
    ),
    (
        "an expression with values that it does not take",
        quota(
            namespaceSelector={
                "matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]
            }
        ),
        "Exists and DoesNotExist take none",
    ),
    ("a group that is stopped", group(stopPolicy="Hold"), "Kueue cannot stop a Cohort"),
    ("no policy of stopping", quota(stopPolicy="Pause"), "Unsupported value"),
    ("no weight", quota(fairSharing={}), "fairSharing.weight: Required value"),
    ("a negative weight", quota(fairSharing={"weight": "-1"}), "weight is 0, or more than"),
    ("a weight of a billionth", quota(fairSharing={"weight": "1n"}), "weight is 0, or more than"),
    (
        "root against its siblings",
        root(fairSharing={"weight": "1"}),
        "root has no siblings",
    ),
    (
        "borrowing by force without taking back",
        quota(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "needs a reclaimWithinCohort other than Never",
    ),
    ("no policy of Kueue's", quota(preemption={"reclaimWithinCohort": "Always"}), "Unsupported"),
    (
        "a priority beyond 32 bits",
        group(preemption={"borrowWithinCohort": {"maxPriorityThreshold": 2**31}}),
        "should be less than or equal to 2147483647",
    ),
    ("an unknown field", quota(bugdets=[]), 'unknown field "spec.bugdets"'),
]

TAKEN = [
    ("the guide's team", quota(budgets=[budget(borrowingLimit="4")])),
    ("FC-E05 a name of 63 with a dot", quota("a" * 61 + ".b")),
    ("FC-D05 an integer", quota(budgets=[budget(nominal=8)])),
    ("FC-D04 3000m is three", quota(budgets=[budget(nominal="3000m")])),
    ("FC-D04 1Ki is 1024", quota(budgets=[budget(nominal="1Ki")])),
    ("FC-D04 8.0 is eight", quota(budgets=[budget(nominal="8.0")])),
    ("FC-D02 1e3 is a thousand", quota(budgets=[budget(nominal="1e3")])),
    ("FC-D07 minus zero", quota(budgets=[budget(lendingLimit="-0")])),
    ("half a cpu", quota(budgets=[budget(resourceName="cpu", nominal="500m")])),
    ("a group's bare budget", group("ml", budget(nominal="24"))),
    (
        "A-74 an enforced group with limits",
        group("ml", budget(enforced=True, borrowingLimit="2", lendingLimit="1")),
    ),
    ("root with a budget", quota("root", role="Cohort", parentRef=None)),
    (
        "a pool that is autoscaled",
        quota(
            "root", role="Cohort", parentRef=None, budgets=None, expectedCapacity=[expected("32")]
        ),
    ),
    ("namespaces of a team's own", quota(namespaces=["ml-serving", "ml-batch"])),
    (
        "namespaces by label",
        quota(
            namespaceSelector={
                "matchLabels": {"example.com/team": "a"},
                "matchExpressions": [
                    {"key": "stage", "operator": "In", "values": ["dev", "prod"]},
                    {"key": "old", "operator": "DoesNotExist"},
                ],
            }
        ),
    ),
    ("a team that holds", quota(stopPolicy="Hold", fairSharing={"weight": "1500m"})),
    ("a weight of nothing", group(fairSharing={"weight": 0})),
    (
        "all of preemption, on root",
        root(
            preemption={
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerOrNewerEqualPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -1},
            },
        ),
    ),
    ("lending all", quota(budgets=[budget(lendingLimit="8")])),
    (
        "fleet fields without effect",
        quota(
            priorityTier="gold",
            distribution={"policy": "Explicit"},
            budgets=[budget(perCluster=[{"cluster": "east", "nominal": "8"}])],
        ),
    ),
]


@pytest.mark.case("A-3", "A-4", "A-8", "A-19", "A-21", "FC-D02", "FC-D04", "FC-D07", "fault 27")
@pytest.mark.case("FC-E05", "FC-E07", "FC-F04", "FC-D05")
def test_the_api_server_refuses_what_breaks_a_rule(quotas: ControlPlane) -> None:
    seen = {name: answer(quotas, document) for name, document, _ in NOT_TAKEN}
    wrong = {name: seen[name] for name, _, says in NOT_TAKEN if says not in seen[name]}
    assert wrong == {}


@pytest.mark.case("A-74", "FC-D02", "FC-D04", "FC-D05", "FC-D07", "FC-E05")
def test_the_api_server_takes_what_is_sound(quotas: ControlPlane) -> None:
    refused = {name: text for name, document in TAKEN if (text := answer(quotas, document))}
    assert refused == {}


def test_every_rule_of_the_crd_has_a_case_that_it_refuses() -> None:
    """A rule that nothing here trips could be wrong for years."""
    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    rules = [
        *schema["x-kubernetes-validations"],
        *spec["x-kubernetes-validations"],
        *spec["properties"]["budgets"]["items"]["x-kubernetes-validations"],
    ]
    said = [says for _, _, says in NOT_TAKEN]
    untried = [
        rule["message"]
        for rule in rules
        if "oldSelf" not in rule["rule"]
        and not any(s in rule["message"] for s in said)
        # One table of rules serves three fields: one field stands for all.
        and not rule.get("fieldPath", "").endswith("Limit")
    ]
    assert untried == []


def test_a_role_cannot_be_changed(quotas: ControlPlane) -> None:
    quotas.api.create(QUOTAS, group("ml"))
    with pytest.raises(ApiError, match="role cannot be changed"):
        quotas.api.merge(f"{QUOTAS}/ml", {"spec": {"role": "ClusterQueue", "budgets": [budget()]}})


@pytest.mark.case("FC-F05")
def test_a_share_and_its_lending_limit_shrink_in_one_edit(quotas: ControlPlane) -> None:
    def spec(**fields: Any) -> dict[str, Any]:
        return {"spec": {"budgets": [budget(**fields)]}}

    quotas.api.create(QUOTAS, quota(budgets=[budget(nominal="16", lendingLimit="12")]))
    quotas.api.merge(f"{QUOTAS}/team-a", spec(nominal="8", lendingLimit="8"))
    quotas.api.merge(f"{QUOTAS}/team-a", spec(nominal="16", lendingLimit="12"))
    quotas.api.merge(f"{QUOTAS}/team-a", spec(nominal="8"))
    with pytest.raises(ApiError, match="lendingLimit is above nominal"):
        quotas.api.merge(f"{QUOTAS}/team-a", spec(nominal="8", lendingLimit="12"))


def test_a_tree_written_for_ome_applies_after_changing_the_api_version(
    quotas: ControlPlane,
) -> None:
    """Every spec field of OME's later generation is there, with the same meaning and bounds."""
    document = quota(
        priorityTier="tier-1",
        distribution={"policy": "Proportional"},
        budgets=[
            budget(nominal=16, borrowingLimit="4", lendingLimit="8"),
            budget(
                resourceFlavor="h100",
                policy="Explicit",
                perCluster=[{"cluster": "east", "nominal": "4"}],
            ),
        ],
    )
    assert answer(quotas, document) == ""


def texts(count: int) -> list[str]:
    """Quantities of every form, the same ones in each run."""
    source = random.Random(20261130)
    suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    found = ["0", "1000", "1e3", "1E3", "0.5", ".5", "8.", "08", "+8", "16M", "16Pi", "1024Mi"]
    while len(found) < count:
        digits = str(source.randrange(0, 10 ** source.randrange(1, 13)))
        if source.random() < 0.4:
            digits += "." + str(source.randrange(0, 10 ** source.randrange(1, 6)))
        if source.random() < 0.2:
            found.append(f"{digits}{source.choice('eE')}{source.randrange(-6, 10)}")
        else:
            found.append(digits + source.choice(suffixes))
    return found


@pytest.mark.case("FC-D01", "FC-D02", "fault 27")
def test_quantities_are_read_as_the_api_server_reads_them(clean: ControlPlane) -> None:
    """Written into a ResourceQuota and read back: equal value; our own text comes back unchanged.

    The server rounds amounts in a ResourceQuota up to thousandths, so a finer one is expected so,
    and its own text is not asked for.
    """
    given = texts(400)
    path = "/api/v1/namespaces/default/resourcequotas"
    quota_object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "fuzz"}}
    clean.api.create(path, quota_object)
    wrong: dict[str, str] = {}
    for start in range(0, len(given), 2):
        pair = dict(zip(("requests.cpu", "requests.memory"), given[start : start + 2], strict=True))
        stored = _stored(clean, path, pair)
        canonical = {name: Quantity.parse(text).canonical() for name, text in pair.items()}
        again = _stored(clean, path, canonical)
        for name, text in pair.items():
            ours = Quantity.parse(text)
            kept = Quantity(-(-ours.nanos // MILLI) * MILLI)
            if Quantity.parse(stored[name]) != kept:
                wrong[text] = f"the server keeps {stored[name]}, we read {ours}"
            elif ours == kept and again[name] != canonical[name]:
                wrong[text] = f"our {canonical[name]} comes back as {again[name]}"
    clean.api.delete(f"{path}/fuzz")
    assert wrong == {}


def _stored(cp: ControlPlane, path: str, hard: dict[str, str]) -> dict[str, str]:
    cp.api.merge(f"{path}/fuzz", {"spec": {"hard": hard}})
    read: dict[str, str] = cp.api.get(f"{path}/fuzz")["spec"]["hard"]
    return read
