"""The rights that the chart gives: each is needed, its absence is told, and none is too many.

One release with every feature on. Each right in turn is taken away, and something is done that
needs it: a line of the log, a condition or /readyz must then name the verb and the resource. At the
end the audit log must show each granted verb in use.
"""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from e2e.chart import ENROLLED, NAME, OWN_NAMESPACE, USER, Release, installed
from e2e.controller import QUOTAS, remove_crd, wait_seconds
from e2e.controlplane.api import ApiError
from e2e.controlplane.audit import Audit
from e2e.controlplane.cluster import ControlPlane
from e2e.faults.actions import reset, status
from e2e.pod import Pod, account_token
from e2e.prometheus import get
from e2e.proxy import FaultProxy
from e2e.shapes import converge, hardware
from e2e.standin import standin
from e2e.trees import (
    KUEUE,
    MANAGED_BY,
    budget,
    edit,
    group,
    guide_tree,
    job,
    kueue_object,
    put,
    team,
    wait_admitted,
)
from e2e.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.case("fault 44")]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = (
    f"{RBAC}/clusterroles/{NAME}",
    f"{RBAC}/clusterroles/{NAME}-writer",
    f"{RBAC}/namespaces/{OWN_NAMESPACE}/roles/{NAME}",
    f"{RBAC}/namespaces/default/roles/{NAME}-events",
)
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OWN_NAMESPACE}/leases/{NAME}"
SECRET = f"/api/v1/namespaces/{OWN_NAMESPACE}/secrets/{NAME}-webhook-cert"
CONFIGURATION = (
    f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"
    ".quota-translator.dev"
)
COVER = "quota-translator-cover"
OURS = {MANAGED_BY: NAME}
FOLLOWED = (
    "nodes",
    "namespaces",
    "acceleratorquotas",
    "resourceflavors",
    "cohorts",
    "clusterqueues",
    "localqueues",
    "secrets",
    "validatingwebhookconfigurations",
)
EVERYTHING = {
    **ENROLLED,
    "status": {"workloadNames": True, "usageInterval": "500ms"},
    "metrics": {"secure": True},
    "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "500ms"},
}
Right = tuple[str, str]  # a verb, and a resource with its subresource


@dataclass
class Bed:
    cp: ControlPlane
    release: Release
    proxy: FaultProxy
    answers: list[str] = field(default_factory=list)  # to scrapes

    @property
    def pod(self) -> Pod:
        (found,) = self.release.controllers
        return found

    def restart(self) -> None:
        """As after a crash: everything is read anew, with the rights of this moment."""
        count = self.pod.restarts
        self.pod.signal(signal.SIGKILL)
        eventually(lambda: self.pod.restarts > count and self.pod.running, 20, "a new process")

    def wait_ready(self) -> None:
        eventually(lambda: self.pod.get("/readyz")[0] == 200, 30, "the controller to be ready")
        probe = group("probe")
        eventually(lambda: self.cp.api.create(f"{QUOTAS}?dryRun=All", probe), 20, "the webhook")

    def remove(self, name: str) -> None:
        """A node of the tree, as soon as the webhook answers."""

        def done() -> bool:
            self.cp.api.delete(f"{QUOTAS}/{name}")
            return True

        eventually(done, 20, f"{name} to be deleted")

    def told(self, since: int) -> str:
        """All that it says: the log, the conditions of the tree, and why it is not ready."""
        conditions = [
            row["message"]
            for quota in self.cp.api.items(QUOTAS)
            for row in quota.get("status", {}).get("conditions", [])
        ]
        ready = self.pod.get("/readyz")[1]
        return "\n".join([self.pod.log()[since:], *conditions, ready, *self.answers])

    @contextmanager
    def without(self, *rights: Right) -> Iterator[None]:
        """Take rights away; all of them must be missed, by name, before the block ends."""
        before = {path: self.cp.api.get(path) for path in ROLES}
        since = len(self.pod.log())
        for path, role in before.items():
            self.cp.api.merge(path, {"rules": _reduced(role["rules"], rights)})
        eventually(lambda: not any(map(self._allowed, rights)), 10, "the rights to be gone")
        try:
            yield
            eventually(lambda: not self._unnamed(rights, since), 30, "the rights to be missed")
        except AssertionError as error:
            missing = self._unnamed(rights, since)
            raise AssertionError(f"{error}; not named: {missing}\n{self.told(since)}") from error
        finally:
            for path, role in before.items():
                self.cp.api.merge(path, {"rules": role["rules"]})
            eventually(lambda: all(map(self._allowed, rights)), 10, "the rights to be back")

    def _unnamed(self, rights: tuple[Right, ...], since: int) -> list[Right]:
        text = self.told(since).replace('\\"', '"')
        return [
            (verb, resource)
            for verb, resource in rights
            if f'cannot {verb} resource "{resource}"' not in text
        ]

    def _allowed(self, right: Right) -> bool:
        verb, resource = right
        plural, _, part = resource.partition("/")
        attributes = {
            "verb": verb,
            "group": GROUPS.get(plural, ""),
            "resource": plural,
            "subresource": part,
            **PLACES.get(plural, {}),
        }
        spec = {"user": USER, "resourceAttributes": attributes}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        return bool(self.cp.api.create(REVIEWS, {**kind, "spec": spec})["status"]["allowed"])


GROUPS = {
    "acceleratorquotas": "quota-translator.dev",
    "leases": "coordination.k8s.io",
    "validatingwebhookconfigurations": "admissionregistration.k8s.io",
    "tokenreviews": "authentication.k8s.io",
    "subjectaccessreviews": "authorization.k8s.io",
    **dict.fromkeys(
        ("resourceflavors", "cohorts", "clusterqueues", "localqueues", "workloads"),
        "kueue.x-k8s.io",
    ),
}
PLACES = {
    "leases": {"namespace": OWN_NAMESPACE, "name": NAME},
    "secrets": {"namespace": OWN_NAMESPACE, "name": f"{NAME}-webhook-cert"},
    "events": {"namespace": "default"},
    "validatingwebhookconfigurations": {"name": f"{NAME}.quota-translator.dev"},
}


def _reduced(rules: list[dict[str, Any]], rights: tuple[Right, ...]) -> list[dict[str, Any]]:
    """The same rules, one for each resource, without these verbs."""
    found = []
    for rule in rules:
        for resource in rule["resources"]:
            verbs = [verb for verb in rule["verbs"] if (verb, resource) not in rights]
            if verbs:
                found.append({**copy.deepcopy(rule), "resources": [resource], "verbs": verbs})
    return found


def granted(cp: ControlPlane) -> set[Right]:
    return {
        (verb, resource)
        for path in ROLES
        for rule in cp.api.get(path)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture
def bed(clean: ControlPlane) -> Iterator[Bed]:
    remove_crd(clean)
    clean.api.delete(f"/api/v1/namespaces/{OWN_NAMESPACE}")
    hardware(clean)
    with (
        FaultProxy(clean) as proxy,
        standin(clean, proxy.redirect) as machine,
        installed(clean, EVERYTHING, machine=machine) as release,
    ):
        yield Bed(clean, release, proxy)


@pytest.mark.timeout(600)
def test_each_right_is_missed_by_name_and_none_is_unused(bed: Bed) -> None:
    mark = Audit(bed.cp).mark()
    for step in STEPS:
        step(bed)
        bed.wait_ready()
    used = {
        (record.verb, f"{record.resource}/{record.subresource}".rstrip("/"))
        for record in Audit(bed.cp).since(mark, user=USER)
    }
    assert granted(bed.cp) - used == set()
    bed.proxy.clear()


# --- the tree -------------------------------------------------------------------------------


def root(bed: Bed) -> None:
    with bed.without(("create", "acceleratorquotas")):

        def remove() -> bool:
            if bed.cp.api.find(f"{QUOTAS}/root") is None:
                return True
            bed.cp.api.delete(f"{QUOTAS}/root")
            bed.cp.api.merge(f"{QUOTAS}/root", {"metadata": {"finalizers": None}})
            return bed.cp.api.find(f"{QUOTAS}/root") is None

        eventually(remove, catch=ApiError)
    eventually(lambda: bed.cp.api.find(f"{QUOTAS}/root"), what="root to be back")


def first_tree(bed: Bed) -> None:
    flavor, claim = ("create", "resourceflavors"), ("patch", "acceleratorquotas")
    with bed.without(flavor), bed.without(claim):  # a claim is missed first, and then the flavor
        put(bed.cp, *guide_tree())
    bed.restart()  # a refusal is not tried again until something changes
    converge(bed.cp, 4)


def verdicts(bed: Bed) -> None:
    with bed.without(("patch", "acceleratorquotas/status")):
        edit(bed.cp, "team-beta", budget(7, 4))
    with bed.without(("get", "acceleratorquotas")):
        bed.proxy.when("patch", "/acceleratorquotas/team-beta/status$", do=status(409, "Conflict"))
        edit(bed.cp, "team-beta", budget(8, 4))
    converge(bed.cp, 4)


# --- Kueue's objects ------------------------------------------------------------------------


def creations(bed: Bed) -> None:
    queues = ("cohorts", "clusterqueues", "localqueues")
    with bed.without(*(("create", kind) for kind in queues)):
        put(bed.cp, group("more"), team("gamma", budget(0), parent="ml-research"))
        bed.cp.api.delete(f"{KUEUE}/namespaces/ml-serving/localqueues/team-alpha")
    bed.restart()
    converge(bed.cp, 6)


def answers_lost(bed: Bed) -> None:
    """Whether a creation was done that nobody answered is found out by a look."""
    with bed.without(*(("get", kind) for kind in ("cohorts", "clusterqueues", "localqueues"))):
        for kind in ("cohorts", "clusterqueues", "localqueues"):
            bed.proxy.when("create", f"/{kind}$", do=reset(after=True))
        put(bed.cp, group("lost"), team("delta", budget(0), parent="ml-research"))
    bed.proxy.clear()
    bed.restart()
    converge(bed.cp, 8)


def drift(bed: Bed) -> None:
    kinds = ("resourceflavors", "cohorts", "clusterqueues", "localqueues")
    with bed.without(*(("patch", kind) for kind in kinds)):
        for path, change in (
            (f"resourceflavors/{COVER}", {"spec": {"nodeLabels": {"a": "b"}}}),
            ("cohorts/more", {"spec": {"parentName": "elsewhere"}}),  # nothing is beneath it
            ("clusterqueues/team-beta", {"spec": {"cohortName": "elsewhere"}}),
        ):
            bed.cp.api.merge(f"{KUEUE}/{path}", change)
        # Kueue lets nobody change a LocalQueue's queue; one that is handed over may have none yet.
        handed_over = kueue_object("LocalQueue", "epsilon", {}, "ml-serving")
        handed_over["metadata"]["labels"] = OURS | {"quota-translator.dev/quota": "epsilon"}
        put(bed.cp, handed_over, team("epsilon", budget(0), parent="ml-research"))
    bed.restart()
    converge(bed.cp, 9)


def deletions(bed: Bed) -> None:
    for kind, names in (
        ("localqueues", ["gamma"]),
        ("clusterqueues", ["delta", "epsilon"]),
        ("cohorts", ["more", "lost"]),
    ):
        with bed.without(("delete", kind)):
            for name in names:
                bed.remove(name)
        bed.restart()
    converge(bed.cp, 4)


def held_by_work(bed: Bed) -> None:
    """What holds a team is named: its workloads."""
    put(bed.cp, job("train", "team-beta", 1))
    wait_admitted(bed.cp, "train")
    with bed.without(("list", "workloads")):
        bed.remove("team-beta")
    bed.cp.api.delete(
        "/apis/batch/v1/namespaces/ml-serving/jobs/train", propagationPolicy="Background"
    )
    eventually(lambda: bed.cp.api.find(f"{QUOTAS}/team-beta") is None, 30, "team-beta to be gone")


def the_last_team(bed: Bed) -> None:
    with bed.without(("delete", "resourceflavors")):
        bed.remove("team-alpha")
    bed.restart()
    eventually(
        lambda: bed.cp.api.find(f"{KUEUE}/resourceflavors/{COVER}") is None, what="no cover flavor"
    )
    with bed.without(("get", "resourceflavors")):
        bed.proxy.when("create", "/resourceflavors$", do=reset(after=True))
        put(bed.cp, team("omega", budget(1), parent="ml-research"))
    bed.restart()


# --- Events, and who may scrape ---------------------------------------------------------------


def happenings(bed: Bed) -> None:
    """The same again is counted on its Event: after minutes, or when the process ends."""
    _begin_anew(bed)  # whoever could not write an Event says so once in ten minutes
    with bed.without(("create", "events")):
        _repaired(bed)
    _begin_anew(bed)
    with bed.without(("patch", "events")):
        for _ in range(2):
            _repaired(bed)
            wait_seconds(2)  # so that it is seen, told, and over
        bed.pod.signal(signal.SIGTERM)
    eventually(lambda: bed.pod.running, 20, "a new process")


def _begin_anew(bed: Bed) -> None:
    """Until it leads, and has seen that all is well: what is put right before is no drift."""
    since = len(bed.pod.log())
    bed.restart()
    eventually(lambda: '"event":"leading"' in bed.pod.log()[since:], 30, "it to lead")
    bed.wait_ready()
    wait_seconds(2)


def _repaired(bed: Bed) -> None:
    def parent() -> str:
        return str(bed.cp.api.get(f"{KUEUE}/cohorts/ml-research")["spec"].get("parentName"))

    bed.cp.api.merge(f"{KUEUE}/cohorts/ml-research", {"spec": {"parentName": "elsewhere"}})
    eventually(lambda: parent() == "root", 30, "the repair")


def scrapes(bed: Bed) -> None:
    for reviews in ("tokenreviews", "subjectaccessreviews"):
        with bed.without(("create", reviews)):
            _scrape(bed)


def _scrape(bed: Bed) -> None:
    token = account_token(bed.cp.api, OWN_NAMESPACE, "default")
    url = f"https://{bed.pod.ip}:{bed.pod.port('metrics')}/metrics"
    bed.answers.append(get(url, token)[1])


# --- what is followed, the Lease, the certificate ---------------------------------------------


def lists(bed: Bed) -> None:
    with bed.without(*(("list", resource) for resource in FOLLOWED), ("get", "leases")):
        bed.restart()
    bed.restart()


def watches(bed: Bed) -> None:
    """Where a watch cannot be had, the Secret and the configuration are asked for."""
    asked = [("get", "secrets"), ("get", "validatingwebhookconfigurations")]
    with bed.without(*(("watch", resource) for resource in FOLLOWED), *asked):
        bed.restart()
    bed.restart()


def lease(bed: Bed) -> None:
    with bed.without(("patch", "leases")):
        pass
    with bed.without(("create", "leases")):
        bed.cp.api.delete(LEASE)
        bed.restart()


def certificate(bed: Bed) -> None:
    with bed.without(("create", "secrets")):
        bed.cp.api.delete(SECRET)
    eventually(lambda: bed.cp.api.find(SECRET), 45, "a new Secret")
    bed.wait_ready()
    with bed.without(("patch", "secrets"), ("patch", "validatingwebhookconfigurations")):
        bed.cp.api.merge(SECRET, {"data": {"tls.crt": "bm90aGluZw=="}})
        found = bed.cp.api.get(CONFIGURATION)
        found["webhooks"][0]["clientConfig"]["caBundle"] = ""
        bed.cp.api.request("PUT", CONFIGURATION, found)


STEPS: tuple[Callable[[Bed], None], ...] = (
    root,
    first_tree,
    verdicts,
    creations,
    answers_lost,
    drift,
    deletions,
    held_by_work,
    the_last_team,
    happenings,
    scrapes,
    lists,
    watches,
    lease,
    certificate,
)
