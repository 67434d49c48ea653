"""The kinds that are read and written, and where the API serves them."""

from typing import Final

import msgspec

from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    GROUP,
    KUEUE_GROUP,
    KUEUE_VERSION,
    LOCAL_QUEUE,
    QUOTA_KIND,
    RESOURCE_FLAVOR,
    VERSION,
    Kind,
)


class Resource(msgspec.Struct, frozen=True):
    """One kind of the API. `group` is "" for the core group.

    `within` is the namespace to which requests that name none are confined.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = False
    within: str = ""

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or without a name of the collection (of all namespaces)."""
        namespace = namespace or self.within
        within = ("namespaces", namespace) if self.namespaced and namespace else ()
        parts = (self.root, *within, self.plural, name, subresource)
        return "/".join(part for part in parts if part)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


QUOTAS: Final = Resource(QUOTA_KIND, GROUP, VERSION, "acceleratorquotas")
NODES: Final = Resource("Node", "", "v1", "nodes")
NAMESPACES: Final = Resource("Namespace", "", "v1", "namespaces")
KUEUE: Final[dict[Kind, Resource]] = {
    RESOURCE_FLAVOR: Resource(RESOURCE_FLAVOR, KUEUE_GROUP, KUEUE_VERSION, "resourceflavors"),
    COHORT: Resource(COHORT, KUEUE_GROUP, KUEUE_VERSION, "cohorts"),
    CLUSTER_QUEUE: Resource(CLUSTER_QUEUE, KUEUE_GROUP, KUEUE_VERSION, "clusterqueues"),
    LOCAL_QUEUE: Resource(LOCAL_QUEUE, KUEUE_GROUP, KUEUE_VERSION, "localqueues", namespaced=True),
}
LEASES: Final = Resource("Lease", "coordination.k8s.io", "v1", "leases", namespaced=True)
SECRETS: Final = Resource("Secret", "", "v1", "secrets", namespaced=True)
EVENTS: Final = Resource("Event", "", "v1", "events", namespaced=True)
WORKLOADS: Final = Resource("Workload", KUEUE_GROUP, KUEUE_VERSION, "workloads", namespaced=True)
WEBHOOKS: Final = Resource(
    "ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
)
TOKEN_REVIEWS: Final = Resource("TokenReview", "authentication.k8s.io", "v1", "tokenreviews")
ACCESS_REVIEWS: Final = Resource(
    "SubjectAccessReview", "authorization.k8s.io", "v1", "subjectaccessreviews"
)
