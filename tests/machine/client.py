"""The client's calls on the server in memory, and what may go wrong with them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import msgspec
import orjson

from quota_translator.core.names import GROUP, KINDS, KUEUE_GROUP, KUEUE_VERSION, QUOTA_KIND
from quota_translator.errors import (
    ApiError,
    Conflict,
    Forbidden,
    KueueUnavailable,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)
from quota_translator.kube.resources import QUOTAS, Resource
from quota_translator.kube.stream import WatchStream
from tests.machine.server import Object, Server

ACTOR: Final = "controller"
BOOKMARK_SECONDS: Final = 60.0
LATENCY_SECONDS: Final = 0.004


class Faults(msgspec.Struct):
    """What goes wrong, each with the share of calls that it meets (0 to 1)."""

    unavailable: float = 0.0  # no connection: nothing was done
    lost: float = 0.0  # done, but the answer did not come
    throttled: float = 0.0
    conflict: float = 0.0
    refused: float = 0.0
    forbidden: float = 0.0  # writes only
    kueue_down: bool = False  # Kueue's webhook: creates and updates of its kinds
    reads: float = 0.0  # lists, watches and GETs that fail
    deaf: bool = False  # watches bring nothing, although they stand


class Death(msgspec.Struct):
    """The process dies at a write: just before it is sent, or just after it was done."""

    writes_left: int
    after: bool


class MemoryClient:
    """Stands in for `kube.client.Client`. One for each life of a controller."""

    def __init__(self, server: Server, faults: Faults, random: Random) -> None:
        self.server = server
        self.faults = faults
        self.death: Death | None = None
        self.dead = False
        self.writes: list[str] = []
        self._random = random

    async def close(self) -> None:
        pass

    # --- reading --------------------------------------------------------------------------

    async def get(
        self, resource: Resource, name: str, namespace: str = "", seconds: float | None = None
    ) -> bytes:
        await self._reach()
        found = self.server.get((resource.kind, namespace, name))
        if found is None:
            raise NotFound(f"{resource.kind} {name} not found", status=404)
        return orjson.dumps(found)

    async def list_page(
        self,
        resource: Resource,
        token: str = "",
        limit: int = 0,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        await self._reach()
        self._served(resource)
        return self.server.listed(resource.kind)

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        version: str,
        *,
        seconds: float,
        silence: float,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[WatchStream]:
        await self._reach()
        self._served(resource)
        queue = self.server.watch(resource.kind, int(version))
        try:
            yield WatchStream(_Body(self, queue, seconds), silence)
        finally:
            self.server.unwatch(resource.kind, queue)

    async def served_versions(self, group: str) -> tuple[str, ...]:
        await self._reach()
        if group != KUEUE_GROUP or not self.server.served:
            raise NotFound(f"{group} is not served", status=404)
        return (KUEUE_VERSION,)

    async def served_kinds(self, group: str, version: str, verb: str = "") -> frozenset[str]:
        await self._reach()
        return frozenset({QUOTA_KIND} if group == GROUP else KINDS)

    async def schema(self, group: str, version: str) -> bytes:
        await self._reach()
        return b'{"queueingStrategy": {}, "concurrentAdmissionPolicy": {}}'

    # --- writing --------------------------------------------------------------------------

    async def create(
        self, resource: Resource, body: Mapping[str, Any], seconds: float | None = None
    ) -> bytes:
        what = f"create {resource.kind} {body}"
        return await self._write("create", resource, what, lambda: self._create(resource, body))

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        subresource: str = "",
        seconds: float | None = None,
        media: str = "",
    ) -> bytes:
        where = (resource.kind, namespace, name)
        is_status = subresource == "status"
        return await self._write(
            "patch",
            resource,
            f"patch {where} {patch}",
            lambda: self.server.patch(ACTOR, where, patch, status=is_status),
        )

    async def patch_status(self, resource: Resource, name: str, patch: Mapping[str, Any]) -> bytes:
        return await self.merge_patch(resource, name, patch, subresource="status")

    async def delete(self, resource: Resource, name: str, uid: str, namespace: str = "") -> bytes:
        where = (resource.kind, namespace, name)
        return await self._write(
            "delete", resource, f"delete {where}", lambda: self.server.delete(ACTOR, where, uid)
        )

    def _create(self, resource: Resource, body: Mapping[str, Any]) -> Object:
        namespace = body["metadata"].get("namespace", "")
        home = self.server.get(("Namespace", "", namespace))
        if namespace and (home is None or home["status"]["phase"] != "Active"):
            raise NotFound(f"namespace {namespace} is not there", status=404)
        return self.server.create(ACTOR, resource.kind, body)

    async def _write(self, verb: str, resource: Resource, what: str, do: Any) -> bytes:
        await self._latency()
        self._die(after=False)
        self._fail(verb, resource)
        done: Object | None = do()
        self.writes.append(what)
        self._die(after=True)
        await self._alive()
        if self._happens(self.faults.lost):
            raise Unavailable("no answer in time", outcome_unknown=True)
        return orjson.dumps(done or {"kind": "Status", "status": "Success"})

    # --- what goes wrong ------------------------------------------------------------------

    def _fail(self, verb: str, resource: Resource) -> None:
        faults, kueues = self.faults, resource.kind in KINDS
        if self._happens(faults.unavailable):
            raise Unavailable("connection refused")
        if self._happens(faults.throttled):
            raise Throttled("busy", status=429, retry_after=self._random.choice((None, 1.0, 40.0)))
        if self._happens(faults.forbidden):
            raise Forbidden("no", status=403, verb=verb, resource=str(resource))
        if kueues and verb != "delete" and faults.kueue_down:
            raise KueueUnavailable("failed calling webhook", status=500)
        if verb != "create" and self._happens(faults.conflict):
            raise Conflict("the object has been modified", status=409)
        if kueues and self._happens(faults.refused):
            raise Refused("denied the request", status=403)

    async def _reach(self) -> None:
        await self._latency()
        if self._happens(self.faults.reads):
            error: ApiError = Unavailable("connection reset")
            raise self._random.choice((error, Forbidden("no", status=403)))

    def _served(self, resource: Resource) -> None:
        if resource.kind in KINDS and not self.server.served:
            raise NotFound(f"{resource.kind} is not served", status=404)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    async def _latency(self) -> None:
        await self._alive()
        await asyncio.sleep(LATENCY_SECONDS * self._random.random())
        await self._alive()

    def _die(self, *, after: bool) -> None:
        if self.death is None or self.death.after is not after:
            return
        self.death.writes_left -= 1
        self.dead = self.death.writes_left <= 0

    async def _alive(self) -> None:
        if self.dead:  # this life is over: nothing that it does from here on counts
            await asyncio.Event().wait()


class _Body:
    """The body of a watch: lines as they come, bookmarks, and the end that was asked for."""

    def __init__(
        self, client: MemoryClient, queue: "asyncio.Queue[bytes | None]", seconds: float
    ) -> None:
        self._client = client
        self._queue = queue
        self._ends = asyncio.get_running_loop().time() + seconds

    async def readany(self) -> bytes:
        await self._client._alive()
        left = self._ends - asyncio.get_running_loop().time()
        if left <= 0:
            return b""
        if self._client.faults.deaf:
            await asyncio.sleep(left)
            return b""
        try:
            async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):
                line = await self._queue.get()
        except TimeoutError:
            return self._client.server.bookmark() if left > BOOKMARK_SECONDS else b""
        await asyncio.sleep(LATENCY_SECONDS)
        if line is None:
            raise Unavailable("connection reset")
        return line


__all__ = ["ACTOR", "QUOTAS", "Death", "Faults", "MemoryClient"]
