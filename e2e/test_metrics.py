"""The metrics of a controller at work: guarded, scraped by a real Prometheus, true to the tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import trees
from e2e.controller import QUOTAS, Controller, running
from e2e.controlplane import nodes
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.pod import account_token
from e2e.prometheus import Prometheus, free_port, get, scraping
from e2e.trees import FAST, budget, job, team
from e2e.waiting import eventually
from tests.prometheus import needs_prometheus

pytestmark = pytest.mark.e2e
ALL = ("ml-research", "team-alpha", "team-beta")
ACCOUNTS = "/api/v1/namespaces/ml-serving/serviceaccounts"
RBAC = "rbac.authorization.k8s.io"
READER = "tests-metrics-reader"
# Idle shares are told of from the beginning: the teams run nothing yet.
ALERTS = 'ALERTS{alertname!="QuotaTranslatorIdleShare"}'
GPUS = '{resource="nvidia.com/gpu"}'
TEAMS = '{role="ClusterQueue"}'


@pytest.fixture
def guarded(clean: ControlPlane) -> Iterator[tuple[ControlPlane, Controller, str]]:
    """The guide's tree, a controller with guarded metrics, and where these are."""
    cp = clean
    address = f"127.0.0.1:{free_port()}"
    trees.lab(cp, 8, 8, 8, 8)
    with running(
        cp, *FAST, "--metrics-secure", "true", "--metrics-bind-address", address
    ) as controller:
        trees.put(cp, *trees.guide_tree())
        trees.wait_sound(cp, *ALL)
        yield cp, controller, f"https://{address}/metrics"


def token(cp: ControlPlane, name: str) -> str:
    """Of a new account."""
    cp.api.create(ACCOUNTS, {"metadata": {"name": name}})
    return account_token(cp.api, trees.NAMESPACE, name)


def allow(cp: ControlPlane, name: str) -> None:
    """Give an account the right to get /metrics, as the documentation says."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": trees.NAMESPACE}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": READER}
    cp.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": READER},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": READER},
            "roleRef": role,
            "subjects": [subject],
        },
    )


def test_guarded_metrics_are_for_those_who_may_get_them(
    guarded: tuple[ControlPlane, Controller, str], audit: Audit
) -> None:
    cp, controller, url = guarded
    assert get(url)[0] == 401
    assert get(url, "not-a-token")[0] == 401
    reader, other = token(cp, "reader"), token(cp, "other")
    allow(cp, "reader")

    def served() -> bool:
        status, text = get(url, reader)
        assert status == 200, text
        return "quota_translator_budget_nominal{" in text

    eventually(served, 45, "the right to be known, and a denial of before to be forgotten")
    status, text = get(url, other)
    assert (status, "nonResourceURL /metrics" in text) == (403, True)
    mark = audit.mark()
    for _ in range(20):
        assert get(url, reader)[0] == 200
        assert get(url, other)[0] == 403
    reviews = [r for r in audit.since(mark) if r.resource.endswith("reviews")]
    assert len(reviews) <= 4  # answers are kept for a moment
    assert reader not in controller.log()


@needs_prometheus
@pytest.mark.case("A-90", "A-91", "FC-K01")
def test_a_real_prometheus_sees_the_tree_and_evaluates_the_rules(
    guarded: tuple[ControlPlane, Controller, str], tmp_path: Path
) -> None:
    cp, _, url = guarded
    bearer = token(cp, "prometheus")
    allow(cp, "prometheus")
    eventually(lambda: get(url, bearer)[0] == 200, 45, "the right to be known")
    scrape = {
        "scheme": "https",
        "tls_config": {"insecure_skip_verify": True},
        "authorization": {"credentials": bearer},
        "static_configs": [{"targets": [url.split("/")[2]]}],
    }
    with scraping(tmp_path, scrape) as prometheus:
        is_seen(prometheus, "up", {"": 1})
        check_rules(prometheus)
        check_sums(cp, prometheus)
        check_freeze(cp, prometheus)
        check_capacity(cp, prometheus)
        check_deletion(cp, prometheus)


def is_seen(prometheus: Prometheus, expression: str, expected: dict[str, float]) -> None:
    def seen() -> bool:
        found = prometheus.values(expression)
        assert found == expected, found
        return True

    eventually(seen, 30, expression)


def check_rules(prometheus: Prometheus) -> None:
    def evaluated() -> bool:
        rules = [r for group in prometheus.ask("rules")["groups"] for r in group["rules"]]
        assert len(rules) > 20
        assert [r["name"] for r in rules if r["health"] != "ok"] == []
        return True

    eventually(evaluated, 30, "all rules to be evaluated without an error")
    is_seen(prometheus, ALERTS, {})


def check_sums(cp: ControlPlane, prometheus: Prometheus) -> None:
    """Teams alone: on ml-research the same 8 and 4 count once more."""
    trees.put(cp, job("train", "team-alpha", 8), job("serve", "team-beta", 4))
    trees.wait_admitted(cp, "train", "serve")
    key = 'flavor="a100",plane="workload",resource="nvidia.com/gpu"'
    sums = {"nominal": 24, "admitted": 12, "reserved": 12, "borrowed": 0, "idle": 12}
    for name, value in sums.items():
        is_seen(prometheus, f"quota_translator:teams_{name}:sum", {key: value})
    is_seen(prometheus, "sum(quota_translator_budget_admitted)", {"": 24})
    is_seen(prometheus, f"sum(quota_translator_budget_limit{TEAMS})", {"": 16 + 8 + 4})


def check_freeze(cp: ControlPlane, prometheus: Prometheus) -> None:
    trees.edit(cp, "team-alpha", budget(20))
    frozen = 'alertname="QuotaTranslatorNodeFrozen",alertstate="pending",'
    reason = 'reason="ContainmentViolated",severity="warning"'
    is_seen(
        prometheus,
        'ALERTS{alertname="QuotaTranslatorNodeFrozen"}',
        {f'{frozen}quota="{name}",{reason}': 1 for name in ALL},
    )
    trees.edit(cp, "team-alpha", budget(16))
    is_seen(prometheus, ALERTS, {})


def check_capacity(cp: ControlPlane, prometheus: Prometheus) -> None:
    nodes.cordon(cp, "gpu-4")
    pair = 'flavor="a100",resource="nvidia.com/gpu"'
    for name, value in (("allocatable", 24), ("unavailable", 8), ("high_water_mark", 32)):
        is_seen(prometheus, f"quota_translator_capacity_{name}{GPUS}", {pair: value})
    states = {f'{pair},state="schedulable"': 3.0, f'{pair},state="unavailable"': 1.0}
    is_seen(prometheus, f"quota_translator_capacity_nodes{GPUS}", states)


def check_deletion(cp: ControlPlane, prometheus: Prometheus) -> None:
    """A node that is gone leaves no series of ours; what was swept is counted by why. (Alerts that
    look back over a quarter of an hour are Prometheus's own series, and stay for that long.)"""
    trees.put(cp, team("short", budget(1), parent="root"))
    trees.wait_sound(cp, "short")
    of_short = 'count({quota="short",__name__=~"quota_translator_.+"})'
    eventually(lambda: prometheus.values(of_short).get("", 0) >= 6, 30, "the series of short")
    cp.api.delete(f"{QUOTAS}/short")
    is_seen(prometheus, of_short, {})
    swept = prometheus.values("quota_translator_backend_swept_total")
    assert swept == {'trigger="finalize"': 2, 'trigger="materialize"': 0}  # a queue of each kind
    applied = 'sum by (result) (quota_translator_backend_applied_total{kind="ClusterQueue"})'
    assert prometheus.values(applied)['result="written"'] >= 3
