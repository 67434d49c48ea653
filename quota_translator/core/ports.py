"""What the controller needs of a cluster, be it an API server or a folder of files.

Typing only. `kube/` and `local/` implement it, and neither knows the other.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from quota_translator.core.actions import Plan
from quota_translator.core.results import Results, StatusResult, SyncState
from quota_translator.core.world import Holding, QuotaNode, World

Dirty = Callable[[str], None]  # called with the kind that changed; may be called very often


class Cluster(Protocol):
    """A place that is read as a `World` and written with plans and statuses."""

    async def start(self, dirty: Dirty) -> None:
        """Begin to follow the cluster; returns at once, before anything is synced."""

    async def stop(self) -> None:
        """Let go of everything. Safe to call twice, and without a start."""

    def snapshot(self) -> World:
        """Everything that is known at this moment; immutable."""

    async def apply(self, plan: Plan) -> Results:
        """Execute a plan. Never raises for what a server answers: that is in the results."""

    async def write_status(self, node: QuotaNode, status: Mapping[str, Any]) -> StatusResult:
        """Make `status` the status of that node, `node` being what it was computed from."""

    async def write_metadata(self, node: QuotaNode, metadata: Mapping[str, Any]) -> StatusResult:
        """Merge this into the metadata of that node, unless it has changed since it was read."""

    async def tree_stays(self) -> bool:
        """False: the tree's kind is being taken away, so that the end of a node is not an order to
        take anything out of Kueue. Raises QuotaTranslatorError when nobody can tell."""

    async def holdings(self, queues: Collection[str]) -> Mapping[str, tuple[Holding, ...]]:
        """The workloads in these ClusterQueues; of queues that nobody may ask about, nothing."""

    async def create_root(self) -> None:
        """Create the AcceleratorQuota `root` if it is not there. Raises QuotaTranslatorError."""

    def sync_states(self) -> Mapping[str, SyncState]:
        """By kind, what is synced and why something is not."""
