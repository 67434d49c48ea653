"""The sizes at which everything is measured."""

from collections.abc import Mapping
from typing import Final

import msgspec

FLAVORS: Final = 12
BUDGETS_PER_TEAM: Final = 4
TEAMS_PER_GROUP: Final = 10


class Size(msgspec.Struct, frozen=True):
    """A cluster and its tree: root, divisions, groups of ten teams, teams."""

    name: str
    teams: int
    namespaces: int
    nodes: int

    @property
    def groups(self) -> int:
        return max(1, self.teams // TEAMS_PER_GROUP)

    @property
    def divisions(self) -> int:
        return max(1, round(self.groups / 11))

    @property
    def cohorts(self) -> int:
        return 1 + self.divisions + self.groups

    @property
    def objects(self) -> int:
        """Kueue's objects: Cohorts, ClusterQueues and LocalQueues of the tree, and the flavors."""
        return self.cohorts + self.teams * (1 + self.namespaces) + FLAVORS + 1

    @property
    def records(self) -> int:
        """All that a pass has to look at: nodes, Kueue's objects, the tree."""
        return self.nodes + self.objects + self.cohorts + self.teams


SIZES: Final[Mapping[str, Size]] = {
    size.name: size
    for size in (
        Size("XS", teams=10, namespaces=2, nodes=50),
        Size("S", teams=50, namespaces=5, nodes=500),
        Size("M", teams=200, namespaces=10, nodes=5_000),
        Size("L", teams=1_000, namespaces=20, nodes=15_000),
    )
}
