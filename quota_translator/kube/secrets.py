"""A Secret with a certificate: read whole, created, and changed only as it was last seen."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from quota_translator.errors import Malformed
from quota_translator.kube.client import Client
from quota_translator.kube.decode import Payload
from quota_translator.kube.resources import SECRETS

TLS_TYPE: Final = "kubernetes.io/tls"
LABELS: Final = {"app.kubernetes.io/managed-by": "quota-translator"}


@dataclass(frozen=True)
class SecretRecord:
    namespace: str
    name: str
    version: str
    data: Mapping[str, bytes] = field(repr=False)


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _Wire(msgspec.Struct):
    metadata: _Meta
    data: dict[str, bytes | None] | None = None  # msgspec reads the base64


_decode: Final = msgspec.json.Decoder(_Wire).decode


def read_secret(payload: Payload) -> SecretRecord:
    """Raises Malformed, which holds nothing of the content."""
    try:
        found = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Malformed("unreadable Secret") from None
    data = {name: value or b"" for name, value in (found.data or {}).items()}
    metadata = found.metadata
    return SecretRecord(metadata.namespace, metadata.name, metadata.resource_version, data)


async def create_secret(
    client: Client, namespace: str, name: str, data: Mapping[str, bytes]
) -> bytes:
    """Raises AlreadyExists when another replica was faster."""
    body = {
        "apiVersion": "v1",
        "kind": SECRETS.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "type": TLS_TYPE,
        "data": _encoded(data),
    }
    return await client.create(SECRETS, body)


async def change_secret(
    client: Client, seen: SecretRecord, data: Mapping[str, bytes | None]
) -> bytes:
    """Set these keys (None: remove) and no others. Raises Conflict if it changed since `seen`."""
    patch = {"metadata": {"resourceVersion": seen.version}, "data": _encoded(data)}
    return await client.merge_patch(SECRETS, seen.name, patch, namespace=seen.namespace)


def _encoded(data: Mapping[str, bytes | None]) -> dict[str, Any]:
    return {
        name: None if value is None else base64.b64encode(value).decode()
        for name, value in data.items()
    }
