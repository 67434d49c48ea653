"""Writes of AcceleratorQuotas: their statuses, and the node `root`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from quota_translator.core import statusdiff
from quota_translator.core.names import ROOT
from quota_translator.core.results import Outcome, StatusResult
from quota_translator.core.world import QuotaNode
from quota_translator.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)
from quota_translator.kube import bodies
from quota_translator.kube.client import Client
from quota_translator.kube.decode import read_quota
from quota_translator.kube.gate import Gate
from quota_translator.kube.resources import QUOTAS
from quota_translator.kube.store import Store


class Statuses:
    """Writes what differs, and takes every answer into the store at once."""

    def __init__(
        self,
        client: Client,
        store: Store[str, QuotaNode],
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._store = store
        self._gate = Gate(now, sleep, patience=10.0, attempts=2)

    async def write(self, node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        """Patch the status from what is stored to `status`. `node` is what it was computed from:
        root, whose marks must not be overwritten unseen, is only written over that version."""
        held = self._store.get(node.name)
        if held is None or held.uid != node.uid:
            return StatusResult(node.name, "conflict", "the object is gone")
        patch = statusdiff.merge_patch(held.status, status)
        if not patch:
            return StatusResult(node.name, "unchanged", record=held)
        metadata = {"uid": node.uid}
        if node.name == ROOT:
            metadata["resourceVersion"] = node.resource_version
        try:
            return await self._send(held, {"metadata": metadata, "status": patch})
        except Conflict as error:
            return await self._read_again(node.name, error)
        except NotFound:
            self._store.remove_answer(node.name)
            return StatusResult(node.name, "conflict", "the object is gone")
        except ApiError as error:
            asked = error.retry_after
            return StatusResult(node.name, _outcome(error), error.message, retry_after=asked)

    async def _send(self, held: QuotaNode, patch: Mapping[str, Any]) -> StatusResult:
        answer = await self._gate.send(lambda: self._client.patch_status(QUOTAS, held.name, patch))
        record = read_quota(answer)
        # An edit that the answer shows first must not be lost: the watch will not tell it again.
        self._store.put_answer(record, quiet=_differs_in_status_only(held, record))
        same = record.resource_version == held.resource_version
        return StatusResult(held.name, "unchanged" if same else "written", record=record)

    async def _read_again(self, name: str, error: Conflict) -> StatusResult:
        try:
            self._store.put_answer(read_quota(await self._client.get(QUOTAS, name)))
        except NotFound:
            self._store.remove_answer(name)
        except ApiError as unread:
            return StatusResult(name, _outcome(unread), unread.message)
        return StatusResult(name, "conflict", error.message)

    async def create_root(self) -> None:
        """Create `root`, or take the one that is there. Raises ApiError."""
        try:
            answer = await self._gate.send(lambda: self._client.create(QUOTAS, bodies.root()))
        except AlreadyExists:
            answer = await self._client.get(QUOTAS, ROOT)
        self._store.put_answer(read_quota(answer))


def _differs_in_status_only(held: QuotaNode, record: QuotaNode) -> bool:
    as_held = msgspec.structs.replace(
        record, status=held.status, resource_version=held.resource_version
    )
    return as_held == held


def _outcome(error: ApiError) -> Outcome:
    if isinstance(error, Throttled):
        return "throttled"
    if isinstance(error, Unavailable):
        return "unavailable"
    return "refused" if isinstance(error, Refused) else "failed"
