"""Names that are part of the contract: the API group, labels, reserved words, and kinds.

They stand in one place because status, renderer, client and tests
must never disagree on a spelling.
"""

from functools import lru_cache
from typing import Final, Literal, NamedTuple

GROUP: Final = "quota-translator.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
QUOTA_KIND: Final = "AcceleratorQuota"
OME_API_VERSION: Final = "ome.io/v1beta1"

KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
KUEUE_API_VERSION: Final = f"{KUEUE_GROUP}/{KUEUE_VERSION}"

LABEL_MANAGED_BY: Final = f"{GROUP}/managed-by"
LABEL_QUOTA: Final = f"{GROUP}/quota"
LABEL_PART: Final = f"{GROUP}/part"
OUR_LABELS: Final = (LABEL_MANAGED_BY, LABEL_QUOTA, LABEL_PART)

# On a Kueue object: which of the fields that otherwise belong to people the tree states, such as
# "fairSharing,stopPolicy". So that a field that the tree states no more is given back once.
STATES: Final = f"{GROUP}/states"

FINALIZER: Final = f"{GROUP}/accelerator-quota"
# On root: so many nodes are gone without having been deleted, and their objects may go.
SWEEP_ORPHANS: Final = f"{GROUP}/sweep-orphans"

# On root: pairs (RESOURCE@FLAVOR, comma-separated) whose hardware is gone for good.
RETIRE: Final = f"{GROUP}/retire"

ROOT: Final = "root"
COVER_FLAVOR: Final = "quota-translator-cover"
COVER_PART: Final = "cover"

COHORT: Final = "Cohort"
CLUSTER_QUEUE: Final = "ClusterQueue"
LOCAL_QUEUE: Final = "LocalQueue"
RESOURCE_FLAVOR: Final = "ResourceFlavor"
Kind = Literal["ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue"]
# The order in which objects are written; deletes go the other way.
KINDS: Final[tuple[Kind, ...]] = (RESOURCE_FLAVOR, COHORT, CLUSTER_QUEUE, LOCAL_QUEUE)


class Key(NamedTuple):
    """Which Kueue object: kind, namespace ("" for the cluster-scoped) and name."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


class Pair(NamedTuple):
    """One budgeted pair: a resource on a flavor."""

    resource: str
    flavor: str

    def __str__(self) -> str:
        return f"{self.resource} on {self.flavor}"


@lru_cache(maxsize=4096)
def pair_of(resource: str, flavor: str) -> Pair:
    """The pair of these names, as one object: few pairs are asked for very often."""
    return Pair(resource, flavor)
