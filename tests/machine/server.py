"""An API server in memory: objects as JSON, versions, watches, finalizers, preconditions.

It knows what planning and applying rely on, and no more. That a real server behaves so is what the
end-to-end tests show; here the point is how many things can happen in any order.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from quota_translator.errors import AlreadyExists, Conflict, Gone, NotFound

Where = tuple[str, str, str]  # kind, namespace, name
Object = dict[str, Any]
# Called before and after each change with the actor, the place and the object (None: not there).
Hook = Callable[[str, Where, Object | None, Object | None], None]


class Server:
    """`now` gives seconds. Hooks are told of every change, and raise when a promise is broken."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.objects: dict[Where, Object] = {}
        self.version = 100
        self.compacted = 0  # watches from before this version have expired
        self.hooks: list[Hook] = []
        self.served = True  # Kueue's kinds
        self._now = now
        self._uids = 0
        self._log: dict[str, list[tuple[int, bytes]]] = {}
        self._watchers: dict[str, set[asyncio.Queue[bytes | None]]] = {}

    # --- reading --------------------------------------------------------------------------

    def get(self, where: Where) -> Object | None:
        return self.objects.get(where)

    def all(self, kind: str) -> list[Object]:
        return [found for where, found in sorted(self.objects.items()) if where[0] == kind]

    def listed(self, kind: str) -> bytes:
        metadata = {"resourceVersion": str(self.version)}
        return orjson.dumps({"kind": "List", "metadata": metadata, "items": self.all(kind)})

    def watch(self, kind: str, version: int) -> "asyncio.Queue[bytes | None]":
        """Events after `version`, as lines; None ends it. Raises Gone."""
        if version < self.compacted:
            raise Gone("too old resource version", status=410)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for number, line in self._log.get(kind, ()):
            if number > version:
                queue.put_nowait(line)
        self._watchers.setdefault(kind, set()).add(queue)
        return queue

    def unwatch(self, kind: str, queue: "asyncio.Queue[bytes | None]") -> None:
        self._watchers[kind].discard(queue)

    def end_watches(self) -> None:
        for queues in self._watchers.values():
            for queue in queues:
                queue.put_nowait(None)

    def compact(self) -> None:
        """Forget the past: who was not listening has to list."""
        self.compacted = self.version
        self._log.clear()

    def bookmark(self) -> bytes:
        at = {"metadata": {"resourceVersion": str(self.version)}}
        return orjson.dumps({"type": "BOOKMARK", "object": at}) + b"\n"

    # --- writing --------------------------------------------------------------------------

    def create(self, actor: str, kind: str, body: Mapping[str, Any]) -> Object:
        made = copy.deepcopy(dict(body))
        where = _where(kind, made)
        if where in self.objects:
            raise AlreadyExists(f"{where} already exists", status=409)
        self._uids += 1
        made["metadata"] |= {
            "uid": f"uid-{self._uids}",
            "generation": 1,
            "creationTimestamp": f"{self._now():.0f}",
        }
        return self._store(actor, where, made)

    def patch(
        self, actor: str, where: Where, patch: Mapping[str, Any], *, status: bool = False
    ) -> Object:
        """A merge patch with uid and resourceVersion as preconditions."""
        before = self._existing(where)
        metadata = dict(patch.get("metadata", {}))
        for field in ("uid", "resourceVersion"):
            if field in metadata and metadata.pop(field) != before["metadata"][field]:
                raise Conflict(f"{where}: another {field}", status=409)
        after = copy.deepcopy(before)
        fields = ("status",) if status else ("spec",)
        for field in fields:
            if field in patch:
                after[field] = merged(after.get(field), patch[field])
        if not status and metadata:
            after["metadata"] = merged(after["metadata"], metadata)
        if after == before:
            return before
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        if _is_over(after):
            return self._remove(actor, where)
        return self._store(actor, where, after)

    def delete(self, actor: str, where: Where, uid: str = "") -> Object | None:
        """None: it is gone. Otherwise finalizers hold it."""
        before = self._existing(where)
        if uid and uid != before["metadata"]["uid"]:
            raise Conflict(f"{where}: another uid", status=409)
        if not before["metadata"].get("finalizers"):
            self._remove(actor, where)
            return None
        if before["metadata"].get("deletionTimestamp"):
            return before
        after = copy.deepcopy(before)
        after["metadata"] |= {
            "deletionTimestamp": f"{self._now():.0f}",
            "generation": before["metadata"]["generation"] + 1,
        }
        return self._store(actor, where, after)

    # --- inside ---------------------------------------------------------------------------

    def _existing(self, where: Where) -> Object:
        found = self.objects.get(where)
        if found is None:
            raise NotFound(f"{where} not found", status=404)
        return found

    def _store(self, actor: str, where: Where, made: Object) -> Object:
        before = self.objects.get(where)
        self._stamp(made)
        self.objects[where] = made
        self._tell(where[0], "MODIFIED" if before else "ADDED", made)
        self._hook(actor, where, before, made)
        return made

    def _remove(self, actor: str, where: Where) -> Object:
        before = self.objects.pop(where)
        last = copy.deepcopy(before)
        self._stamp(last)
        self._tell(where[0], "DELETED", last)
        self._hook(actor, where, before, None)
        return last

    def _stamp(self, made: Object) -> None:
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)

    def _tell(self, kind: str, event: str, made: Object) -> None:
        line = orjson.dumps({"type": event, "object": made}) + b"\n"
        self._log.setdefault(kind, []).append((self.version, line))
        for queue in self._watchers.get(kind, ()):
            queue.put_nowait(line)

    def _hook(self, actor: str, where: Where, before: Object | None, after: Object | None) -> None:
        for hook in self.hooks:
            hook(actor, where, before, after)


def _where(kind: str, made: Mapping[str, Any]) -> Where:
    return kind, made["metadata"].get("namespace", ""), made["metadata"]["name"]


def _is_over(made: Object) -> bool:
    metadata = made["metadata"]
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(old) if isinstance(old, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
