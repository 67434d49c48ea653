"""Events on the tree's nodes, as the API server takes them.

An AcceleratorQuota has no namespace, and the Events of such objects are kept in `default`.
"""

import uuid
from datetime import datetime
from typing import Any, Final

from quota_translator.core.happenings import Happening
from quota_translator.core.names import API_VERSION, QUOTA_KIND
from quota_translator.core.times import stamp
from quota_translator.kube.client import Client
from quota_translator.kube.resources import EVENTS

NAMESPACE: Final = "default"
COMPONENT: Final = "quota-translator"
MESSAGE_LIMIT: Final = 1024
_LONGEST_NAME: Final = 200  # of the node, in the name of its Event, which has at most 253
_SECONDS: Final = 5.0


class EventSink:
    """Writes Events. `instance` says which replica it was. Everything raises ApiError."""

    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def create(
        self, happening: Happening, first: datetime, last: datetime, count: int
    ) -> str:
        """A new Event; its name."""
        name = f"{happening.node[:_LONGEST_NAME]}.{uuid.uuid4().hex[:16]}"
        body = event(happening, name, self._instance, first, last, count)
        await self._client.create(EVENTS, body, seconds=_SECONDS)
        return name

    async def count(self, name: str, last: datetime, count: int) -> None:
        """The same happened again."""
        patch = {"count": count, "lastTimestamp": stamp(last)}
        await self._client.merge_patch(EVENTS, name, patch, NAMESPACE, seconds=_SECONDS)


def event(
    happening: Happening, name: str, instance: str, first: datetime, last: datetime, count: int
) -> dict[str, Any]:
    """The whole object."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": QUOTA_KIND,
            "name": happening.node,
            "uid": happening.uid,
        },
        "type": "Warning" if happening.is_warning else "Normal",
        "reason": happening.reason,
        "message": _cut(happening.message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": stamp(first),
        "lastTimestamp": stamp(last),
        "count": count,
    }


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 1]}…"
