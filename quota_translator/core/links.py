"""Who stands beneath whom among Kueue's Cohorts and ClusterQueues. Every walk ends on cycles."""

from collections.abc import Iterable
from functools import lru_cache

from quota_translator.core.names import COHORT, Key


@lru_cache(maxsize=4096)
def cohort(name: str) -> Key:
    return Key(COHORT, "", name)


class Links:
    """A graph from objects to the Cohorts that they name; an object may have several parents.

    Several parents mean "beneath one of these": where it is, where Kueue may still see it, and
    where a write of this plan puts it. A Cohort may be named that has no object.
    """

    def __init__(self) -> None:
        self._parents: dict[Key, list[str]] = {}
        self._members: dict[str, list[Key]] = {}
        self._above: dict[Key, frozenset[str]] = {}

    def link(self, key: Key, parents: Iterable[str]) -> None:
        """Put an object beneath these Cohorts, besides where it is already."""
        for parent in parents:
            if parent not in self._parents.setdefault(key, []):
                self._parents[key].append(parent)
                self._members.setdefault(parent, []).append(key)
                self._above.clear()

    def above(self, key: Key) -> frozenset[str]:
        """Every Cohort that the object stands beneath; itself only if it is in a cycle."""
        found = self._above.get(key)
        if found is None:
            found = self._above[key] = frozenset(self._climb(key))
        return found

    def members(self, name: str) -> list[Key]:
        """The objects directly beneath this Cohort, sorted."""
        return sorted(self._members.get(name, ()))

    def beneath(self, name: str) -> list[Key]:
        """Every object that stands beneath this Cohort, sorted."""
        found: set[Key] = set()
        todo = [name]
        while todo:
            for member in self._members.get(todo.pop(), ()):
                if member not in found:
                    found.add(member)
                    if member.kind == COHORT:
                        todo.append(member.name)
        return sorted(found)

    def subtree(self, key: Key) -> list[Key]:
        """The object and all beneath it, sorted."""
        if key.kind != COHORT:
            return [key]
        return sorted({key, *self.beneath(key.name)})

    def _climb(self, key: Key) -> set[str]:
        found: set[str] = set()
        todo = list(self._parents.get(key, ()))
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += self._parents.get(cohort(name), ())
        return found
