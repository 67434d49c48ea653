"""A ValidatingWebhookConfiguration: the CA bundles in it, and nothing else of it.

The configuration itself is the chart's. A strategic merge patch finds each webhook by its name and
sends nothing but its bundle, so that nothing but the bundle becomes ours: what the chart applies
later, without bundles, meets no field of ours and leaves our bundles where they are.
"""

import base64
from dataclasses import dataclass
from typing import Final

import msgspec

from quota_translator.errors import Malformed
from quota_translator.kube.client import STRATEGIC_PATCH, Client
from quota_translator.kube.decode import Payload
from quota_translator.kube.resources import WEBHOOKS


@dataclass(frozen=True)
class Webhooks:
    """One configuration: the bundle of each of its webhooks."""

    name: str
    version: str
    bundles: tuple[tuple[str, bytes], ...]  # the webhook's name and its bundle, b"" for none

    def trust(self, authority: bytes) -> bool:
        """Whether every bundle holds this certificate (PEM)."""
        return all(authority in bundle for _, bundle in self.bundles)

    def other_than(self, bundle: bytes) -> list[str]:
        """The webhooks that have another bundle."""
        return [name for name, found in self.bundles if found != bundle]


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _Client(msgspec.Struct, rename="camel"):
    ca_bundle: bytes | None = None  # msgspec reads the base64


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _Client = msgspec.field(default_factory=_Client)


class _Wire(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] | None = None


_decode: Final = msgspec.json.Decoder(_Wire).decode


def read_webhooks(payload: Payload) -> Webhooks:
    """Raises Malformed."""
    try:
        found = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"unreadable {WEBHOOKS.kind}: {error}") from error
    bundles = tuple((w.name, w.client_config.ca_bundle or b"") for w in found.webhooks or ())
    return Webhooks(found.metadata.name, found.metadata.resource_version, bundles)


async def set_bundle(client: Client, seen: Webhooks, bundle: bytes) -> bytes:
    """Put the bundle into every webhook that lacks it. Raises Conflict when the configuration
    changed since `seen`: without that, a webhook that is gone would be added again."""
    text = base64.b64encode(bundle).decode()
    hooks = [{"name": name, "clientConfig": {"caBundle": text}} for name in seen.other_than(bundle)]
    patch = {"metadata": {"resourceVersion": seen.version}, "webhooks": hooks}
    return await client.merge_patch(WEBHOOKS, seen.name, patch, media=STRATEGIC_PATCH)
