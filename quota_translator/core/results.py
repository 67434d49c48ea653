"""What came of writes: records that the controller reports from and remembers.

An outcome says what the *next* pass may do about it:

- `written`, `unchanged`: the server has it.
- `refused`: the server will not have it as it is; not sent again until what is wanted changes.
- `conflict`: what is there is not what the plan saw (a stranger's object, another uid, gone).
- `unavailable`, `throttled`: not done, or nobody knows; the next pass diffs and tries again.
- `skipped`: not sent, because something that it hangs on is missing.
- `failed`: a permission is missing, or something unforeseen; tried again with pauses.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from quota_translator.core.actions import Action
from quota_translator.core.names import Key
from quota_translator.core.world import Observed, QuotaNode

Outcome = Literal[
    "written", "unchanged", "refused", "conflict", "unavailable", "throttled", "skipped", "failed"
]
Verb = Literal["create", "update", "delete"]


class Result(msgspec.Struct, frozen=True):
    """What came of one action. `message` holds the server's words or the reason for not asking.

    `needs_parent`: skipped because the parent Cohort is not there as ours. `kueue_down`:
    unavailable because Kueue's webhook could not be reached.
    """

    key: Key
    verb: Verb
    stage: int
    nodes: frozenset[str]
    spec: Mapping[str, Any]
    outcome: Outcome
    message: str = ""
    record: Observed | None = None
    needs_parent: bool = False
    kueue_down: bool = False

    @classmethod
    def of(
        cls,
        action: Action,
        outcome: Outcome,
        message: str = "",
        record: Observed | None = None,
        *,
        needs_parent: bool = False,
    ) -> Self:
        """What came of this action."""
        return cls(
            key=action.key,
            verb=action.verb,
            stage=action.stage,
            nodes=action.nodes,
            spec=action.spec,
            outcome=outcome,
            message=message,
            record=record,
            needs_parent=needs_parent,
        )


class Results(msgspec.Struct, frozen=True):
    """What came of a plan, one result an action, in the plan's order.

    `retry_after`: the seconds that the server asked to wait before more writes, None: it did not.
    """

    results: tuple[Result, ...] = ()
    retry_after: float | None = None

    @property
    def written(self) -> int:
        return sum(result.outcome == "written" for result in self.results)

    @property
    def all_done(self) -> bool:
        return all(result.outcome in {"written", "unchanged"} for result in self.results)


class StatusResult(msgspec.Struct, frozen=True):
    """What came of one status write. `conflict`: somebody wrote meanwhile; compute it anew."""

    node: str
    outcome: Outcome
    message: str = ""
    record: QuotaNode | None = None
    retry_after: float | None = None


class SyncState(msgspec.Struct, frozen=True):
    """Whether one kind may be believed, for readiness, metrics and people.

    `decided` False: the first answer about it is still awaited, so that nothing is known, not even
    that it cannot be read.
    """

    kind: str
    synced: bool
    reason: str = ""  # why not; "" while synced
    objects: int = 0
    served: bool = True
    heard_at: float | None = None  # steady; None: never
    decided: bool = True
    heard: bool = True  # the server says something of it, be it that nothing has changed
