"""The webhook's certificate against a real API server that calls through it: whatever is deleted
or overwritten comes back by itself, and nobody's write fails for it.

The namespace's ConfigMaps stand for the tree: what they are is all the same to the certificate.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e import guard
from e2e.controller import wait_seconds
from e2e.controlplane.api import ApiError
from e2e.controlplane.audit import Audit
from e2e.controlplane.certificates import Authority
from e2e.controlplane.cluster import ControlPlane
from e2e.guard import CONFIGURATION, SECRET, SECRETS, USER, Callers, Replica, call
from e2e.waiting import eventually

pytestmark = pytest.mark.e2e
SOON = 5.0  # seconds; 30 are promised
LIFETIME = 600.0  # renewed after 400 s, longer than these tests take


@pytest.fixture(scope="module")
def started(control_plane: ControlPlane) -> Iterator[tuple[list[Replica], int]]:
    """Three replicas that began at one moment, and the place in the audit log before that."""
    mark = Audit(control_plane).mark()
    with guard.replicas(control_plane, 3, LIFETIME) as found:
        yield found, mark


@pytest.fixture
def replicas(control_plane: ControlPlane, started: tuple[list[Replica], int]) -> list[Replica]:
    """All is well before each test."""
    whole(control_plane, started[0])
    return started[0]


def secret(cp: ControlPlane) -> dict[str, bytes]:
    data = cp.api.get(f"{SECRETS}/{SECRET}")["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def hooks(cp: ControlPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cp.api.get(CONFIGURATION)["webhooks"]
    return found


def bundles(cp: ControlPlane) -> set[bytes]:
    return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks(cp)}


def set_bundles(cp: ControlPlane, text: bytes) -> None:
    """Somebody overwrites them all, whatever is in them by now."""
    encoded = base64.b64encode(text).decode()

    def write() -> bool:
        found = cp.api.get(CONFIGURATION)
        for hook in found["webhooks"]:
            hook["clientConfig"]["caBundle"] = encoded
        cp.api.request("PUT", CONFIGURATION, found)
        return True

    eventually(write, catch=ApiError)


def whole(cp: ControlPlane, replicas: list[Replica], within: float = 30.0) -> float:
    """Wait until every replica can be called, and is; the seconds that it took."""
    begun = time.monotonic()

    def look() -> bool:
        before = [one.calls for one in replicas]
        assert [one.problem() for one in replicas] == ["", "", ""]
        assert call(cp) == ""
        assert all(one.calls > count for one, count in zip(replicas, before, strict=True))
        return True

    eventually(look, within, "every replica to be called")
    return time.monotonic() - begun


def serving(replicas: list[Replica], chain: bytes) -> bool:
    """Whether all of them serve this certificate."""
    held = [one.keeper._served.held for one in replicas if one.keeper]
    return all(each is not None and each.pair.chain == chain for each in held)


@pytest.mark.case("fault 41")
def test_replicas_that_start_together_make_one_secret_and_all_serve_its_pair(
    control_plane: ControlPlane, started: tuple[list[Replica], int]
) -> None:
    replicas, mark = started
    whole(control_plane, replicas)
    found = control_plane.api.get(f"{SECRETS}/{SECRET}")
    assert found["type"] == "kubernetes.io/tls"
    eventually(lambda: serving(replicas, secret(control_plane)["tls.crt"]), what="one certificate")
    assert bundles(control_plane) == {secret(control_plane)["ca.crt"]}
    asked = Audit(control_plane).since(mark, user=USER)
    made = [r for r in asked if r.verb == "create" and r.resource == "secrets" and r.code == 201]
    assert len(made) == 1
    assert [str(r) for r in asked if r.code == 403] == []
    changed = [r for r in asked if r.verb == "patch" and r.resource == "secrets"]
    assert changed == []


def test_then_nothing_is_asked(
    control_plane: ControlPlane, replicas: list[Replica], audit: Audit
) -> None:
    """For longer than a look at the clocks takes to come round."""
    mark = audit.mark()
    wait_seconds(11)
    assert [str(r) for r in audit.since(mark, user=USER)] == []
    assert [one.problem() for one in replicas] == ["", "", ""]


def _delete(cp: ControlPlane) -> None:
    cp.api.delete(f"{SECRETS}/{SECRET}")


def _overwrite(**data: bytes) -> Callable[[ControlPlane], None]:
    encoded = {f"tls.{key}": base64.b64encode(text).decode() for key, text in data.items()}
    return lambda cp: cp.api.merge(f"{SECRETS}/{SECRET}", {"data": encoded})


OTHER = Authority("somebody").server("x", ["webhook"], ["127.0.0.1"])
MISDEEDS = (
    _delete,
    _overwrite(crt=b"garbage", key=b"garbage"),
    _overwrite(key=OTHER.key),  # half a pair
    _overwrite(crt=OTHER.certificate, key=OTHER.key),  # a pair that our authority did not sign
)


@pytest.mark.case("A-59", "fault 41")
def test_whatever_becomes_of_the_secret_a_good_one_comes_back_and_no_call_fails(
    control_plane: ControlPlane, replicas: list[Replica]
) -> None:
    with Callers(control_plane) as callers:
        for misdeed in MISDEEDS:
            old = secret(control_plane)
            misdeed(control_plane)
            new = eventually(lambda: _replaced(control_plane, old), SOON, "a new pair")  # noqa: B023
            assert old["ca.crt"] in new["previous-ca.crt"]
        eventually(lambda: serving(replicas, new["tls.crt"]), 30, "the new pair to be served")
        count = callers.done
        eventually(lambda: callers.done > count + 20, 30, "calls with the new pair")
    assert callers.failed == []
    assert callers.done > 100
    assert bundles(control_plane) == {new["ca.crt"] + new["previous-ca.crt"]}


def _replaced(cp: ControlPlane, old: dict[str, bytes]) -> dict[str, bytes]:
    """The Secret, once it has another pair of ours than before; until then nothing."""
    found = secret(cp)
    return found if found["ca.crt"] != old["ca.crt"] else {}


@pytest.mark.case("fault 41")
@pytest.mark.parametrize("text", [b"", Authority("somebody").certificate], ids=["empty", "other"])
def test_an_overwritten_bundle_is_put_back(
    control_plane: ControlPlane, replicas: list[Replica], text: bytes
) -> None:
    (good,) = bundles(control_plane)
    set_bundles(control_plane, text)
    eventually(lambda: bundles(control_plane) == {good}, SOON, "the bundles")
    whole(control_plane, replicas, SOON)


@pytest.mark.case("A-59")
def test_the_secret_and_the_bundles_at_once(
    control_plane: ControlPlane, replicas: list[Replica]
) -> None:
    old = secret(control_plane)
    set_bundles(control_plane, b"")
    control_plane.api.delete(f"{SECRETS}/{SECRET}")
    whole(control_plane, replicas, SOON)
    new = secret(control_plane)
    assert new["tls.crt"] != old["tls.crt"]
    assert bundles(control_plane) == {new["ca.crt"] + new["previous-ca.crt"]}


def test_what_helm_applies_meets_no_field_of_ours_and_leaves_the_bundles(
    control_plane: ControlPlane, replicas: list[Replica]
) -> None:
    before = bundles(control_plane)
    ports = [one.port for one in replicas]
    guard.apply_as_helm(
        control_plane, guard.configuration(ports, timeout=7)
    )  # a conflict would raise
    assert bundles(control_plane) == before
    assert {hook["timeoutSeconds"] for hook in hooks(control_plane)} == {7}
    shown = control_plane.kubectl(
        "get", "validatingwebhookconfigurations", guard.NAME, "--show-managed-fields", "-o", "json"
    )
    fields = _owned(shown)
    assert fields == {f"{hook['name']} f:clientConfig f:caBundle" for hook in hooks(control_plane)}
    whole(control_plane, replicas, SOON)


def test_a_configuration_that_is_removed_and_installed_again(
    control_plane: ControlPlane, replicas: list[Replica]
) -> None:
    before = bundles(control_plane)
    control_plane.api.delete(CONFIGURATION)
    for one in replicas:
        assert one.keeper is not None
        eventually(one.keeper.notice, SOON, "the loss to be told")
        assert one.problem() == ""  # nothing calls us, and nothing is wrong with us
    guard.apply_as_helm(control_plane, guard.configuration([one.port for one in replicas]))
    eventually(lambda: bundles(control_plane) == before, SOON, "the bundles")
    whole(control_plane, replicas, SOON)


def _owned(text: str) -> set[str]:
    """The fields of webhooks that the controller's own manager has, as paths."""
    entries = json.loads(text)["metadata"]["managedFields"]
    (ours,) = [entry for entry in entries if entry["manager"] == "quota-translator"]
    assert ours["operation"] == "Update"
    assert set(ours["fieldsV1"]) == {"f:webhooks"}
    found = set()
    for key, fields in ours["fieldsV1"]["f:webhooks"].items():
        name = json.loads(key.removeprefix("k:"))["name"]
        for field, inner in fields.items():
            found |= {f"{name} {field} {leaf}" for leaf in inner} or {f"{name} {field}"}
    return found
