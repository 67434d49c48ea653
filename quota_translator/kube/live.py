"""Kueue's objects as the stores hold them, one view over the four kinds, for reading and writing.

ResourceFlavors are kept twice in one record (as flavors and as objects); here they look like the
other kinds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from quota_translator.core import kueue
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, Key, Kind
from quota_translator.core.world import Observed
from quota_translator.kube.decode import FlavorRecord, Payload, read_flavor_record, read_observed
from quota_translator.kube.store import Store


class Live:
    def __init__(
        self, flavors: Store[Key, FlavorRecord], others: Mapping[Kind, Store[Key, Observed]]
    ) -> None:
        self._flavors = flavors
        self._others = others
        self._merged: tuple[tuple[int, ...], Mapping[Key, Observed]] = ((), {})

    def get(self, key: Key) -> Observed | None:
        if key.kind == RESOURCE_FLAVOR:
            found = self._flavors.get(key)
            return found.observed if found else None
        return self._others[key.kind].get(key)

    def answer(self, kind: Kind, body: Payload) -> Observed:
        """Take the answer of a write or of a GET. Raises Malformed."""
        if kind == RESOURCE_FLAVOR:
            record = read_flavor_record(body)
            self._flavors.put_answer(record)
            return record.observed
        observed = read_observed[kind](body)
        self._others[kind].put_answer(observed)
        return observed

    def gone(self, key: Key) -> None:
        """The server said that there is no such object."""
        if key.kind == RESOURCE_FLAVOR:
            self._flavors.remove_answer(key)
        else:
            self._others[key.kind].remove_answer(key)

    def known(self) -> frozenset[str]:
        """The kinds whose records may be acted on."""
        synced = {kind for kind in self._others if self._others[kind].synced}
        return frozenset(synced | ({RESOURCE_FLAVOR} if self._flavors.synced else set()))

    def snapshot(self) -> Mapping[Key, Observed]:
        """All four kinds in one mapping; the same object as long as nothing changed."""
        stores: list[Store[Key, Any]] = [self._flavors, *self._others.values()]
        generations = tuple(store.generation for store in stores)
        if generations != self._merged[0]:
            merged = {key: record.observed for key, record in self._flavors.snapshot().items()}
            for store in self._others.values():
                merged.update(store.snapshot())
            self._merged = (generations, merged)
        return self._merged[1]

    def holders(self) -> dict[str, Key]:
        """Cohorts that some Cohort or ClusterQueue names as its parent, with one that does."""
        found = ((kueue.parent_of(record), record.key) for record in self._members())
        return {parent: key for parent, key in found if parent}

    def _members(self) -> Iterator[Observed]:
        for kind in (COHORT, CLUSTER_QUEUE):
            if kind in self._others:
                yield from self._others[kind].snapshot().values()
