"""The CA bundles of a webhook configuration: read, compared and written, and nothing else of it."""

import base64
import json

import pytest

from quota_translator.errors import Conflict, Malformed
from quota_translator.kube.client import Client
from quota_translator.kube.webhookconfig import Webhooks, read_webhooks, set_bundle
from tests.kube.scripted import Scripted, failed, reply

PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/guard"


def test_the_bundle_of_each_webhook_is_read() -> None:
    body = {
        "metadata": {"name": "guard", "resourceVersion": "7"},
        "webhooks": [
            {"name": "a", "clientConfig": {"caBundle": base64.b64encode(b"one").decode()}},
            {"name": "b", "clientConfig": {"service": {"name": "s"}}},
            {"name": "c", "clientConfig": {"caBundle": None}},
        ],
    }
    found = read_webhooks(json.dumps(body).encode())
    assert found == Webhooks("guard", "7", (("a", b"one"), ("b", b""), ("c", b"")))
    assert found.other_than(b"one") == ["b", "c"]
    assert not found.trust(b"one")


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"metadata":{"name":"x"},"webhooks":[{}]}'])
def test_what_is_no_configuration(body: bytes) -> None:
    with pytest.raises(Malformed, match=r"^unreadable ValidatingWebhookConfiguration"):
        read_webhooks(body)


def test_every_bundle_must_hold_an_authority_for_it_to_be_trusted() -> None:
    both = Webhooks("guard", "7", (("a", b"one two"), ("b", b"two")))
    assert both.trust(b"two")
    assert not both.trust(b"one")


async def test_only_bundles_that_differ_are_sent_and_nothing_else(
    client: Client, server: Scripted
) -> None:
    server.on("patch", PATH, reply({}))
    await set_bundle(client, Webhooks("guard", "7", (("a", b"new"), ("b", b"old"))), b"new")
    asked = server.last("patch")
    assert asked.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert asked.body == {
        "metadata": {"resourceVersion": "7"},
        "webhooks": [{"name": "b", "clientConfig": {"caBundle": "bmV3"}}],
    }


async def test_a_configuration_that_changed_meanwhile_is_a_conflict(
    client: Client, server: Scripted
) -> None:
    server.on("patch", PATH, failed(409, "Conflict"))
    with pytest.raises(Conflict):
        await set_bundle(client, Webhooks("guard", "7", (("a", b""),)), b"new")
