"""Writes of AcceleratorQuotas: their statuses, their finalizers, and the node `root`."""

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
from quota_translator.kube.resources import QUOTAS, Resource
from quota_translator.kube.store import Store

Send = Callable[[Resource, str, Mapping[str, Any]], Awaitable[bytes]]


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
        return await self._send(
            held, {"metadata": metadata, "status": patch}, self._client.patch_status
        )

    async def write_metadata(self, node: QuotaNode, metadata: Mapping[str, Any]) -> StatusResult:
        """Merge `metadata` into the node's, if it is still the very version `node`."""
        held = self._store.get(node.name)
        if held is None or held.uid != node.uid:
            return StatusResult(node.name, "conflict", "the object is gone")
        conditions = {"uid": node.uid, "resourceVersion": node.resource_version}
        patch = {"metadata": {**metadata, **conditions}}
        return await self._send(held, patch, self._client.merge_patch)

    async def _send(self, held: QuotaNode, patch: Mapping[str, Any], send: Send) -> StatusResult:
        try:
            answer = await self._gate.send(lambda: send(QUOTAS, held.name, patch))
        except Conflict as error:
            return await self._read_again(held.name, error)
        except NotFound:
            self._store.remove_answer(held.name)
            return StatusResult(held.name, "conflict", "the object is gone")
        except ApiError as error:
            asked = error.retry_after
            return StatusResult(held.name, _outcome(error), error.message, retry_after=asked)
        return self._taken(held, read_quota(answer))

    def _taken(self, held: QuotaNode, record: QuotaNode) -> StatusResult:
        if record.deleting and not record.finalizers:
            self._store.remove_answer(held.name)  # nothing held it any more
            return StatusResult(held.name, "written", record=record)
        # An edit that the answer shows first must not be lost: the watch will not tell it again.
        self._store.put_answer(record, quiet=_differs_in_ours_only(held, record))
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


def _differs_in_ours_only(held: QuotaNode, record: QuotaNode) -> bool:
    """In what this program writes itself, which asks for no pass."""
    as_held = msgspec.structs.replace(
        record,
        status=held.status,
        resource_version=held.resource_version,
        finalizers=held.finalizers,
    )
    return as_held == held


def _outcome(error: ApiError) -> Outcome:
    if isinstance(error, Throttled):
        return "throttled"
    if isinstance(error, Unavailable):
        return "unavailable"
    return "refused" if isinstance(error, Refused) else "failed"
