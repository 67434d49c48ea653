"""Two replicas, and two controllers: real processes, real signals, and the audit log as witness.

Each process has a user of its own, so that the log says who wrote what.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from e2e.controller import QUOTAS, Controller, install_crd, wait_seconds
from e2e.controlplane.audit import Audit, Record
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.processes import free_ports
from e2e.faults import actions
from e2e.proxy import FaultProxy
from e2e.shapes import NO_STAMP, converge, hardware
from e2e.slate import LEASES
from e2e.trees import KUEUE, NAMESPACE, budget, edit, group, guide_tree, namespace, put, team
from e2e.waiting import eventually
from quota_translator.core.names import GROUP
from quota_translator.core.webhookconfig import PATH

pytestmark = pytest.mark.e2e
LEASE = f"{LEASES}/quota-translator"
SECRET = "/api/v1/namespaces/default/secrets/quota-translator-webhook-cert"
A, B, C = "replica-a", "replica-b", "replica-c"
ELECTED = (*NO_STAMP, "--leader-election-enabled", "true", "--take-over", "false")
DURATION, DEADLINE, PERIOD = 3.0, 2.0, 0.5
QUICK = (
    *ELECTED,
    "--leader-election-lease-duration",
    f"{DURATION}s",
    "--leader-election-renew-deadline",
    f"{DEADLINE}s",
    "--leader-election-retry-period",
    f"{PERIOD}s",
)
LONE = (*NO_STAMP, "--take-over", "false")  # no Lease, so each is a controller of its own


def replica(cp: ControlPlane, user: str, *flags: str, **more: object) -> Controller:
    kubeconfig = more.pop("kubeconfig", None) or cp.new_kubeconfig(user, groups=("system:masters",))
    return Controller(cp, *flags, kubeconfig=kubeconfig, **more)  # type: ignore[arg-type]


@contextmanager
def replicas(cp: ControlPlane, *flags: str) -> Iterator[tuple[Controller, Controller]]:
    """The first leads, the second stands by; the guide's tree is in Kueue."""
    hardware(cp)
    install_crd(cp)
    with replica(cp, A, *flags) as a:
        put(cp, *guide_tree())
        converge(cp, 4)
        with replica(cp, B, *flags) as b:
            yield a, b


def leads(controller: Controller) -> bool:
    return "quota_translator_leader 1.0" in controller.get("/metrics")[1]


def is_refused(controller: Controller) -> bool:
    return "quota_translator_rival_controller 1.0" in controller.get("/metrics")[1]


def holder(cp: ControlPlane) -> str:
    found = cp.api.find(LEASE) or {}
    name: str = found.get("spec", {}).get("holderIdentity", "")
    return name


def writes(audit: Audit, mark: int, user: str) -> list[Record]:
    """What a user wrote, but for the Lease, which both of them want."""
    found = audit.since(mark, user=user)
    return [record for record in found if record.is_write and record.resource != "leases"]


def first_write(audit: Audit, mark: int, user: str, seconds: float) -> Record:
    return eventually(lambda: writes(audit, mark, user), seconds, f"a write of {user}")[0]


def seconds_from(moment: datetime, record: Record) -> float:
    return (datetime.fromisoformat(record.time) - moment).total_seconds()


def in_turns(audit: Audit, mark: int) -> bool:
    """Nothing that the one wrote came after the first write of the other."""
    a, b = writes(audit, mark, A), writes(audit, mark, B)
    assert b
    assert not a or max(r.time for r in a) < min(r.time for r in b)
    return True


def claim(cp: ControlPlane) -> dict[str, str]:
    found: dict[str, str] = cp.api.get(f"{QUOTAS}/root").get("status", {}).get("controller", {})
    return found


# --- replicas ---------------------------------------------------------------------------------


@pytest.mark.case("A-100", "fault 32")
def test_a_killed_leader_is_followed_in_18_seconds_and_a_stopped_one_in_3(
    clean: ControlPlane, audit: Audit
) -> None:
    """With the clocks that one has by default. Nothing that is edited in between is lost."""
    with replicas(clean, *ELECTED) as (a, b):
        assert leads(a)
        assert not leads(b)
        assert b.is_ready()
        assert "standing by" in b.get("/readyz")[1]
        assert claim(clean)["uid"] == clean.api.get(LEASE)["metadata"]["uid"]

        mark = audit.mark()
        killed = datetime.now(UTC)
        a.kill()
        edit(clean, "team-beta", budget(7))
        assert seconds_from(killed, first_write(audit, mark, B, 30)) <= 18
        converge(clean, 4)
        assert in_turns(audit, mark)
        assert clean.api.get(LEASE)["spec"]["leaseTransitions"] == 1

        a.start()
        assert a.is_ready()
        mark = audit.mark()
        stopped = datetime.now(UTC)
        assert b.stop() == 0
        assert (datetime.now(UTC) - stopped).total_seconds() < 3
        edit(clean, "team-beta", budget(8))
        assert seconds_from(stopped, first_write(audit, mark, A, 30)) <= 3
        converge(clean, 4)
        assert leads(a)


def test_replicas_ask_little_and_a_standby_writes_nothing(
    clean: ControlPlane, audit: Audit
) -> None:
    with replicas(clean, *QUICK) as (a, b):
        wait_seconds(1)
        mark = audit.mark()
        wait_seconds(6)
        end = audit.mark()
        asked_a = Counter(str(r) for r in audit.between(mark, end, user=A))
        asked_b = Counter(str(r) for r in audit.between(mark, end, user=B))
        lease = "leases default/quota-translator"
        assert set(asked_a) == {f"patch {lease}"}
        assert set(asked_b) == {f"get {lease}"}
        for count in (*asked_a.values(), *asked_b.values()):
            assert 9 <= count <= 13  # 6 s, half a second and up to a fifth more each
        # Everybody's edits are the leader's to carry out.
        edit(clean, "team-beta", budget(7))
        converge(clean, 4)
        assert writes(audit, mark, B) == []
        assert leads(a)
        assert b.is_ready()


@pytest.mark.case("A-100")
def test_both_replicas_answer_the_webhook(clean: ControlPlane) -> None:
    hardware(clean)
    install_crd(clean)
    ports = free_ports(2)
    webhook = ("--webhook-enabled", "true", "--webhook-extra-names", "127.0.0.1")
    served = [(*webhook, "--webhook-bind-address", f"127.0.0.1:{port}") for port in ports]
    try:
        with replica(clean, A, *QUICK, *served[0]) as a, replica(clean, B, *QUICK, *served[1]) as b:
            put(clean, *guide_tree())
            converge(clean, 4)
            assert (leads(a), leads(b)) == (True, False)
            data = clean.api.get(SECRET)["data"]
            trusted = base64.b64decode(data["ca.crt"]).decode()
            # One certificate, and one opinion: team-beta may have 8, and not 9.
            assert [asked(clean, port, trusted, 8) for port in ports] == [True, True]
            assert [asked(clean, port, trusted, 9) for port in ports] == [False, False]
    finally:
        clean.api.delete(SECRET)


def asked(cp: ControlPlane, port: int, trusted: str, nominal: int) -> bool:
    """Whether this replica would allow team-beta so much."""
    stored = cp.api.get(f"{QUOTAS}/team-beta")
    wanted = stored | {"spec": stored["spec"] | {"budgets": [budget(nominal)]}}
    request = {
        "uid": "1",
        "operation": "UPDATE",
        "kind": {"group": GROUP, "version": "v1beta1", "kind": "AcceleratorQuota"},
        "object": wanted,
        "oldObject": stored,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    context = ssl.create_default_context(cadata=trusted)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    headers = {"Content-Type": "application/json"}
    try:
        connection.request("POST", PATH, json.dumps(review), headers)
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    allowed: bool = answer["response"]["allowed"]
    return allowed


@pytest.mark.case("fault 33")
def test_a_leader_that_stood_still_notices_before_it_writes(
    clean: ControlPlane, audit: Audit
) -> None:
    """It is stopped in the middle of many writes, and goes on when another has done them all."""
    hardware(clean, nodes=2, gpus=64)
    install_crd(clean)
    flags = (*QUICK, "--write-concurrency", "1")
    with replica(clean, A, *flags) as a, replica(clean, B, *flags):
        teams = [team(f"team-{i:02}", budget(2), parent="ml") for i in range(60)]
        mark = audit.mark()
        put(clean, group("ml", budget(120)), *teams)
        while len(clean.api.items(f"{KUEUE}/clusterqueues")) < 10:  # it is over in a second
            assert a.pid
        try:
            os.kill(a.pid, signal.SIGSTOP)
            assert len(clean.api.items(f"{KUEUE}/clusterqueues")) < 60
            converge(clean, 62)
            edit(clean, "team-00", budget(1))
            converge(clean, 62)
        finally:
            resumed = audit.mark()
            os.kill(a.pid, signal.SIGCONT)
        eventually(lambda: "leadership lost" in a.log(), 10, "it to notice")
        eventually(lambda: "standing by" in a.get("/readyz")[1], 10, "it to stand by")
        wait_seconds(1)
        assert writes(audit, resumed, A) == []
        assert in_turns(audit, mark)
        assert a.is_ready()


@pytest.mark.case("fault 28", "fault 29")
def test_a_leader_whose_renewals_hang_has_stopped_when_the_other_begins(
    clean: ControlPlane, audit: Audit
) -> None:
    hardware(clean)
    install_crd(clean)
    with FaultProxy(clean) as proxy:
        kubeconfig = proxy.kubeconfig(A)
        with (
            replica(clean, A, *QUICK, kubeconfig=kubeconfig) as a,
            replica(clean, B, *QUICK) as b,
        ):
            put(clean, *guide_tree())
            converge(clean, 4)
            assert leads(a)
            mark = audit.mark()
            hang = actions.hang()
            proxy.when("", "/leases/", do=hang, times=None)
            # All its other connections are good, and there is always something to write.
            for shares in range(1, 9):
                edit(clean, "team-beta", budget(shares))
                wait_seconds(0.7)
            converge(clean, 4)
            assert writes(audit, mark, A)
            assert in_turns(audit, mark)
            assert not leads(a)
            assert "cannot be read or written" in a.log()
            # A load balancer's page is no answer either; when the line is good again it stands by.
            proxy.clear()
            proxy.when("", "/leases/", do=actions.html(502), times=3)
            eventually(lambda: "note: standing by" in a.get("/readyz")[1], what="a standby")
            assert a.is_ready()

            # Nothing that hangs keeps a leader from ending.
            assert b.stop() == 0
            eventually(lambda: leads(a), 10, "it to lead again")
            before = proxy.mark()
            proxy.when(do=actions.hang(), times=None)
            edit(clean, "team-beta", budget(7))
            eventually(lambda: proxy.count("patch", "/clusterqueues/", before), what="a write")
            begun = datetime.now(UTC)
            assert a.stop() == 0
            assert (datetime.now(UTC) - begun).total_seconds() < 10


@pytest.mark.case("fault 31")
def test_a_clean_stop_in_the_middle_of_a_thousand_objects(
    clean: ControlPlane, audit: Audit
) -> None:
    hardware(clean, nodes=2, gpus=64)
    spaces = [f"space-{i:02}" for i in range(15)]
    put(clean, *map(namespace, spaces))
    install_crd(clean)
    teams = [team(f"team-{i:02}", budget(2), parent="ml") for i in range(62)]
    put(clean, group("ml", budget(124)), *teams)
    flags = (*ELECTED, "--write-concurrency", "4")
    enrolled = ",".join([NAMESPACE, *spaces])
    mark = audit.mark()
    a = replica(clean, A, *flags, namespaces=enrolled)
    try:
        a.start(ready=False)
        eventually(lambda: len(clean.api.items(f"{KUEUE}/localqueues")) > 100, 60, "a hundred")
        asked = datetime.now(UTC)
        assert a.stop() == 0
        assert (datetime.now(UTC) - asked).total_seconds() < 10
        stopped = audit.mark()
        found = clean.api.items(f"{KUEUE}/localqueues")
        assert len(found) < 62 * 16  # else it was not in the middle
        # Each write that was begun has its answer, and nobody takes the end for a failure.
        assert all(record.code < 300 for record in writes(audit, mark, A) if record.verb != "get")
        assert '"level": "warning"' not in a.log()
        assert '"level":"warning"' not in a.log()
        assert holder(clean) == ""
        # It claims nothing any more, and says where it lived.
        assert claim(clean) == {"namespace": "default", "lease": "quota-translator"}

        a.start()
        converge(clean, 64, timeout=90)
        assert len(clean.api.items(f"{KUEUE}/localqueues")) == 62 * 16
        made = Counter(
            str(record)
            for record in writes(audit, mark, A)
            if record.verb == "create" and record.code == 201
        )
        assert set(made.values()) == {1}
        assert writes(audit, stopped, A)
    finally:
        a.kill()


# --- controllers ------------------------------------------------------------------------------


@pytest.mark.case("A-102")
def test_other_controllers_write_nothing_and_say_who_holds_the_tree(
    clean: ControlPlane, audit: Audit
) -> None:
    """Be it under the same manager's name or under one of its own."""
    hardware(clean)
    install_crd(clean)
    stranger = (*LONE, "--materialize-field-manager", "stranger")
    with replica(clean, A, *QUICK) as a:
        put(clean, *guide_tree())
        converge(clean, 4)
        held = claim(clean)
        assert held["lease"] == "quota-translator"
        mark = audit.mark()
        with replica(clean, B, *LONE) as b, replica(clean, C, *stranger) as c:
            edit(clean, "team-beta", budget(7))
            converge(clean, 4)
            sentence = (
                "another controller writes this tree: Lease quota-translator in namespace default, "
                f"uid {held['uid']}, last seen at {held['seenAt']}; stop that one, or start this "
                "one with --take-over"
            )
            for other in (b, c):
                eventually(lambda: sentence in other.log(), what="the refusal")  # noqa: B023
                ready, text = other.get("/readyz")
                assert ready == 200
                assert f"note: {sentence}" in text
                assert is_refused(other)
            for user in (B, C):
                assert [str(r) for r in audit.since(mark, user=user) if r.is_write] == []

            # When the first ends as it should, nobody waits, and one of the others has it.
            assert a.stop() == 0
            eventually(lambda: claim(clean).get("uid", held["uid"]) != held["uid"], 5, "a claim")
            assert "lease" not in claim(clean)
            eventually(lambda: sum(is_refused(other) for other in (b, c)) == 1, 5, "one of them")


@pytest.mark.case("A-102")
def test_take_over_takes_the_tree_and_the_first_writes_nothing_more(
    clean: ControlPlane, audit: Audit
) -> None:
    hardware(clean)
    install_crd(clean)
    with replica(clean, A, *QUICK) as a:
        put(clean, *guide_tree())
        converge(clean, 4)
        mark = audit.mark()
        with replica(clean, B, *LONE, "--take-over", "true") as b:
            eventually(lambda: "nothing is written" in a.log(), 5, "the first to stand back")
            for share in (7, 6, 5):
                edit(clean, "team-beta", budget(share))
                converge(clean, 4)
            assert in_turns(audit, mark)
            assert leads(a)  # of its own replicas; of the tree it is not
            assert is_refused(a)
            assert claim(clean)["uid"] in a.get("/readyz")[1]
            b.kill()
            # What was killed still holds the tree, for three minutes.
            edit(clean, "team-beta", budget(4))
            wait_seconds(1)
            assert in_turns(audit, mark)
