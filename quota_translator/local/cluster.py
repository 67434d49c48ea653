"""A folder of YAML in place of a cluster: the same port as the live one.

The folder's files are what was seen. Kueue's objects (`store.py`) and the tree's statuses are
written beneath the output folder, hidden inside the folder unless another is given, and read back
from there, so that a restart changes nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from quota_translator.core.actions import Plan
from quota_translator.core.names import KINDS, QUOTA_KIND, RESOURCE_FLAVOR, ROOT
from quota_translator.core.ports import Dirty
from quota_translator.core.results import Results, StatusResult, SyncState
from quota_translator.core.world import SPEC_FIELDS, Holding, QuotaNode, World
from quota_translator.local.files import Problem
from quota_translator.local.folder import QUIET_NS, Folder, Report, Scanned
from quota_translator.local.objects import NAMESPACE, NODE
from quota_translator.local.output import FOLDER, NodeState, Output, digest
from quota_translator.local.store import KueueStore
from quota_translator.local.watch import changes_in
from quota_translator.local.world import live_of, world_of

WATCHED: Final = (QUOTA_KIND, NODE, NAMESPACE, *KINDS)
_PATIENCE: Final = 8  # looks, 50 ms apart, before what is there is taken as it is
_SAVE_DELAY: Final = 0.05  # statuses come in crowds; the state file is written once for all


class LocalCluster:
    """`report` is called with one line for every fault of a file, and when it is mended."""

    def __init__(
        self,
        folder: Path,
        output: Path | None = None,
        *,
        manager: str = "quota-translator",
        report: Report = lambda _line: None,
        force_polling: bool = False,
    ) -> None:
        self.folder = folder
        self.output = Output(output or folder / FOLDER, manager)
        self._report = report
        self._force_polling = force_polling
        self._input = Folder(folder)
        self._written = Folder(self.output.objects)
        self._store = KueueStore(self.output, manager)
        self._scanned: Scanned | None = None
        self._nodes: dict[str, NodeState] = {}
        self._world: World | None = None
        self._dirty: Dirty = lambda _kind: None
        self._stopping = asyncio.Event()
        self._lock = asyncio.Lock()  # reading the output folder and writing to it take turns
        self._watching: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None

    # --- life -----------------------------------------------------------------------------

    async def start(self, dirty: Dirty) -> None:
        self._dirty = dirty
        self._stopping.clear()
        state = await asyncio.to_thread(self.output.read_state)
        if isinstance(state, Problem):
            self._report(f"{state}; it is written anew")
        else:
            self._nodes, self._store.deleted = state
        with contextlib.suppress(OSError):  # told when it is written to
            self.output.objects.mkdir(parents=True, exist_ok=True)
        await self._look()
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        self._stopping.set()
        if self._watching is not None:
            await self._watching
            self._watching = None
        if self._saving is not None:
            self._saving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._saving
            self._saving = None
            await self._save()

    async def _watch(self) -> None:
        roots = (self.folder, self.output.objects)
        async for _ in changes_in(roots, self._stopping, self._report, self._force_polling):
            await self._look()

    async def _look(self) -> None:
        """Read what changed in the input and in the output, and say which kinds differ."""
        before = self.snapshot() if self._scanned else None
        async with self._lock:
            scanned = await self._settled()
            written = await asyncio.to_thread(self._written.scan)
            self._scanned = scanned
            self._store.seen = live_of(scanned.loaded.entries)
            self._store.take(live_of(written.loaded.entries))
        self._forget(scanned)
        self._world = None
        for line in (*scanned.news, *written.news):
            self._report(line)
        for kind in _differing(before, self.snapshot()):
            self._dirty(kind)

    async def _settled(self) -> Scanned:
        """The input, with files that are being written left to rest; not for ever."""
        scanned = await asyncio.to_thread(self._input.scan)
        news = list(scanned.news)
        for _ in range(_PATIENCE):
            if not scanned.young:
                break
            await asyncio.sleep(QUIET_NS / 1e9)
            scanned = await asyncio.to_thread(self._input.scan)
            news += scanned.news
        return msgspec.structs.replace(scanned, news=tuple(news))

    def _forget(self, scanned: Scanned) -> None:
        """Drop what is remembered of objects that the input no longer has."""
        if scanned.unread:
            return
        self._store.deleted &= {str(key) for key in self._store.seen}
        declared = {entry.name for entry in scanned.loaded.entries if entry.quota} | {ROOT}
        for name in self._nodes.keys() - declared:
            del self._nodes[name]

    # --- reading --------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the input's files at this moment."""
        return self._scanned.problems if self._scanned else ()

    @property
    def count(self) -> int:
        """How many Kueue objects stand in the output folder, those of frozen nodes included."""
        return len(self._store.written)

    def where(self, source: str, field: str) -> str:
        """The file and line of a field of the node that was read at `source`."""
        return self._scanned.loaded.where(source, field) if self._scanned else source

    def snapshot(self) -> World:
        if self._world is None:
            self._world = self._make_world()
        return self._world

    def _make_world(self) -> World:
        scanned = self._scanned
        if scanned is None or scanned.unread:
            # A file that never made sense may hold anything: nothing is known to be complete.
            return World(quotas=None, heard=False)
        world = world_of(scanned.loaded)
        declared = {entry.name for entry in scanned.loaded.entries if entry.quota}
        there = declared | self._nodes.keys()
        quotas = [self._with_state(node) for node in world.quotas or () if node.name in there]
        return msgspec.structs.replace(
            world, quotas=tuple(quotas), live=self._store.live(), heard=not scanned.problems
        )

    def _with_state(self, node: QuotaNode) -> QuotaNode:
        """The node with what a server would keep for it."""
        state = self._nodes.get(node.name)
        if state is None:
            return msgspec.structs.replace(node, generation=1)
        edited = state.digest not in {"", _digest(node)}
        return msgspec.structs.replace(
            node, generation=state.generation + edited, status=state.status
        )

    def sync_states(self) -> Mapping[str, SyncState]:
        reason = "" if self._scanned else "the folder has not been read yet"
        if self._scanned and self._scanned.unread:
            reason = str(self._scanned.unread[0])
        world, now = self.snapshot(), time.monotonic()
        counts = {QUOTA_KIND: world.quotas, NODE: world.nodes, NAMESPACE: world.namespaces}
        sizes = {kind: len(records or ()) for kind, records in counts.items()}
        for key in world.live:
            sizes[key.kind] = sizes.get(key.kind, 0) + 1
        return {
            kind: SyncState(kind, not reason, reason, sizes.get(kind, 0), heard_at=now)
            for kind in WATCHED
        }

    # --- writing --------------------------------------------------------------------------

    async def apply(self, plan: Plan) -> Results:
        deleted = len(self._store.deleted)
        async with self._lock:
            results = await asyncio.to_thread(self._store.execute, tuple(plan.actions))
        self._world = None
        if len(self._store.deleted) != deleted:
            self._save_soon()
        for kind in {result.key.kind for result in results if result.outcome == "written"}:
            self._dirty(kind)
        return Results(results)

    async def write_status(self, node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        known = next((q for q in self.snapshot().quotas or () if q.name == node.name), None)
        if known is None:
            return StatusResult(node.name, "conflict", "the node is gone")
        self._nodes[node.name] = NodeState(known.generation, _digest(known), status)
        self._world = None
        self._save_soon()
        record = msgspec.structs.replace(known, status=status)
        return StatusResult(node.name, "written", record=record)

    async def write_metadata(self, node: QuotaNode, metadata: Mapping[str, Any]) -> StatusResult:
        """Files are people's alone, and `World.has_finalizers` says so."""
        del metadata
        return StatusResult(node.name, "unchanged")

    async def tree_stays(self) -> bool:
        return True

    async def holdings(self, queues: Collection[str]) -> Mapping[str, tuple[Holding, ...]]:
        """Nothing runs here."""
        del queues
        return {}

    async def create_root(self) -> None:
        quotas = self.snapshot().quotas
        if quotas is not None and all(node.name != ROOT for node in quotas):
            self._nodes[ROOT] = NodeState(1, "", {})
            self._world = None
            self._save_soon()
            self._dirty(QUOTA_KIND)

    def _save_soon(self) -> None:
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_later())

    async def _save_later(self) -> None:
        await asyncio.sleep(_SAVE_DELAY)
        await self._save()

    async def _save(self) -> None:
        nodes, deleted = dict(self._nodes), set(self._store.deleted)
        try:
            await asyncio.to_thread(self.output.write_state, nodes, deleted)
        except OSError as error:
            self._report(f"{error.filename}: cannot be written: {error.strerror}")


def _digest(node: QuotaNode) -> str:
    """By which a change of what the author wrote is told."""
    return digest(repr([getattr(node, field) for field in SPEC_FIELDS]))


def _differing(before: World | None, after: World) -> Iterable[str]:
    """The kinds of which anything differs; all of them when nothing was known before."""
    if before is None:
        return WATCHED
    kinds: set[str] = {
        key.kind
        for key in before.live.keys() | after.live.keys()
        if before.live.get(key) != after.live.get(key)
    }
    pairs = {
        QUOTA_KIND: (before.quotas, after.quotas),
        NODE: ((before.nodes, before.heard), (after.nodes, after.heard)),
        NAMESPACE: (before.namespaces, after.namespaces),
        RESOURCE_FLAVOR: (before.flavors, after.flavors),
    }
    kinds.update(kind for kind, (was, now) in pairs.items() if was != now)
    return [kind for kind in WATCHED if kind in kinds]
