"""Executes a plan: in order, side by side where nothing depends on it, one result an action.

One object's refusal stops only what hangs on it. What the server says about all writes (too many
requests, no connection) or about all of a kind (Kueue's webhook is down, a permission is missing)
is not asked again for each object.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import msgspec

from quota_translator.core import kueue
from quota_translator.core.actions import Action, Plan
from quota_translator.core.names import COHORT
from quota_translator.core.results import Outcome, Result, Results
from quota_translator.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KueueUnavailable,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)
from quota_translator.kube import bodies
from quota_translator.kube.batches import Batch, batches, waves
from quota_translator.kube.client import Client
from quota_translator.kube.decode import is_status
from quota_translator.kube.gate import Gate
from quota_translator.kube.live import Live
from quota_translator.kube.resources import KUEUE

# After this many writes in a row that nobody answered the others of the plan are not sent.
MISSES: Final = 8


class Applier:
    """Writes Kueue's objects. One plan at a time."""

    def __init__(
        self,
        client: Client,
        live: Live,
        manager: str,
        *,
        concurrency: int = 16,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._live = live
        self._manager = manager
        self._concurrency = concurrency
        self._gate = Gate(now, sleep)
        self._down: set[str] = set()  # kinds for which Kueue's webhook did not answer last time

    async def apply(self, plan: Plan) -> Results:
        """Execute the plan. What the server answers is in the results, never an exception."""
        run = _Run(self._client, self._live, self._manager, self._gate, self._down)
        found: dict[int, Result] = {}
        for _stage, batch in batches(plan.actions):
            for wave in waves(batch, self._live_parent):
                run.look_around(wave)
                await self._side_by_side(run, wave, found)
        results = tuple(found[id(action)] for action in plan.actions)
        return Results(results, self._gate.remaining or None)

    def _live_parent(self, action: Action) -> str | None:
        live = self._live.get(action.key)
        return kueue.parent_of(live) if live else None

    async def _side_by_side(self, run: "_Run", wave: Batch, found: dict[int, Result]) -> None:
        """At once, as many as may be; one alone while nobody knows whether Kueue is back."""
        todo = iter(wave)
        while run.is_doubtful(wave) and (first := next(todo, None)):
            found[id(first)] = await run.execute(first)

        async def work(actions: Iterator[Action]) -> None:
            for action in actions:
                found[id(action)] = await run.execute(action)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(wave))):
                group.create_task(work(todo))


def untouched(plan: Plan, why: str) -> Results:
    """The results of a plan of which nothing was sent."""
    return Results(tuple(Result.of(action, "skipped", why) for action in plan.actions))


class _Run:
    """One execution: what was learnt from the answers so far."""

    def __init__(
        self, client: Client, live: Live, manager: str, gate: Gate, down: set[str]
    ) -> None:
        self._client = client
        self._live = live
        self._manager = manager
        self._gate = gate
        self._down = down
        self._undone: set[object] = set()  # keys of which an earlier action failed
        self._stopped: dict[tuple[str, str], tuple[Outcome, str]] = {}  # by verb and kind
        self._misses = 0
        self._holders: Mapping[str, object] = {}

    def look_around(self, wave: Batch) -> None:
        """Before Cohorts are deleted: which of them are still named by somebody."""
        if wave and wave[0].verb == "delete" and wave[0].key.kind == COHORT:
            self._holders = self._live.holders()

    def is_doubtful(self, wave: Batch) -> bool:
        """Whether Kueue's webhook was down when it was last asked about writes such as these."""
        return bool(wave) and wave[0].verb != "delete" and wave[0].key.kind in self._down

    async def execute(self, action: Action) -> Result:
        result = self._not_sent(action) or await self._sent(action)
        if result.outcome not in {"written", "unchanged"}:
            self._undone.add(action.key)
        return result

    # --- before sending -------------------------------------------------------------------

    def _not_sent(self, action: Action) -> Result | None:
        """The result of an action that must not be sent, or None."""
        if action.key in self._undone:
            return Result.of(action, "skipped", "an earlier write of this object was not done")
        stopped = self._stopped.get((action.verb, action.key.kind))
        if stopped:
            return msgspec.structs.replace(
                Result.of(action, *stopped), kueue_down=stopped[0] == "unavailable"
            )
        if self._misses >= MISSES:
            return Result.of(action, "unavailable", "the API server does not answer")
        return self._unparented(action) or self._changed_meanwhile(action)

    def _unparented(self, action: Action) -> Result | None:
        # To Kueue a Cohort that does not exist is an unlimited root, and so may a stranger's be.
        if action.requires is None:
            return None
        parent = self._live.get(action.requires)
        if parent and kueue.is_ours(parent, self._manager) and not parent.deleting:
            return None
        why = "is not there" if parent is None else "is not ours"
        if parent and parent.deleting:
            why = "is being deleted"
        told = f"parent {action.requires} {why}"
        return Result.of(action, "skipped", told, needs_parent=True)

    def _changed_meanwhile(self, action: Action) -> Result | None:
        if action.verb == "create":
            return None
        live = self._live.get(action.key)
        if live is None:
            outcome: Outcome = "unchanged" if action.verb == "delete" else "conflict"
            return Result.of(action, outcome, "the object is gone")
        if live.uid != (action.uid or live.uid) or not kueue.is_ours(live, self._manager):
            return Result.of(action, "conflict", "another object of this name took its place")
        holder = self._holders.get(action.key.name) if action.key.kind == COHORT else None
        if action.verb == "delete" and holder:
            return Result.of(action, "skipped", f"{holder} still names this Cohort")
        return None

    # --- sending --------------------------------------------------------------------------

    async def _sent(self, action: Action) -> Result:
        send = {"create": self._create, "update": self._update, "delete": self._delete}
        try:
            result = await send[action.verb](action)
        except ApiError as error:
            return self._failed(action, error)
        self._misses = 0
        if action.verb != "delete":
            self._answers(action.key.kind)
        return result

    def _answers(self, kind: str) -> None:
        """Kueue's webhook answers, unless this was on its way when another write found it down."""
        if ("create", kind) not in self._stopped:
            self._down.discard(kind)

    async def _create(self, action: Action) -> Result:
        resource = KUEUE[action.key.kind]
        body = kueue.body(bodies.desired(action), self._manager)
        try:
            answer = await self._gate.send(lambda: self._client.create(resource, body))
        except AlreadyExists:
            return await self._found(action, "unchanged")
        except Unavailable as error:
            if not error.outcome_unknown:
                raise
            return await self._found(action, "written", error)
        return Result.of(action, "written", record=self._live.answer(action.key.kind, answer))

    async def _found(
        self, action: Action, outcome: Outcome, unknown: Unavailable | None = None
    ) -> Result:
        """A create that met an object, or that nobody answered: look once what is there."""
        key = action.key
        try:
            body = await self._client.get(KUEUE[key.kind], key.name, key.namespace)
        except NotFound:
            if unknown is not None:
                raise unknown from None
            return Result.of(action, "unavailable", "it existed a moment ago and is gone now")
        record = self._live.answer(key.kind, body)
        if kueue.is_ours(record, self._manager):
            return Result.of(action, outcome, record=record)
        whose = f"managed-by is {record.managed_by!r}" if record.managed_by else "it is unlabelled"
        return Result.of(action, "conflict", f"{key} exists and is not ours: {whose}", record)

    async def _update(self, action: Action) -> Result:
        key, live = action.key, self._live.get(action.key)
        assert live is not None, "checked before sending"
        patch = bodies.update(action, live, self._manager)
        answer = await self._gate.send(
            lambda: self._client.merge_patch(KUEUE[key.kind], key.name, patch, key.namespace)
        )
        record = self._live.answer(key.kind, answer)
        same = record.resource_version == live.resource_version
        return Result.of(action, "unchanged" if same else "written", record=record)

    async def _delete(self, action: Action) -> Result:
        key = action.key
        try:
            answer = await self._gate.send(
                lambda: self._client.delete(KUEUE[key.kind], key.name, action.uid, key.namespace)
            )
        except NotFound:
            self._live.gone(key)
            return Result.of(action, "unchanged", "it was gone already")
        if is_status(answer):
            self._live.gone(key)
            return Result.of(action, "written")
        # A finalizer holds it: it stays, in deletion.
        return Result.of(action, "written", record=self._live.answer(key.kind, answer))

    # --- failures -------------------------------------------------------------------------

    def _failed(self, action: Action, error: ApiError) -> Result:
        """The result of a failure, and what it means for the actions that follow."""
        kind = action.key.kind
        if isinstance(error, KueueUnavailable):
            self._down.add(kind)
            for verb in ("create", "update"):  # deletes pass: their webhooks are not called
                self._stopped[verb, kind] = ("unavailable", error.message)
            result = Result.of(action, "unavailable", error.message)
            return msgspec.structs.replace(result, kueue_down=True)
        if isinstance(error, Refused):
            self._answers(kind)
        if isinstance(error, Forbidden):
            self._stopped[action.verb, kind] = ("failed", error.message)
        elif isinstance(error, Unavailable) and not isinstance(error, Throttled):
            self._misses += 1
        if isinstance(error, NotFound) and action.verb == "update":
            self._live.gone(action.key)
        return Result.of(action, _outcome(action, error), error.message)


def _outcome(action: Action, error: ApiError) -> Outcome:
    if isinstance(error, NotFound):  # the namespace of a create, or the object of an update
        return "skipped" if action.verb == "create" else "conflict"
    for kind, outcome in _OUTCOMES:
        if isinstance(error, kind):
            return outcome
    return "failed"


_OUTCOMES: Final[tuple[tuple[type[ApiError], Outcome], ...]] = (
    (Throttled, "throttled"),
    (Unavailable, "unavailable"),
    (Refused, "refused"),
    (Conflict, "conflict"),
)
