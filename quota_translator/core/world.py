"""The spine in types: what was seen (World), what was believed (Memory), and when (Clock).

Everything here is a frozen record of plain values. Records are compact on purpose: a cluster of
15,000 nodes and 20,000 LocalQueues must fit in memory beside the program, so nothing keeps raw
JSON. `None` in place of a collection always means "not known" (unsynced, not served, unreadable),
which is never the same as "there is none". Records of which there are many are kept out of the
garbage collector (`gc=False`): plain values form no cycles, and looking for some among 50,000
records would stop the program for a tenth of a second.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from quota_translator.core.names import Key, Pair, pair_of
from quota_translator.core.quantity import Quantity

Role = Literal["Cohort", "ClusterQueue"]
# Kueue's words for who may be evicted.
ReclaimPolicy = Literal["Never", "LowerPriority", "Any"]
WithinPolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
BorrowPolicy = Literal["Never", "LowerPriority"]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]


class Clock(msgspec.Struct, frozen=True):
    """Two clocks read at one moment.

    `wall` (aware, UTC) is for what people read; `steady` (seconds, monotonic) is for what is waited
    for, so that a jump of the wall clock can neither shorten nor lengthen a wait.
    """

    wall: datetime
    steady: float


# --- the cluster's hardware -------------------------------------------------------------------


class Node(msgspec.Struct, frozen=True, gc=False):
    """A machine, reduced to what measuring needs.

    `capacity` and `allocatable` hold extended resources only (names with a slash), in the order of
    their names. An amount that is not a quantity is None: unknown, not zero.
    """

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, Quantity | None]
    allocatable: Mapping[str, Quantity | None]
    cordoned: bool = False
    ready: bool = True  # only a Ready condition that is "True" counts as ready


class Flavor(msgspec.Struct, frozen=True, gc=False):
    """A Kueue ResourceFlavor as measuring, checking and rendering see it."""

    name: str
    uid: str = ""
    node_labels: Mapping[str, str] = {}
    topology: str = ""  # spec.topologyName, "" when unset
    taints: int = 0  # how many nodeTaints, for Kueue's own limits
    tolerations: int = 0
    deleting: bool = False  # has a deletionTimestamp: it exists until nothing uses it


class Namespace(msgspec.Struct, frozen=True, gc=False):
    name: str
    labels: Mapping[str, str] = {}
    terminating: bool = False


# --- the tree ---------------------------------------------------------------------------------


class FieldFault(msgspec.Struct, frozen=True, gc=False):
    """A field that could not be read or that breaks a rule of its own: where, and what is wrong."""

    path: str  # such as spec.budgets[2].nominal
    message: str


class Budget(msgspec.Struct, frozen=True, gc=False):
    """One entry of spec.budgets. Unreadable amounts are 0 here, and a FieldFault of the node."""

    resource: str
    flavor: str
    nominal: Quantity
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None
    enforced: bool | None = None
    index: int = 0  # position in spec.budgets, for field paths
    policy: str | None = None
    per_cluster: bool = False  # has perCluster rows (fleet mode; without effect here)

    @property
    def pair(self) -> Pair:
        return pair_of(self.resource, self.flavor)


class Expected(msgspec.Struct, frozen=True, gc=False):
    """One entry of root's expectedCapacity. Unreadable ones are left out, and a FieldFault."""

    pair: Pair
    quantity: Quantity
    index: int = 0


class QuotaNode(msgspec.Struct, frozen=True, gc=False):
    """An AcceleratorQuota as the tree sees it: never raises, carries its own faults.

    `status` is the status as stored (plain JSON), used to start from after a restart and to tell
    whether a new one differs. `source` says where it was read ("file.yaml:12"), for people.
    """

    name: str
    role: str  # "Cohort" or "ClusterQueue"; anything else is a violation, not an error
    parent: str | None = None  # None: no parentRef
    budgets: tuple[Budget, ...] = ()
    faults: tuple[FieldFault, ...] = ()
    # In full, in the form of a ClusterQueue; None: that of the nearest ancestor applies.
    preemption: Mapping[str, Any] | None = None
    # Of a team: a LabelSelector of its own namespaces; None: every enrolled one may submit.
    namespaces: Mapping[str, Any] | None = None
    expected: tuple[Expected, ...] = ()  # of root
    stop_policy: str | None = None  # of a team; None: people's own stops are left alone
    fair_weight: Quantity | None = None
    priority_tier: str | None = None
    distribution: bool = False  # has spec.distribution
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created: str = ""  # creationTimestamp, RFC 3339
    deleting: bool = False
    deleted: str = ""  # deletionTimestamp, RFC 3339
    finalizers: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    status: Mapping[str, Any] = {}
    source: str = ""


# What is not of the spec: metadata, status, and where it was read.
_METADATA: Final = ("name", "uid", "resource_version", "generation", "created", "deleting")
_OTHER: Final = {*_METADATA, "deleted", "finalizers", "annotations", "status", "source"}
# What a person writes in a spec, and what is wrong with it. A field that is new is one of these.
SPEC_FIELDS: Final = tuple(f for f in QuotaNode.__struct_fields__ if f not in _OTHER)


def same_spec(one: QuotaNode, other: QuotaNode) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in SPEC_FIELDS)


# --- Kueue's objects --------------------------------------------------------------------------


class Amount(msgspec.Struct, frozen=True, gc=False):
    """What a ClusterQueue's status says about one pair."""

    total: Quantity
    borrowed: Quantity


class Observed(msgspec.Struct, frozen=True, gc=False):
    """A Kueue object as the store shows it: the fields that we state, and what its status tells.

    `spec` holds only fields of which this program has an opinion, in the *normal form* of
    `core/kueue.py`: plain dicts and lists in which quantities are `Quantity` values, so that
    `==` compares by value. Fields that are ours whole (resourceGroups) are held whole.
    """

    key: Key
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deleting: bool = False
    managed_by: str | None = None  # our three labels; None when absent
    quota: str | None = None
    part: str | None = None
    spec: Mapping[str, Any] = {}
    # Read from status (ClusterQueue, LocalQueue):
    active: bool | None = None  # the Active condition; None: not told yet
    active_reason: str = ""
    active_message: str = ""
    active_generation: int = 0  # Active.observedGeneration: Kueue has taken that spec
    usage: Mapping[Pair, Amount] | None = None  # flavorsUsage: admitted
    reservation: Mapping[Pair, Amount] | None = None  # flavorsReservation
    reserving_workloads: int = 0
    is_idle: bool = True  # a LocalQueue that no workload waits in or holds anything through
    stop_policy: str = ""  # people's brake; shown, never written
    # What else people set on a ClusterQueue, in words ("queueingStrategy StrictFIFO"); shown too.
    peoples: tuple[str, ...] = ()
    # Who wrote the spec last other than us, from managedFields ("" when unknown).
    last_manager: str = ""


class Holding(msgspec.Struct, frozen=True, gc=False):
    """A workload that holds quota of a ClusterQueue."""

    queue: str
    name: str  # as people know it, such as "Job ml-serving/train"
    since: str  # RFC 3339
    amounts: Mapping[Pair, Quantity]


class Desired(msgspec.Struct, frozen=True, gc=False):
    """A Kueue object as the tree wants it, in the same normal form as `Observed.spec`.

    `nodes` are the tree's nodes it comes from: an object may have several, a node several objects.
    """

    key: Key
    quota: str  # the value of the quota label
    nodes: frozenset[str]
    spec: Mapping[str, Any]
    part: str | None = None


class Facts(msgspec.Struct, frozen=True):
    """What the cluster can do. `served` None: not known (local mode: everything is served)."""

    served: frozenset[str] | None = None  # Kueue kinds served as v1beta2
    kueue_versions: tuple[str, ...] = ()  # versions of kueue.x-k8s.io that are served
    kueue_release: tuple[int, int] | None = None  # (0, 19); None: unknown


class World(msgspec.Struct, frozen=True):
    """Everything that was seen, at one moment. None: that kind is not known, so not acted on."""

    quotas: tuple[QuotaNode, ...] | None
    nodes: tuple[Node, ...] | None = None
    flavors: tuple[Flavor, ...] | None = None
    namespaces: tuple[Namespace, ...] | None = None
    # Live Kueue objects by key, everybody's. A kind that is missing from `known` is not known.
    live: Mapping[Key, Observed] = {}
    known: frozenset[str] = frozenset()
    facts: Facts = Facts()
    # The node and flavor watches heard from the server lately enough to stamp (design, Capacity).
    heard: bool = True
    # Nodes of the tree bear finalizers, so one that vanishes without having been released is an
    # accident. False in files: there a node that is gone was taken away.
    has_finalizers: bool = True


# --- what was believed ------------------------------------------------------------------------

WaitKind = Literal["Settle", "Drop", "Grow"]


class Wait(msgspec.Struct, frozen=True):
    """A change that is not believed yet.

    `elapsed` is how many steady seconds it had lasted at the steady moment `counted_at`; None there
    means "as read from root's status", and counting goes on from the first measurement after it.
    """

    kind: WaitKind
    value: Quantity
    since: datetime
    elapsed: float = 0.0
    counted_at: float | None = None
    until: datetime | None = None  # for people; None: never


class CapacityRow(msgspec.Struct, frozen=True):
    """One row of root.status.capacity: the last reading of a pair, its mark, and its waits."""

    pair: Pair
    allocatable: Quantity  # on nodes that are Ready and not cordoned
    unavailable: Quantity  # on the others
    unhealthy: Quantity  # on Ready nodes: listed in capacity, not offered in allocatable
    installed: Quantity  # allocatable + unavailable
    mark: Quantity  # the high-water mark that budgets are checked against
    nodes: int = 0  # nodes behind `allocatable`
    unavailable_nodes: int = 0
    pending: tuple[Wait, ...] = ()
    observed_at: datetime | None = None  # None: never measured
    measured: bool = True  # False: no node reports the pair now; mark and stamp are kept
    ever_seen: bool = True  # False: 0 because no node has ever reported it


class Settling(msgspec.Struct, frozen=True):
    """What a write took away and Kueue may not have taken yet: larger old amounts, old places."""

    nominal: Mapping[Pair, Quantity]
    generation: int  # a ClusterQueue has settled when Active.observedGeneration reaches it
    until: float  # steady; a Cohort, which has no status, has settled then
    limits: Mapping[Pair, Quantity] = {}  # the larger old borrowingLimits
    parents: tuple[str, ...] = ()  # Cohorts it stood beneath; Kueue may still see it there


class Refusal(msgspec.Struct, frozen=True):
    """A write that the server refused for good: not sent again until what is wanted changes."""

    spec: Mapping[str, Any]
    message: str


class Drift(msgspec.Struct, frozen=True):
    """Repairs of one object: when (steady), by whom it was changed, and which fields."""

    at: tuple[float, ...]
    manager: str
    fields: tuple[str, ...]


class Holder(msgspec.Struct, frozen=True):
    """Who writes a tree: all that hold one Lease in turns; or one process, where `lease` is ""."""

    namespace: str
    lease: str
    uid: str  # of the Lease, or of the process


class Departed(msgspec.Struct, frozen=True):
    """Nodes that went, and those behind whose objects there is none (core/lifecycle.py).

    Moments are steady. `ordered`: when a node that was deleted in the usual way was last seen.
    `orphans`: since when a name is known to have objects and no node. `held`: they were too many
    to be swept. `condemned`: those that a person has confirmed.
    """

    uids: Mapping[str, str] = {}
    ordered: Mapping[str, float] = {}
    orphans: Mapping[str, float] = {}
    held: bool = False
    condemned: frozenset[str] = frozenset()


class Memory(msgspec.Struct, frozen=True):
    """What the controller believes between passes. Read from the statuses at start only."""

    capacity: Mapping[Pair, CapacityRow] = {}
    frozen_since: Mapping[str, datetime] = {}
    over_since: Mapping[tuple[str, Pair], datetime] = {}
    settling: Mapping[Key, Settling] = {}
    zeroed: Mapping[tuple[Key, Pair], float] = {}  # steady: Kueue was first seen to have the 0
    refused: Mapping[Key, Refusal] = {}
    drift: Mapping[Key, Drift] = {}
    converged: Mapping[Key, Mapping[str, Any]] = {}  # what an object was last seen to agree with
    departed: Departed = Departed()
    holder: Holder | None = None  # who we are; None: nobody else can write here (a folder)
    # LocalQueues that stay until they are empty: since when (steady) their namespace is not theirs.
    lingering: Mapping[Key, float] = {}
    # What the last pass rendered of each team (queues.Queues), to be taken again where nothing
    # that it was made from has changed. Leaving it out costs time and nothing else.
    rendered: Any = None
