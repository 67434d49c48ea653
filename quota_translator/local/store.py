"""Kueue's objects in local mode: files in the output folder, and those that the input shows.

What is written here wins over what the input says of the same object. Kueue itself is played in the
simplest way: it has taken every spec at once, every queue is active, and nothing is admitted unless
the input says so. Refusals are those that a server would give.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from quota_translator.core.actions import Action
from quota_translator.core.kueue import is_ours, parent_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, Key
from quota_translator.core.results import Outcome, Result
from quota_translator.core.world import Desired, Observed
from quota_translator.local.output import Output


class KueueStore:
    """`written` are our objects; `seen` those of the input; `deleted` names input objects that a
    plan deleted, since the input's files are not ours to change."""

    def __init__(self, output: Output, manager: str) -> None:
        self._output = output
        self._manager = manager
        self._versions = 0
        self.written: dict[Key, Observed] = {}
        self.seen: Mapping[Key, Observed] = {}
        self.deleted: set[str] = set()

    def live(self) -> dict[Key, Observed]:
        """Everything there is, as Kueue would show it."""
        shown = {key: record for key, record in self.seen.items() if str(key) not in self.deleted}
        return shown | {key: self._played(key) for key in self.written}

    def _played(self, key: Key) -> Observed:
        ours, seen = self.written[key], self.seen.get(key)
        if key.kind != CLUSTER_QUEUE:
            return ours
        return msgspec.structs.replace(
            ours,
            active=True,
            active_generation=ours.generation,
            usage=(seen.usage if seen else None) or {},
            reservation=(seen.reservation if seen else None) or {},
            reserving_workloads=seen.reserving_workloads if seen else 0,
        )

    def take(self, found: Mapping[Key, Observed]) -> None:
        """What stands in the output folder now: also what a person did to it."""
        for key in [key for key in self.written if key not in found]:
            del self.written[key]
        for key, record in found.items():
            known = self.written.get(key)
            if known is None or not _says_the_same(known, record):
                self.written[key] = self._stored(record, known)

    def _stored(self, record: Observed, before: Observed | None) -> Observed:
        """The record with what a server adds: an identity, a version, and a generation."""
        self._versions += 1
        return msgspec.structs.replace(
            record,
            uid=before.uid if before and before.uid else f"local-{self._versions}",
            resource_version=str(self._versions),
            generation=(before.generation if before else 0) + 1,
        )

    # --- writing --------------------------------------------------------------------------

    def execute(self, actions: Iterable[Action]) -> tuple[Result, ...]:
        """One result an action, in their order. Never raises for what a disk or a name does."""
        live = self.live()
        return tuple(self._one(action, live) for action in actions)

    def _one(self, action: Action, live: dict[Key, Observed]) -> Result:
        found = live.get(action.key)
        if refusal := self._refusal(action, found, live):
            outcome, why = refusal
            unparented = outcome == "skipped" and action.verb != "delete"
            return Result.of(action, outcome, why, needs_parent=unparented)
        try:
            result = self._delete(action) if action.verb == "delete" else self._write(action, found)
        except ValueError as error:
            return Result.of(action, "refused", str(error))
        except OSError as error:
            return Result.of(action, "failed", f"cannot write {error.filename}: {error.strerror}")
        live.pop(action.key, None)
        if result.record is not None:
            live[action.key] = result.record
        return result

    def _refusal(
        self, action: Action, found: Observed | None, live: Mapping[Key, Observed]
    ) -> tuple[Outcome, str] | None:
        parent = live.get(action.requires) if action.requires else None
        if action.requires and (parent is None or not is_ours(parent, self._manager)):
            return "skipped", f"parent {action.requires} is not there as ours"
        if found is not None and not is_ours(found, self._manager):
            return "conflict", f"{action.key} exists and is not ours"
        if action.verb == "create":
            return None
        if found is None:
            return ("unchanged" if action.verb == "delete" else "conflict"), "the object is gone"
        if action.uid and found.uid != action.uid:
            return "conflict", "another object of this name took its place"
        holder = _holder(action.key, live) if action.verb == "delete" else None
        return ("skipped", f"{holder} still names this Cohort") if holder else None

    def _write(self, action: Action, found: Observed | None) -> Result:
        wanted = Desired(action.key, action.quota, action.nodes, action.spec, action.part)
        self._output.write(wanted)
        record = Observed(
            key=action.key,
            managed_by=self._manager,
            quota=action.quota,
            part=action.part,
            spec={
                name: value for name, value in action.spec.items() if value not in (None, [], "")
            },
            stop_policy=_stop_policy(action, found),
        )
        self.written[action.key] = self._stored(record, found)
        self.deleted.discard(str(action.key))
        return Result.of(action, "written", record=self._played(action.key))

    def _delete(self, action: Action) -> Result:
        self._output.delete(action.key)
        self.written.pop(action.key, None)
        if action.key in self.seen:
            self.deleted.add(str(action.key))
        return Result.of(action, "written")


def _stop_policy(action: Action, found: Observed | None) -> str:
    """The brake after a write: the tree's where it states one, none where it did, else people's."""
    if "stopPolicy" in action.spec:
        return str(action.spec["stopPolicy"])
    return found.stop_policy if found and "stopPolicy" not in found.spec else ""


def _says_the_same(one: Observed, other: Observed) -> bool:
    def said(record: Observed) -> tuple[Any, ...]:
        labels = (record.managed_by, record.quota, record.part)
        return (record.key, labels, record.spec, record.stop_policy)

    return said(one) == said(other)


def _holder(key: Key, live: Mapping[Key, Observed]) -> Key | None:
    """Who still names this Cohort: without it, that one would be an unlimited root."""
    if key.kind != COHORT:
        return None
    users = (
        user
        for user, record in live.items()
        if user.kind != LOCAL_QUEUE and parent_of(record) == key.name
    )
    return next(users, None)
