"""The webhook as people meet it: kubectl against a real API server that asks our process."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.controller import QUOTAS, Controller, install_crd
from e2e.controlplane.api import ApiError
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.processes import free_ports
from e2e.shapes import NO_STAMP, amount, converge, hardware, nominal, reason
from e2e.trees import (
    NAMESPACE,
    Document,
    budget,
    edit,
    group,
    guide_tree,
    job,
    put,
    team,
    wait_admitted,
)
from e2e.waiting import eventually
from quota_translator.core.webhookconfig import CONFIGURATION, PATH, admission_configuration

pytestmark = pytest.mark.e2e
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SERIES = "quota_translator_webhook_decisions_total"
DENIED = (
    'admission webhook "acceleratorquota.quota-translator.dev" denied the request: '
    "ml-research: budget nvidia.com/gpu on a100 is 24 but its children total 28"
)


class Guarded:
    """A controller that serves the webhook, and the configuration that leads to it."""

    def __init__(self, cp: ControlPlane, controller: Controller, url: str) -> None:
        self.cp, self.controller, self._url = cp, controller, url

    def install(self) -> None:
        """The bundle comes by itself; then the API server has to notice."""
        document = admission_configuration({"url": self._url})
        self.cp.api.create(CONFIGURATIONS, document)
        eventually(self._asks, 30, "the API server to ask the webhook")

    def remove(self) -> None:
        self.cp.api.delete(f"{CONFIGURATIONS}/{CONFIGURATION}")
        eventually(lambda: not self._asks(), 30, "the API server to ask nobody")

    def _asks(self) -> bool:
        orphan = team("orphan", budget(1), parent="nobody")
        try:
            self.cp.api.create(f"{QUOTAS}?dryRun=All", orphan)
        except ApiError as error:
            return "does not resolve" in str(error)
        return False

    def kubectl(self, *arguments: str, document: Document | None = None) -> tuple[int, str]:
        """Its exit code and everything that it printed, warnings included."""
        command = [str(self.cp.bin("kubectl")), "--kubeconfig", str(self.cp.kubeconfig)]
        done = subprocess.run(
            [*command, *arguments],
            input=json.dumps(document) if document else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr


@contextmanager
def guarded(cp: ControlPlane, *flags: str) -> Iterator[Guarded]:
    install_crd(cp)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    names = ("--webhook-enabled", "true", "--webhook-extra-names", "127.0.0.1")
    with Controller(cp, *NO_STAMP, *names, "--webhook-bind-address", address, *flags) as controller:
        found = Guarded(cp, controller, f"https://{address}{PATH}")
        found.install()
        try:
            yield found
        finally:
            # Before the process ends: nobody could write to the tree any more.
            if cp.api.find(f"{CONFIGURATIONS}/{CONFIGURATION}"):
                found.remove()


@pytest.fixture
def bed(clean: ControlPlane) -> Iterator[Guarded]:
    hardware(clean)
    with guarded(clean) as found:
        put(clean, *guide_tree())
        converge(clean, 4)
        yield found


@pytest.mark.case("A-46", "A-47", "A-48", "A-50", "A-52", "A-53", "A-54", "A-55", "FC-E10")
def test_kubectl_is_told_what_a_write_would_break(bed: Guarded) -> None:
    raised = team("team-alpha", budget(20), parent="ml-research")
    for more in ((), ("--dry-run=server",)):
        code, said = bed.kubectl("apply", "-f", "-", *more, document=raised)
        assert code == 1
        assert DENIED in said
    assert nominal(bed.cp, "team-alpha") == "16"
    # Two edits in a row see each other, with no moment between them.
    edit(bed.cp, "team-alpha", budget(12))
    put(bed.cp, team("team-gamma", budget(4), parent="ml-research"))
    with pytest.raises(ApiError, match="children total 25"):
        put(bed.cp, team("team-delta", budget(1), parent="ml-research"))
    # A parent and then its child; the other way round there is no parent.
    with pytest.raises(ApiError, match="does not resolve"):
        put(bed.cp, team("early", budget(0), parent="late"))
    put(bed.cp, group("late", budget(0)), team("early", budget(0), parent="late"))
    code, said = bed.kubectl("delete", "acceleratorquota", "late")
    assert code == 1
    assert "late: 1 node(s) name it as their parent: early" in said
    # More than Kueue would take: 16 groups of its own, and that of the cover resources.
    wide = [amount(f"example.org/device-{number}", "0") for number in range(16)]
    wide = [row | {"resourceFlavor": f"flavor-{at}"} for at, row in enumerate(wide)]
    with pytest.raises(ApiError, match="its queue would have 17 resource groups"):
        put(bed.cp, team("wide", *wide, parent="root"))
    # A role stays. The CRD says so itself; with a CRD of before, the webhook would.
    code, said = bed.kubectl(
        "patch", "aq", "late", "--type=merge", "-p", '{"spec":{"role":"ClusterQueue"}}'
    )
    assert code == 1
    assert "role" in said
    # What is allowed and yet wrong is said as a warning.
    code, said = bed.kubectl("apply", "-f", "-", document=team("big", budget(40), parent="root"))
    assert code == 0, said
    assert "Warning: big: budget nvidia.com/gpu on a100 is 40 but the cluster's peak" in said
    assert reason(bed.cp, "team-beta") == "True Admitted"
    text = bed.controller.get("/metrics")[1]
    assert f'{SERIES}{{operation="UPDATE",outcome="denied",reason="ContainmentViolated"}}' in text
    assert f'{SERIES}{{operation="CREATE",outcome="warned",reason="OverMark"}}' in text
    assert '"event":"write denied"' in bed.controller.log()


@pytest.mark.case("fault 39")
def test_two_that_are_admitted_at_once_are_caught_and_a_repair_thaws(bed: Guarded) -> None:
    """Both lists are read before either write is stored: no webhook can see that."""
    edit(bed.cp, "team-alpha", budget(12))
    eventually(lambda: nominal(bed.cp, "team-alpha") == "12", what="room for four")
    both = [team(f"new-{i}", budget(4), parent="ml-research") for i in range(6)]
    barrier = threading.Barrier(len(both))
    said: list[str] = []

    def create(document: Document) -> None:
        barrier.wait()
        try:
            put(bed.cp, document)
        except ApiError as error:
            said.append(str(error))

    threads = [threading.Thread(target=create, args=(document,)) for document in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [words for words in said if "children total" not in words] == []
    made = [item for item in bed.cp.api.items(QUOTAS) if item["metadata"]["name"].startswith("new")]
    assert made
    if len(made) == 1:  # the webhook was quick; make by hand what it cannot always prevent
        bed.remove()
        put(bed.cp, team("new-9", budget(4), parent="ml-research"))
    eventually(
        lambda: reason(bed.cp, "ml-research") == "False ContainmentViolated", what="the freeze"
    )
    news = [i["metadata"]["name"] for i in bed.cp.api.items(QUOTAS) if "new-" in str(i["metadata"])]
    for name in news[1:]:
        bed.cp.api.delete(f"{QUOTAS}/{name}")
    eventually(lambda: reason(bed.cp, "ml-research") == "True Admitted", what="the thaw")


@pytest.mark.case("A-58", "FC-G08")
def test_a_webhook_that_is_away_stops_edits_and_nothing_else(bed: Guarded) -> None:
    put(bed.cp, job("train", "team-beta", 4))
    wait_admitted(bed.cp, "train")
    code, said = bed.kubectl("delete", "aq", "--all", "--wait=false")
    assert code == 1  # parents stay while they have children; the teams go
    assert "ml-research: 2 node(s) name it as their parent" in said
    flags = ("patch", "aq", "ml-research", "--type=merge", "-p")
    bed.controller.stop()
    code, said = bed.kubectl(*flags, '{"spec":{"priorityTier":null,"budgets":[]}}')
    assert code == 1
    assert "failed calling webhook" in said
    # Labels and finalizers do not hang on it, and work goes on.
    code, said = bed.kubectl(*flags, '{"metadata":{"labels":{"note":"x"},"finalizers":[]}}')
    assert code == 0, said
    wait_admitted(bed.cp, "train")
    bed.controller.start()
    code, said = bed.kubectl(*flags, '{"spec":{"budgets":[]}}')
    assert code == 0, said
    # What was refused is done by asking again, once the work has ended and the teams are gone.
    bed.cp.api.delete(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train")
    second = ("delete", "aq", "ml-research", "--wait=false")
    eventually(lambda: bed.kubectl(*second)[0] == 0, 60, "the second run to be allowed")
    gone = f"{QUOTAS}/ml-research"
    eventually(lambda: bed.cp.api.find(gone) is None, what="the last group to be gone")
    bed.remove()  # as `webhook.enabled: false` does, when nothing else helps


@pytest.mark.case("A-55", "A-57")
def test_what_is_warned_about_is_denied_where_the_settings_say_so(clean: ControlPlane) -> None:
    hardware(clean)
    with guarded(clean, "--webhook-deny", "OverMark,BelowAdmitted") as bed:
        put(clean, *guide_tree())
        converge(clean, 4)
        with pytest.raises(ApiError, match="peak capacity is 32"):
            put(clean, team("big", budget(40), parent="root"))
        put(clean, job("train", "team-beta", 4))
        wait_admitted(clean, "train")

        def used() -> bool:
            rows = clean.api.get(f"{QUOTAS}/team-beta")["status"]["budgets"]
            return bool(rows[0].get("admitted") == "4")

        eventually(used, what="the use to be known")
        with pytest.raises(ApiError, match="below the 4 that are admitted"):
            edit(clean, "team-beta", budget(2))
        edit(clean, "team-beta", budget(6))
        assert bed.controller.is_ready()
