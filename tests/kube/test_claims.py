"""Giving up the claim on root."""

from typing import Any

from quota_translator.core.names import ROOT
from quota_translator.core.world import Holder, QuotaNode
from quota_translator.kube.claims import give_up
from quota_translator.kube.client import Client
from quota_translator.kube.decode import read_quota
from quota_translator.kube.resources import QUOTAS
from tests.kube.objects import quota
from tests.kube.scripted import Scripted, failed, reply

ONE = Holder("platform", "one", "lease-1")
TWO = Holder("platform", "two", "lease-2")
PATH = QUOTAS.path(ROOT)


def stored(holder: Holder, version: str = "7") -> dict[str, Any]:
    claim = {"uid": holder.uid, "namespace": holder.namespace, "lease": holder.lease}
    body = quota(ROOT, version=version)
    return body | {"status": {"controller": claim | {"seenAt": "2026-11-30T12:00:00Z"}}}


def seen(holder: Holder, version: str = "7") -> QuotaNode:
    return read_quota(reply(stored(holder, version)).chunks[0])


async def test_it_is_given_up_and_nothing_else_is_touched(client: Client, server: Scripted) -> None:
    server.on("patch", f"{PATH}/status", reply({}))
    assert await give_up(client, seen(ONE), ONE, 1.0)
    patch = server.last("patch").body
    # Where it lived stays, for `cleanup`.
    assert patch["status"] == {"controller": {"uid": None, "seenAt": None}}
    assert patch["metadata"]["resourceVersion"] == "7"


async def test_what_became_anothers_meanwhile_is_left_alone(
    client: Client, server: Scripted
) -> None:
    assert not await give_up(client, seen(TWO), ONE, 1.0)
    server.on("patch", f"{PATH}/status", failed(409, "Conflict"), reply({}))
    server.on("get", PATH, reply(stored(ONE, "8")))
    assert await give_up(client, seen(ONE), ONE, 1.0)
    assert server.last("patch").body["metadata"]["resourceVersion"] == "8"
    server.on("patch", f"{PATH}/status", failed(409, "Conflict"))
    server.on("get", PATH, reply(stored(TWO, "9")))
    assert not await give_up(client, seen(ONE), ONE, 1.0)
    assert server.count("patch") == 3
