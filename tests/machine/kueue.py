"""Kueue, as far as quotas notice it: it takes specs a moment later, and holds what is in use."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from quota_translator.core.names import CLUSTER_QUEUE, KINDS, RESOURCE_FLAVOR
from tests.machine.server import Object, Server, Where

ACTOR: Final = "kueue"
IN_USE: Final = "kueue.x-k8s.io/resource-in-use"
SLOWEST_SECONDS: Final = 0.9  # a Cohort is taken within a second; so is everything here


class Kueue:
    """`believed` is what it has taken, by place. A stopped one takes nothing until it is back."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.believed: dict[Where, Object] = {}
        self.running = True
        self.taken: Callable[[Where, Object | None], None] = lambda _where, _found: None
        self._server = server
        self._loop = loop
        self._random = random
        self._used: dict[str, dict[tuple[str, str], int]] = {}  # queue → flavor, resource → units
        server.hooks.append(self._changed)

    def start(self) -> None:
        self.running = True
        for where in {**self._server.objects, **self.believed}:
            if where[0] in KINDS:
                self._soon(where)

    def use(self, queue: str, units: int) -> None:
        """Workloads reserve so much of everything that the queue lists; 0: none is left."""
        found = self._server.get((CLUSTER_QUEUE, "", queue))
        listed = _listed(found) if found else ()
        self._used[queue] = dict.fromkeys(listed, units) if units else {}
        self._soon((CLUSTER_QUEUE, "", queue))

    # --- inside ---------------------------------------------------------------------------

    def _changed(self, actor: str, where: Where, _before: Any, after: Object | None) -> None:
        kind, _, name = where
        if kind not in KINDS:
            return
        if after is None and kind == CLUSTER_QUEUE:
            self._used.pop(name, None)
        if actor != ACTOR:
            self._soon(where)

    def _soon(self, where: Where) -> None:
        delay = self._random.uniform(0.02, SLOWEST_SECONDS)
        self._loop.call_later(delay, self._take, where)

    def _take(self, where: Where) -> None:
        if not self.running:
            return
        found = self._server.get(where)
        if where[0] == CLUSTER_QUEUE and found is not None:
            found = self._take_queue(where, found)
        if where[0] == RESOURCE_FLAVOR and found is not None:
            found = self._hold(where, found, self._is_listed(where[2]))
        if found is None:
            self.believed.pop(where, None)
            if where[0] == CLUSTER_QUEUE:  # a flavor may be free now
                for flavor in self._server.all(RESOURCE_FLAVOR):
                    self._soon((RESOURCE_FLAVOR, "", flavor["metadata"]["name"]))
        else:
            self.believed[where] = found
        self.taken(where, found)

    def _take_queue(self, where: Where, found: Object) -> Object | None:
        used = self._used.get(where[2], {})
        held = self._hold(where, found, bool(used))
        if held is None:
            return None
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Ready",
            "observedGeneration": held["metadata"]["generation"],
        }
        flavors = _amounts({pair: units for pair, units in used.items() if pair in _listed(held)})
        status = {
            "conditions": [active],
            "flavorsUsage": flavors,
            "flavorsReservation": flavors,
            "reservingWorkloads": 1 if used else 0,
        }
        return self._server.patch(ACTOR, where, {"status": status}, status=True)

    def _hold(self, where: Where, found: Object, in_use: bool) -> Object | None:
        """Its finalizer is on everything from the start, and goes with the last use."""
        metadata = found["metadata"]
        holding = IN_USE in metadata.get("finalizers", ())
        wanted = in_use if metadata.get("deletionTimestamp") else True
        if holding == wanted:
            return found
        others = [name for name in metadata.get("finalizers", ()) if name != IN_USE]
        finalizers = others + ([IN_USE] if wanted else [])
        after = self._server.patch(ACTOR, where, {"metadata": {"finalizers": finalizers}})
        return after if self._server.get(where) is not None else None

    def _is_listed(self, flavor: str) -> bool:
        queues = self._server.all(CLUSTER_QUEUE)
        return any(flavor == name for queue in queues for name, _ in _listed(queue))


def _listed(queue: Object) -> tuple[tuple[str, str], ...]:
    """Flavor and resource of every cell."""
    return tuple(
        (flavor["name"], resource["name"])
        for group in queue["spec"].get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
    )


def _amounts(used: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [
        {"name": flavor, "resources": [{"name": resource, "total": str(units), "borrowed": "0"}]}
        for (flavor, resource), units in sorted(used.items())
    ]
