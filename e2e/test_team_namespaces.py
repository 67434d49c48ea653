"""Which namespaces may submit to a team, as they come, change their labels, and go."""

from __future__ import annotations

from typing import Any

import pytest

from e2e import trees
from e2e.controller import QUOTAS, running, wait_seconds
from e2e.controlplane.cluster import ControlPlane
from e2e.trees import FAST, budget, job, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
LABEL = "example.com/team"
ENROLLED = "example.com/gpu"
NAMESPACE = "late"
BY_LABEL = (*FAST, "--materialize-namespace-selector", f"{ENROLLED}=true")


def of_team(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {LABEL: name}}}


def place(cp: ControlPlane, owner: str = "nobody") -> None:
    """An enrolled namespace of this team, and the account that its pods need."""
    document = trees.namespace(NAMESPACE)
    document["metadata"]["labels"] = {ENROLLED: "true", LABEL: owner}
    trees.put(cp, document)
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    eventually(lambda: cp.api.find(account), what="the namespace's service account")


def job_here(name: str, queue: str, gpus: int) -> dict[str, Any]:
    document = job(name, queue, gpus)
    document["metadata"]["namespace"] = NAMESPACE
    return document


def wait_queues(cp: ControlPlane, *expected: str) -> None:
    def there() -> bool:
        found = {name for name in trees.names(cp, "localqueues") if name.startswith(NAMESPACE)}
        assert found == {f"{NAMESPACE}/{name}" for name in expected}, found
        return True

    eventually(there, 20, f"the queues of {NAMESPACE} to be {expected}")


@pytest.mark.case("FC-I07")
def test_queues_follow_a_namespace_that_comes_late_and_changes_its_team(
    clean: ControlPlane,
) -> None:
    """Its work, 1 running and 2 waiting, is not lost, and its old queue goes when it is empty."""
    cp = clean
    trees.lab(cp, 8)
    alpha, beta = (team(name, budget(4), parent="root") for name in ("alpha", "beta"))
    alpha["spec"] |= of_team("alpha")
    beta["spec"] |= of_team("beta")
    with running(cp, *BY_LABEL, namespaces=""):
        trees.put(cp, alpha, beta)
        trees.wait_sound(cp, "alpha", "beta")
        place(cp, "alpha")
        wait_queues(cp, "alpha")
        trees.put(cp, job_here("one", "alpha", 4))
        trees.wait_admitted(cp, "one")
        trees.put(cp, job_here("two", "alpha", 4), job_here("three", "alpha", 4))
        trees.wait_tried(cp, "two")

        cp.api.merge(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {LABEL: "beta"}}})
        wait_queues(cp, "alpha", "beta")
        trees.put(cp, job_here("new", "beta", 4))
        trees.wait_admitted(cp, "new")
        assert trees.admitted(cp) == {"one", "new"}, "what runs goes on"
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        cp.api.delete(f"{jobs}/one", propagationPolicy="Background")
        wait_seconds(2)
        assert trees.admitted(cp) == {"new"}, "alpha's queue takes nothing more from here"
        wait_queues(cp, "alpha", "beta")
        for name in ("two", "three"):
            cp.api.delete(f"{jobs}/{name}", propagationPolicy="Background")
        wait_queues(cp, "beta")
        assert trees.admitted(cp) == {"new"}


def test_a_team_names_its_namespaces_and_is_told_of_those_that_are_not_enrolled(
    clean: ControlPlane,
) -> None:
    cp = clean
    trees.lab(cp, 8)
    mine = team("alpha", budget(4), parent="root")
    mine["spec"]["namespaces"] = [NAMESPACE, "kube-public"]
    with running(cp, *BY_LABEL, namespaces=""):
        trees.put(cp, mine)
        trees.wait_sound(cp, "alpha")
        message = trees.condition(cp, "alpha", "Materialized")["message"]
        assert f"not enrolled, or not there: kube-public, {NAMESPACE}" in message
        place(cp)
        wait_queues(cp, "alpha")

        def only_one() -> bool:
            found = trees.condition(cp, "alpha", "Materialized")["message"]
            return "not there: kube-public;" in found

        eventually(only_one, 20, "the namespace to be told no more")
        cp.api.merge(f"{QUOTAS}/alpha", {"spec": {"namespaces": ["kube-public"]}})
        wait_queues(cp)
