"""The API server as a `Cluster`: reflectors and stores to read, an applier to write."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import msgspec
import structlog

from quota_translator.core.actions import Plan
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    LOCAL_QUEUE,
    QUOTA_KIND,
    ROOT,
    Key,
    Kind,
)
from quota_translator.core.ports import Dirty
from quota_translator.core.results import Results, StatusResult, SyncState
from quota_translator.core.world import (
    Facts,
    Flavor,
    Holding,
    Namespace,
    Node,
    Observed,
    QuotaNode,
    World,
)
from quota_translator.errors import ApiError
from quota_translator.kube.apply import Applier, untouched
from quota_translator.kube.client import Client
from quota_translator.kube.decode import (
    WATCHED_FLAVORS,
    WATCHED_NAMESPACES,
    WATCHED_NODES,
    WATCHED_QUOTAS,
    FlavorRecord,
    K,
    R,
    Watched,
    watched_kueue,
)
from quota_translator.kube.discovery import Discovery
from quota_translator.kube.live import Live
from quota_translator.kube.reflector import Reflector, Timing
from quota_translator.kube.statuses import Statuses
from quota_translator.kube.store import Store
from quota_translator.kube.workloads import Workloads

_log = structlog.get_logger(__name__)
_OTHERS: Final[tuple[Kind, ...]] = (COHORT, CLUSTER_QUEUE, LOCAL_QUEUE)
# A reflector that dies of a mistake of this program is started again after this many seconds.
RESTART_SECONDS: Final = 30.0


class KubeCluster:
    """One cluster behind one client. `start`, read and write, `stop`.

    `measure` False: nodes are neither listed nor watched, and no permission for them is needed.
    """

    def __init__(
        self,
        client: Client,
        manager: str,
        *,
        measure: bool = True,
        concurrency: int = 16,
        timing: Timing | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._timing = timing
        self._now, self._sleep, self._rand = now, sleep, rand
        self._dirty: Dirty = lambda _kind: None
        self._tasks: list[asyncio.Task[None]] = []
        self._reflectors: dict[str, Reflector[Any, Any]] = {}
        self._quotas: Store[str, QuotaNode] = self._follow(WATCHED_QUOTAS)
        self._nodes: Store[str, Node] | None = self._follow(WATCHED_NODES) if measure else None
        self._namespaces: Store[str, Namespace] = self._follow(WATCHED_NAMESPACES)
        self._flavors: Store[Key, FlavorRecord] = self._follow(WATCHED_FLAVORS)
        others: dict[Kind, Store[Key, Observed]] = {
            kind: self._follow(watched_kueue(kind)) for kind in _OTHERS
        }
        self._live = Live(self._flavors, others)
        self._discovery = Discovery(
            client, lambda: self._dirty("Discovery"), now=now, sleep=sleep, rand=rand
        )
        self._applier = Applier(
            client, self._live, manager, concurrency=concurrency, now=now, sleep=sleep
        )
        self._statuses = Statuses(client, self._quotas, now=now, sleep=sleep)
        self._workloads = Workloads(client, now)

    def _follow(self, watched: Watched[K, R]) -> Store[K, R]:
        kind = watched.resource.kind
        store = Store[K, R](kind, watched.key, watched.version, self._changed)
        self._reflectors[kind] = Reflector(
            self._client,
            watched,
            store,
            timing=self._timing,
            now=self._now,
            sleep=self._sleep,
            rand=self._rand,
        )
        return store

    def _changed(self, kind: str) -> None:
        if kind in KINDS and not self._reflectors[kind].served:
            self._discovery.ask()
        self._dirty(kind)

    # --- life -----------------------------------------------------------------------------

    async def start(self, dirty: Dirty) -> None:
        self._dirty = dirty
        for kind, reflector in self._reflectors.items():
            self._tasks.append(
                asyncio.create_task(self._supervise(reflector), name=f"follow {kind}")
            )
        self._tasks.append(asyncio.create_task(self._discovery.run(), name="discovery"))

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _supervise(self, reflector: Reflector[Any, Any]) -> None:
        while True:
            try:
                await reflector.run()
            except Exception:  # noqa: BLE001 - one kind must not take the others with it
                kind = reflector.store.kind
                _log.exception("following a kind failed", kind=kind)
                reflector.store.unsync(f"following {kind} failed unexpectedly; see the log")
                await self._sleep(RESTART_SECONDS)

    # --- reading --------------------------------------------------------------------------

    def snapshot(self) -> World:
        flavors: tuple[Flavor, ...] | None = None
        if self._flavors.synced:
            flavors = tuple(record.flavor for record in self._flavors.values())
        return World(
            quotas=self._quotas.values() if self._quotas.synced else None,
            nodes=self._seen_nodes(),
            flavors=flavors,
            namespaces=self._namespaces.values() if self._namespaces.synced else None,
            live=self._live.snapshot(),
            known=self._live.known(),
            facts=self._facts(),
            heard=self._heard(),
        )

    def root(self) -> QuotaNode | None:
        """The node `root` as it was last seen."""
        return self.quota(ROOT)

    def quota(self, name: str) -> QuotaNode | None:
        """A node of the tree as it was last seen."""
        return self._quotas.get(name)

    def _seen_nodes(self) -> tuple[Node, ...] | None:
        """None also while nobody looks: a wait must not fall due on what was seen long ago."""
        if self._nodes is None or not self._nodes.synced or self._reflectors["Node"].lost:
            return None
        return self._nodes.values()

    def _heard(self) -> bool:
        kinds = [store.kind for store in (self._flavors, self._nodes) if store is not None]
        return all(map(self._is_heard, kinds))

    def _is_heard(self, kind: str) -> bool:
        """Of nodes something must be said: a watch that opens and stays mute measures nothing."""
        return self._reflectors[kind].heard(self._now(), body=kind == "Node")

    def _facts(self) -> Facts:
        """Discovery's word, corrected by what the reflectors met since."""
        facts, known = self._discovery.facts, self._live.known()
        if facts.served is None:
            return facts
        served = {kind for kind in KINDS if self._reflectors[kind].served}
        return msgspec.structs.replace(facts, served=frozenset(served & (facts.served | known)))

    def sync_states(self) -> Mapping[str, SyncState]:
        return {kind: self._sync_state(kind) for kind in self._reflectors}

    def _sync_state(self, kind: str) -> SyncState:
        reflector = self._reflectors[kind]
        store, reason = reflector.store, reflector.store.reason
        versions = self._discovery.facts.kueue_versions
        if kind in KINDS and not reflector.served and versions:
            reason += f" (served versions: {', '.join(versions)})"
        return SyncState(
            kind,
            store.synced,
            reason,
            len(store),
            reflector.served,
            reflector.heard_at,
            store.decided,
            self._is_heard(kind),
        )

    # --- writing --------------------------------------------------------------------------

    async def apply(self, plan: Plan) -> Results:
        if any(action.verb == "delete" for action in plan.actions):
            why = await self._tree_ends()
            if why:
                return untouched(plan, why)
        return await self._applier.apply(plan)

    async def _tree_ends(self) -> str:
        """Why the tree's deletions are no orders to delete; "": they are."""
        try:
            if await self._discovery.tree_stays():
                return ""
        except ApiError as error:
            return f"cannot tell whether {QUOTA_KIND} is there to stay: {error.message}"
        why = f"{QUOTA_KIND} is being removed from the server; Kueue's objects stay as they are"
        self._quotas.unsync(why)
        return why

    async def write_status(self, node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        return await self._statuses.write(node, status)

    async def write_metadata(self, node: QuotaNode, metadata: Mapping[str, Any]) -> StatusResult:
        return await self._statuses.write_metadata(node, metadata)

    async def tree_stays(self) -> bool:
        return await self._discovery.tree_stays()

    async def holdings(self, queues: Collection[str]) -> Mapping[str, tuple[Holding, ...]]:
        return await self._workloads.of(queues)

    async def create_root(self) -> None:
        await self._statuses.create_root()
