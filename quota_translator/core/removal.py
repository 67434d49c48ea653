"""What `quota-translator cleanup` takes away, what it leaves, and how it says so. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from quota_translator.core.kueue import is_ours, parent_of
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    FINALIZER,
    GROUP,
    KINDS,
    QUOTA_KIND,
    RESOURCE_FLAVOR,
    Key,
)
from quota_translator.core.verdict import listed
from quota_translator.core.world import Holding, Observed, QuotaNode

CRD: Final = f"acceleratorquotas.{GROUP}"


class Thing(msgspec.Struct, frozen=True, order=True):
    """One object that is deleted, if it is still the one with this uid."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self.place

    @property
    def place(self) -> str:
        return f"{self.kind} {self.name}"


class Inventory(msgspec.Struct, frozen=True):
    """What there is. `kueue` are all objects of Kueue's, by key; `nodes` all of the tree."""

    manager: str
    namespace: str
    nodes: tuple[QuotaNode, ...] = ()
    kueue: Mapping[Key, Observed] = {}
    webhook: Thing | None = None
    secret: Thing | None = None
    lease: Thing | None = None
    notes: tuple[str, ...] = ()  # what a person should know beside it

    def ours(self, *kinds: str) -> tuple[Observed, ...]:
        """Our objects of these kinds that are not being deleted yet."""
        return tuple(
            sorted(
                (
                    live
                    for key, live in self.kueue.items()
                    if key.kind in kinds and not live.deleting and is_ours(live, self.manager)
                ),
                key=lambda live: live.key,
            )
        )

    @property
    def claimed(self) -> tuple[QuotaNode, ...]:
        """The nodes that bear our finalizer."""
        return tuple(node for node in self.nodes if FINALIZER in node.finalizers)

    def removed(self) -> list[Thing]:
        """Everything that is deleted, in the order in which it is."""
        found = [self.webhook] if self.webhook is not None else []
        kept = self._kept()
        for kind in reversed(KINDS):
            found += [thing(live) for live in self.ours(kind) if live.key not in kept]
        return found + [one for one in (self.secret, self.lease) if one is not None]

    def _kept(self) -> Mapping[Key, Observed]:
        """What cannot go yet: queues and flavors on their way out, whatever stands above such a
        queue, and above what is somebody else's."""
        found = {
            key: live
            for key, live in self.kueue.items()
            if key.kind in (CLUSTER_QUEUE, RESOURCE_FLAVOR)
            and live.deleting
            and is_ours(live, self.manager)
        }
        for key, live in self.kueue.items():
            is_first = key in found or (
                key.kind in (COHORT, CLUSTER_QUEUE) and not is_ours(live, self.manager)
            )
            above = parent_of(live) if is_first and key.kind != RESOURCE_FLAVOR else None
            while above is not None:
                cohort = self.kueue.get(Key(COHORT, "", above))
                if cohort is None or cohort.key in found:
                    break
                if is_ours(cohort, self.manager):
                    found[cohort.key] = cohort
                above = parent_of(cohort)
        return found

    def waiting(self) -> list[str]:
        """What is there already and cannot go yet, in sentences. How much runs is not looked at."""
        kept = self._kept()
        found = [going(key) for key, live in sorted(kept.items()) if live.deleting]
        left = {
            key: live
            for key, live in self.kueue.items()
            if key in kept or not is_ours(live, self.manager)
        }
        return found + held_cohorts(left, self.manager)

    def stays(self) -> list[str]:
        """What is people's, in sentences."""
        found = []
        if self.nodes:
            found.append(
                f"{_many(len(self.nodes), QUOTA_KIND)}: kubectl delete aq --all; and their CRD, "
                f"with which all of them would go: kubectl delete crd {CRD}"
            )
        flavors = [
            key.name
            for key, live in sorted(self.kueue.items())
            if key.kind == RESOURCE_FLAVOR and not is_ours(live, self.manager)
        ]
        if flavors:
            found.append(f"ResourceFlavors that people made: {listed(flavors)}")
        return found


class Outcome(msgspec.Struct):
    """What became of it. `waiting` says what cannot go yet and why, `failed` what went wrong."""

    removed: list[str] = []
    released: list[str] = []
    waiting: list[str] = []
    failed: list[str] = []

    @property
    def is_complete(self) -> bool:
        return not self.waiting and not self.failed


def thing(live: Observed) -> Thing:
    return Thing(live.key.kind, live.key.namespace, live.key.name, live.uid)


def idle_cohorts(kueue: Mapping[Key, Observed], manager: str) -> list[Observed]:
    """Our Cohorts that nothing stands beneath, anybody's. Without its Cohort it were unbounded."""
    named = {parent_of(live) for key, live in kueue.items() if key.kind in (COHORT, CLUSTER_QUEUE)}
    return [
        live
        for key, live in sorted(kueue.items())
        if key.kind == COHORT and key.name not in named and is_ours(live, manager)
    ]


def held_cohorts(kueue: Mapping[Key, Observed], manager: str) -> list[str]:
    """Why our other Cohorts stay, in sentences."""
    found = []
    for key, live in sorted(kueue.items()):
        if key.kind != COHORT or not is_ours(live, manager):
            continue
        users = [
            str(user) if is_ours(seen, manager) else f"{user} (not ours)"
            for user, seen in sorted(kueue.items())
            if user.kind in (COHORT, CLUSTER_QUEUE) and parent_of(seen) == key.name
        ]
        if users:
            found.append(f"{key} stays while it is the parent of {listed(users, most=3)}")
    return found


def going(key: Key) -> str:
    """Why a queue or a flavor that was deleted is still there, without a look at what runs."""
    if key.kind == RESOURCE_FLAVOR:
        return f"{key} is being deleted; Kueue keeps it while a ClusterQueue lists it"
    return draining(key.name, None)


def draining(queue: str, held: tuple[Holding, ...] | None) -> str:
    """Why a queue that was deleted is still there. `held` None: nobody could look."""
    if held is None:
        return f"ClusterQueue {queue} is being deleted; it goes when its workloads have ended"
    if not held:
        return (
            f"ClusterQueue {queue} is being deleted and no workload holds anything of it: only "
            "Kueue takes its own finalizer off; does Kueue run?"
        )
    names = listed([one.name for one in sorted(held, key=lambda h: (h.since, h.name))], most=3)
    runs = f"{len(held)} workloads still run" if len(held) > 1 else "1 workload still runs"
    return f"ClusterQueue {queue} is being deleted; {runs} in it: {names}"


# --- for people and programs ------------------------------------------------------------------


def shown_plan(found: Inventory) -> str:
    """What would be done."""
    removed, waiting = found.removed(), found.waiting()
    lines = _section("Would remove, in this order:", map(str, removed))
    nodes = [f"{QUOTA_KIND} {node.name}" for node in found.claimed]
    lines += _section("Would take our finalizer off:", nodes)
    lines += _section("Cannot go yet:", waiting)
    lines += _section("Stays:", found.stays())
    lines += _section("Note:", found.notes)
    if not removed and not nodes and not waiting:
        lines = ["Nothing of ours is left to remove.", *lines]
    else:
        lines.append("Nothing was done. Run it again with --yes to do it.")
    return "\n".join(lines) + "\n"


def shown_outcome(found: Inventory, outcome: Outcome) -> str:
    """What was done."""
    nodes = _many(len(outcome.released), QUOTA_KIND)
    removed = _many(len(outcome.removed), "object")
    lines = [f"Removed {removed}; took our finalizer off {nodes}."]
    lines += _section("Still there:", outcome.waiting)
    lines += _section("Failed:", outcome.failed)
    lines += _section("Stays:", found.stays())
    lines += _section("Note:", found.notes)
    if not outcome.is_complete:
        lines.append("Run it again to go on from here.")
    return "\n".join(lines) + "\n"


def document(found: Inventory, outcome: Outcome | None) -> dict[str, Any]:
    """The same for programs; `outcome` None: nothing was done."""
    done = outcome or Outcome(
        removed=[str(one) for one in found.removed()],
        released=[f"{QUOTA_KIND} {node.name}" for node in found.claimed],
        waiting=found.waiting(),
    )
    return {
        "kind": "Cleanup",
        "dryRun": outcome is None,
        "complete": outcome is not None and outcome.is_complete,
        "removed": done.removed,
        "released": done.released,
        "waiting": done.waiting,
        "failed": done.failed,
        "stays": found.stays(),
        "notes": list(found.notes),
    }


def _section(title: str, entries: Iterable[str]) -> list[str]:
    found = [f"  {entry}" for entry in entries]
    return [title, *found] if found else []


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
