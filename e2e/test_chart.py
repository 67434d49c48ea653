"""The chart on a real API server, by a real helm with its defaults; and the controller that runs
under exactly what was rendered: its rights, its flags, its webhook by the Service's name."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.chart import ENROLLED, NAME, OWN_NAMESPACE, USER, HelmError, Release, helm, installed
from e2e.controller import QUOTAS, remove_crd
from e2e.controlplane.api import ApiError
from e2e.controlplane.audit import Audit
from e2e.controlplane.certificates import Authority
from e2e.controlplane.cluster import ControlPlane
from e2e.shapes import converge, hardware
from e2e.standin import StandIn, standin
from e2e.trees import budget, edit, guide_tree, put, team
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
CONFIGURATION = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
    "quota-translator.quota-translator.dev"
)
CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/acceleratorquotas.quota-translator.dev"
)
SECRETS = f"/api/v1/namespaces/{OWN_NAMESPACE}/secrets"
OVERRUN = "budget nvidia.com/gpu on a100 is 24 but its children total 28"


@pytest.fixture
def fresh(clean: ControlPlane) -> ControlPlane:
    """A cluster that has never seen us."""
    remove_crd(clean)
    clean.api.delete(f"/api/v1/namespaces/{OWN_NAMESPACE}")
    return clean


@pytest.fixture
def machine(fresh: ControlPlane) -> Iterator[StandIn]:
    with standin(fresh) as found:
        yield found


def denial(cp: ControlPlane) -> str:
    """What an edit that breaks the tree's rules is told; "" when it would be accepted."""
    budgets = [{**budget(20)}]
    try:
        cp.api.request(
            "PATCH",
            f"{QUOTAS}/team-alpha?dryRun=All",
            {"spec": {"budgets": budgets}},
            content_type="application/merge-patch+json",
        )
    except ApiError as error:
        return str(error)
    return ""


@contextmanager
def edits(cp: ControlPlane) -> Iterator[list[str]]:
    """Harmless edits of the tree, one after the other; gives those that failed, and why."""
    failed: list[str] = []
    count = 0
    ending = threading.Event()

    def run() -> None:
        nonlocal count
        while not ending.is_set():
            count += 1
            try:
                edit(cp, "team-beta", budget(8, count % 4))
            except ApiError as error:
                failed.append(f"{count}: {error}")
            time.sleep(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        ending.set()
        thread.join()
    assert count > 20


def refused(cp: ControlPlane, mark: int) -> list[str]:
    """What the controller was not allowed to do since."""
    return [str(record) for record in Audit(cp).since(mark, user=USER) if record.code == 403]


def test_from_install_to_uninstall_and_again(fresh: ControlPlane, machine: StandIn) -> None:
    cp, mark = fresh, Audit(fresh).mark()
    hardware(cp)
    with installed(cp, ENROLLED, machine=machine, replicas=2) as release:
        _install(cp, release)
        _upgrade(cp, release)
        _webhook_off_and_on(cp, release)
        assert refused(cp, mark) == []
        _uninstall(cp, release)
    _again(cp, machine)


def _install(cp: ControlPlane, release: Release) -> None:
    said = cp.kubectl("-n", OWN_NAMESPACE, "rollout", "status", f"deployment/{NAME}")
    assert f'deployment "{NAME}" successfully rolled out' in said
    put(cp, *guide_tree())
    converge(cp, 4)
    assert OVERRUN in eventually(lambda: denial(cp), what="the webhook to be asked")
    assert _bundle(cp)
    # Both serve the webhook, and one of them writes.
    logs = [pod.log() for pod in release.controllers]
    assert sum('"event":"leading"' in log for log in logs) == 1


def _upgrade(cp: ControlPlane, release: Release) -> None:
    """Nobody's edit fails while the pods are replaced, and helm and we do not fight."""
    before, bundle = {pod.name for pod in release.controllers}, _bundle(cp)
    with edits(cp) as failed:
        release.upgrade({**ENROLLED, "replicaCount": 2, "webhook": {"deny": ["OverMark"]}})
    assert failed == []
    assert _bundle(cp) == bundle
    assert not before & {pod.name for pod in release.controllers}
    assert "OverMark" in _arguments(cp)
    with edits(cp) as failed:
        release.rollback()
    assert failed == []
    assert "OverMark" not in _arguments(cp)
    assert _bundle(cp) == bundle
    assert OVERRUN in denial(cp)


def _webhook_off_and_on(cp: ControlPlane, release: Release) -> None:
    release.upgrade({**ENROLLED, "replicaCount": 1, "webhook": {"enabled": False}})
    assert cp.api.find(CONFIGURATION) is None
    eventually(lambda: not denial(cp), what="the API server to ask nobody")
    release.upgrade({**ENROLLED, "replicaCount": 1})
    eventually(lambda: OVERRUN in denial(cp), what="the webhook to be asked again")


def _uninstall(cp: ControlPlane, release: Release) -> None:
    said = release.uninstall()
    assert "[CustomResourceDefinition] acceleratorquotas.quota-translator.dev" in said
    assert cp.api.find(CONFIGURATION) is None
    assert {item["metadata"]["name"] for item in cp.api.items(QUOTAS)} == {
        "root",
        "ml-research",
        "team-alpha",
        "team-beta",
    }
    # The tree can be edited and Kueue goes on; what is left is what no chart made.
    eventually(lambda: not denial(cp), what="the API server to ask nobody")
    left = [item["metadata"]["name"] for item in cp.api.items(SECRETS)]
    assert left == ["quota-translator-webhook-cert"]


def _again(cp: ControlPlane, machine: StandIn) -> None:
    """The CRD that was kept is taken back; so is the tree, and Kueue's objects are as they were."""
    mark = Audit(cp).mark()
    with installed(cp, ENROLLED, machine=machine):
        converge(cp, 4)
        eventually(lambda: OVERRUN in denial(cp), what="the webhook to be asked")
        done = Audit(cp).since(mark, user=USER)
        assert [str(r) for r in done if r.is_write and r.group == "kueue.x-k8s.io"] == []
        assert [str(r) for r in done if r.code == 403] == []


def test_helm_waits_for_it_and_a_mounted_pair_is_served(
    fresh: ControlPlane, machine: StandIn
) -> None:
    """`webhook.certificates: mounted`: a Secret of ours, and a bundle that a person puts in."""
    cp = fresh
    authority = Authority()
    pair = authority.server(
        "webhook", [f"quota-translator-webhook.{OWN_NAMESPACE}.svc"], ["127.0.0.1"]
    )
    put(cp, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}})
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "our-pair"},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(text).decode() for key, text in data.items()},
    }
    cp.api.create(SECRETS, secret)
    mark = Audit(cp).mark()
    values = {"webhook": {"certificates": "mounted", "secretName": "our-pair"}}
    release = Release(cp, machine)
    release.install({**ENROLLED, **values, "name": NAME}, "--wait", "--timeout", "60s")
    try:
        assert [pod.get("/readyz")[0] for pod in release.controllers] == [200, 200]
        bundle = base64.b64encode(authority.certificate).decode()
        hooks = [
            {"name": "acceleratorquota.quota-translator.dev", "clientConfig": {"caBundle": bundle}}
        ]
        cp.api.request(
            "PATCH",
            CONFIGURATION,
            {"webhooks": hooks},
            content_type="application/strategic-merge-patch+json",
        )

        def denied() -> bool:
            try:
                cp.api.create(f"{QUOTAS}?dryRun=All", team("orphan", budget(1), parent="nobody"))
            except ApiError as error:
                return "does not resolve" in str(error)
            return False

        eventually(denied, what="the webhook to be asked")
        assert refused(cp, mark) == []
        touched = {r.resource for r in Audit(cp).since(mark, user=USER)}
        assert not touched & {"secrets", "validatingwebhookconfigurations"}
    finally:
        release.uninstall()


@pytest.mark.case("A-64")
def test_an_installation_that_only_looks_writes_nothing_to_kueue(
    fresh: ControlPlane, machine: StandIn
) -> None:
    cp, mark = fresh, Audit(fresh).mark()
    hardware(cp)
    with installed(cp, {"webhook": {"enabled": False}}, machine=machine):
        put(cp, *guide_tree())

        def ready() -> bool:
            states = [
                row["status"]
                for quota in cp.api.items(QUOTAS)
                for row in quota.get("status", {}).get("conditions", [])
                if row["type"] == "Ready"
            ]
            assert states == ["True"] * 4, states
            return True

        eventually(ready, what="the tree to be judged")
        done = Audit(cp).since(mark, user=USER)
        assert [str(r) for r in done if r.is_write and r.group == "kueue.x-k8s.io"] == []
        assert [str(r) for r in done if r.code == 403] == []


def test_a_mode_must_be_given(fresh: ControlPlane) -> None:
    with pytest.raises(HelmError) as error:
        helm(fresh, "install", NAME, "helm/quota-translator", "--namespace", OWN_NAMESPACE)
    assert (
        str(error.value).splitlines()[0].endswith('mode must be "workload" or "management", got ""')
    )


@pytest.mark.case("ome 1.14")
def test_people_read_by_their_usual_roles_and_edit_by_ours(
    fresh: ControlPlane, machine: StandIn
) -> None:
    cp = fresh
    with installed(cp, {"webhook": {"enabled": False}, **ENROLLED}, machine=machine):
        put(cp, *guide_tree())
        for role, group in (
            ("quota-translator-editor", "quota-admins"),
            ("admin", "admins"),
            ("view", "viewers"),
        ):
            _bind(cp, role, group)
        try:
            editor, viewer, admin, stranger = (
                cp.api_as(user, groups)
                for user, groups in (
                    ("ed", ["quota-admins"]),
                    ("vi", ["viewers"]),
                    ("ad", ["admins"]),
                    ("xy", []),
                )
            )
            change = {"metadata": {"labels": {"edited": "yes"}}}
            eventually(lambda: editor.merge(f"{QUOTAS}/team-beta", change), catch=ApiError)
            eventually(lambda: viewer.items(QUOTAS), catch=ApiError)
            eventually(lambda: admin.items(QUOTAS), catch=ApiError)
            for api, path in (
                (editor, f"{QUOTAS}/team-beta/status"),
                (viewer, f"{QUOTAS}/team-beta"),
                (admin, f"{QUOTAS}/team-beta"),
                (stranger, f"{QUOTAS}/team-beta"),
            ):
                with pytest.raises(ApiError) as error:
                    api.merge(path, {"status": {"summary": "mine"}, **change})
                assert error.value.code == 403
            with pytest.raises(ApiError, match="cannot list"):
                stranger.items(QUOTAS)
        finally:
            for group in ("quota-admins", "admins", "viewers"):
                cp.api.delete(f"{BINDINGS}/{group}")


BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def _bind(cp: ControlPlane, role: str, group: str) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}
    cp.api.create(
        BINDINGS,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": group},
            "roleRef": reference,
            "subjects": [subject],
        },
    )


def _bundle(cp: ControlPlane) -> str:
    found = cp.api.get(CONFIGURATION)["webhooks"][0]["clientConfig"]
    return str(found.get("caBundle", ""))


def _arguments(cp: ControlPlane) -> str:
    found: Any = cp.api.get(f"/apis/apps/v1/namespaces/{OWN_NAMESPACE}/deployments/{NAME}")
    return " ".join(found["spec"]["template"]["spec"]["containers"][0]["args"])
