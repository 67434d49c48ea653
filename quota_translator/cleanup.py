"""`quota-translator cleanup`: takes everything of ours off a cluster, without the controller.

Nothing of others' is touched, and nothing is lost by stopping in the middle: what is done stays
done, and a second run finds the rest. A controller that is alive would make all of it again, so
it has to be gone first.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from quota_translator.connecting import connect_by
from quota_translator.core.holder import read_claim
from quota_translator.core.kueue import is_ours
from quota_translator.core.lifecycle import released
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    LOCAL_QUEUE,
    QUOTA_KIND,
    RESOURCE_FLAVOR,
    ROOT,
    Kind,
)
from quota_translator.core.removal import (
    Inventory,
    Outcome,
    Thing,
    document,
    draining,
    going,
    held_cohorts,
    idle_cohorts,
    shown_outcome,
    shown_plan,
    thing,
)
from quota_translator.core.world import Clock, Observed, QuotaNode
from quota_translator.errors import ApiError, Conflict, NotFound, QuotaTranslatorError
from quota_translator.kube.claims import give_up
from quota_translator.kube.client import Client
from quota_translator.kube.decode import read_quota
from quota_translator.kube.resources import KUEUE, LEASES, QUOTAS, SECRETS, WEBHOOKS, Resource
from quota_translator.kube.survey import Names, Survey
from quota_translator.kube.workloads import Workloads
from quota_translator.settings import Settings

DONE, FAILED, WAITING = 0, 1, 2
_AT_ONCE: Final = 16
_ATTEMPTS: Final = 3
_CLAIM_SECONDS: Final = 10.0  # for a request
# For so long Kueue may take its finalizers off queues that nothing runs in.
PATIENCE_SECONDS: Final = 20.0

Tell = Callable[[str], object]
_RESOURCES: Final[dict[str, Resource]] = {
    **{kind: KUEUE[kind] for kind in KINDS},
    WEBHOOKS.kind: WEBHOOKS,
    SECRETS.kind: SECRETS,
    LEASES.kind: LEASES,
}


def run_cleanup(settings: Settings, *, yes: bool, force: bool, output: str) -> int:
    """The whole command. The exit code: 2 when something waits for running work."""
    try:
        code, text = asyncio.run(_run(settings, yes=yes, force=force, output=output))
    except QuotaTranslatorError as error:
        sys.stderr.write(f"quota-translator: {error}\n")
        return FAILED
    sys.stdout.write(text)
    return code


async def _run(settings: Settings, *, yes: bool, force: bool, output: str) -> tuple[int, str]:
    connection = await connect_by(settings)
    names = Names(
        manager=settings.materialize_field_manager,
        namespace=settings.namespace or connection.namespace or "default",
        asked=bool(settings.namespace),
        webhook=settings.webhook_configuration_name,
        secret=settings.webhook_certificate_secret,
        lease=settings.leader_election_lease_name,
    )
    async with Client(connection) as client:
        cleanup = Cleanup(client, names, lambda line: sys.stderr.write(f"{line}\n"))
        found, outcome = await cleanup.run(yes=yes, force=force)
    if output == "json":
        text = json.dumps(document(found, outcome), indent=2) + "\n"
    else:
        text = shown_plan(found) if outcome is None else shown_outcome(found, outcome)
    return _code(outcome), text


def _code(outcome: Outcome | None) -> int:
    if outcome is None or outcome.is_complete:
        return DONE
    return FAILED if outcome.failed else WAITING


class Cleanup:
    """One run. `tell` gets a line for people whenever something takes long."""

    def __init__(
        self,
        client: Client,
        names: Names,
        tell: Tell,
        *,
        now: Callable[[], Clock] = lambda: Clock(datetime.now(UTC), time.monotonic()),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._tell = client, tell
        self._survey = Survey(client, names)
        self._manager = names.manager
        self._now, self._sleep = now, sleep
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._outcome = Outcome([], [], [], [])

    async def run(self, *, yes: bool, force: bool = False) -> tuple[Inventory, Outcome | None]:
        """What there is, and what became of it (None: nothing was done). Raises ApiError when it
        cannot be read, and ControllerAlive."""
        found = await self._survey.look()
        if not yes:
            return found, None
        if not force:
            await self._survey.check_nobody_lives(
                found, now=self._now, sleep=self._sleep, tell=self._tell
            )
        await self._remove(found)
        return await self._survey.again(found), self._outcome

    async def _remove(self, found: Inventory) -> None:
        """In the order in which nothing hangs on what is gone."""
        if found.webhook is not None:  # nobody answers it, so it only stands in the way
            await self._delete(found.webhook)
        await self._delete_all(found.ours(LOCAL_QUEUE))
        await self._delete_all(found.ours(CLUSTER_QUEUE))
        try:
            await self._drain()
            await self._delete_cohorts()
        except ApiError as error:
            self._outcome.failed.append(f"read Kueue's objects: {error.message}")
        await self._delete_all(found.ours(RESOURCE_FLAVOR))
        await self._see_flavors()
        await self._end_claim(found)
        await asyncio.gather(*map(self._release, found.claimed))
        for one in (found.secret, found.lease):
            if one is not None:
                await self._delete(one)

    async def _end_claim(self, found: Inventory) -> None:
        """Of the controller that is gone: once its Lease is, too, nothing else would tell that it
        is, and cleanup would have to wait when it is run again."""
        root = next((node for node in found.nodes if node.name == ROOT), None)
        claim = read_claim(root.status) if root is not None else None
        if root is None or claim is None:
            return
        try:
            await give_up(self._client, root, claim.holder, _CLAIM_SECONDS)
        except ApiError as error:
            self._tell(f"the claim in the status of root stays: {error.message}")

    # --- one object -----------------------------------------------------------------------

    async def _delete_all(self, objects: Iterable[Observed]) -> None:
        todo = [thing(live) for live in objects]
        if len(todo) > _AT_ONCE:
            self._tell(f"deleting {len(todo)} {todo[0].kind}s")
        await asyncio.gather(*map(self._delete, todo))

    async def _delete(self, one: Thing) -> None:
        async with self._limit:
            try:
                await self._client.delete(_RESOURCES[one.kind], one.name, one.uid, one.namespace)
            except NotFound:
                return
            except ApiError as error:
                self._outcome.failed.append(f"delete {one}: {error.message}")
                return
        self._outcome.removed.append(str(one))

    async def _release(self, node: QuotaNode) -> None:
        """Our finalizer alone; again where somebody wrote the node meanwhile."""
        try:
            async with self._limit:
                await self._take_off(node)
        except NotFound:
            return
        except ApiError as error:
            told = f"take our finalizer off {QUOTA_KIND} {node.name}: {error.message}"
            self._outcome.failed.append(told)
            return
        self._outcome.released.append(f"{QUOTA_KIND} {node.name}")

    async def _take_off(self, node: QuotaNode) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            metadata = {
                "uid": node.uid,
                "resourceVersion": node.resource_version,
                "finalizers": list(released(node)),
            }
            try:
                await self._client.merge_patch(QUOTAS, node.name, {"metadata": metadata})
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
                node = read_quota(await self._client.get(QUOTAS, node.name))
            else:
                return

    # --- queues and Cohorts ---------------------------------------------------------------

    async def _drain(self) -> None:
        """Until our queues are gone, or only work keeps them, or Kueue does not let them go."""
        workloads = Workloads(self._client, lambda: self._now().steady)
        until, told = self._now().steady + PATIENCE_SECONDS, 0
        while True:
            left = [queue for queue in await self._all(CLUSTER_QUEUE) if self._is_going(queue)]
            held = await workloads.of({queue.key.name for queue in left})
            is_work_alone = all(held.get(queue.key.name) for queue in left)
            if is_work_alone or self._now().steady >= until:
                self._outcome.waiting += [
                    draining(queue.key.name, held.get(queue.key.name)) for queue in left
                ]
                return
            if len(left) != told:
                told = len(left)
                self._tell(f"ClusterQueues on their way out: {told}")
            await self._sleep(0.5)

    async def _delete_cohorts(self) -> None:
        """Those that nothing names, then those that nothing names any more."""
        while True:
            kinds: tuple[Kind, ...] = (COHORT, CLUSTER_QUEUE)
            kueue = {live.key: live for kind in kinds for live in await self._all(kind)}
            done = len(self._outcome.removed)
            await self._delete_all(idle_cohorts(kueue, self._manager))
            if len(self._outcome.removed) == done:
                self._outcome.waiting += held_cohorts(kueue, self._manager)
                return

    async def _see_flavors(self) -> None:
        """Kueue lets a flavor go in a moment, and keeps it for as long as a queue lists it."""
        until = self._now().steady + (0.0 if self._outcome.waiting else PATIENCE_SECONDS)
        while left := await self._flavors_on_their_way():
            if self._now().steady >= until:
                self._outcome.waiting += [going(live.key) for live in left]
                return
            await self._sleep(0.5)

    async def _flavors_on_their_way(self) -> list[Observed]:
        try:
            flavors = await self._all(RESOURCE_FLAVOR)
        except ApiError as error:
            self._outcome.failed.append(f"read Kueue's flavors: {error.message}")
            return []
        return [live for live in flavors if live.deleting and is_ours(live, self._manager)]

    async def _all(self, kind: Kind) -> list[Observed]:
        try:
            return await self._survey.listed(kind)
        except NotFound:  # the kind is gone, and all of its objects
            return []

    def _is_going(self, queue: Observed) -> bool:
        return queue.deleting and is_ours(queue, self._manager)
