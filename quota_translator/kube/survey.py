"""Everything of ours on a cluster, as `cleanup` finds it; and whether a controller is alive."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from quota_translator.core.holder import INTERVAL, MISSED, Claim, home, named, read_claim
from quota_translator.core.names import (
    GROUP,
    KINDS,
    KUEUE_GROUP,
    KUEUE_VERSION,
    QUOTA_KIND,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
    Kind,
)
from quota_translator.core.removal import Inventory, Thing
from quota_translator.core.world import Clock, Observed, QuotaNode
from quota_translator.errors import ApiError, ConfigurationError, Malformed, NotFound
from quota_translator.kube.client import Client
from quota_translator.kube.decode import WATCHED_FLAVORS, WATCHED_QUOTAS, read_quota, watched_kueue
from quota_translator.kube.lease import LONGEST_SECONDS
from quota_translator.kube.listing import list_all
from quota_translator.kube.resources import LEASES, QUOTAS, SECRETS, WEBHOOKS, Resource
from quota_translator.kube.secrets import LABELS

# Within so long a standby takes a Lease that was given back, and a holder makes a deleted one anew.
_TAKEN_SECONDS: Final = 3.0


class Names(msgspec.Struct, frozen=True):
    """What ours is called here. `asked`: the namespace was asked for, and root's word of where the
    controller lived does not count."""

    manager: str
    namespace: str
    asked: bool
    webhook: str
    secret: str
    lease: str


class _Meta(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] | None = None


class _Rule(msgspec.Struct, rename="camel"):
    api_groups: list[str] = []


class _Webhook(msgspec.Struct):
    rules: list[_Rule] = []


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Object(msgspec.Struct):
    """As much of any of them as is needed."""

    metadata: _Meta
    webhooks: list[_Webhook] = []
    spec: _Spec = msgspec.field(default_factory=_Spec)


class ControllerAlive(ConfigurationError):
    """Somebody would make everything again."""


class Survey:
    """Reads; writes nothing. Everything raises ApiError."""

    def __init__(self, client: Client, names: Names) -> None:
        self._client, self._names = client, names

    async def look(self) -> Inventory:
        """Everything that is there. Kinds that are not served have no objects; where Kueue serves
        them in another version alone, nobody can see them: ConfigurationError."""
        names, notes = self._names, list[str]()
        nodes = await self._nodes(notes)
        namespace = self._home(nodes)
        kueue = await self._kueue(notes)
        webhook = await self._webhook(notes)
        notes.append(
            f"Secret {names.secret} and Lease {names.lease} were looked for in namespace "
            f"{namespace} (--namespace)"
        )
        secret = await self._secret(namespace, notes)
        return Inventory(
            manager=names.manager,
            namespace=namespace,
            nodes=tuple(sorted(nodes, key=lambda node: node.name)),
            kueue=kueue,
            webhook=webhook,
            secret=secret,
            lease=await self._own_lease(namespace),
            notes=tuple(notes),
        )

    async def again(self, found: Inventory) -> Inventory:
        """What was found, with the tree as it is now: nodes that were let go may be gone. As it
        was, where that cannot be read."""
        try:
            nodes = await self._nodes([])
        except ApiError:
            return found
        return msgspec.structs.replace(found, nodes=tuple(nodes))

    async def listed(self, kind: Kind) -> list[Observed]:
        """All objects of one of Kueue's kinds, anybody's. Raises NotFound."""
        if kind == RESOURCE_FLAVOR:
            records, _ = await list_all(self._client, WATCHED_FLAVORS)
            return [record.observed for record in records]
        return (await list_all(self._client, watched_kueue(kind)))[0]

    def _home(self, nodes: Iterable[QuotaNode]) -> str:
        """Where the controller lived: as asked for, else as it said itself."""
        root = next((node for node in nodes if node.name == ROOT), None)
        if self._names.asked or root is None:
            return self._names.namespace
        return home(root.status) or self._names.namespace

    async def _nodes(self, notes: list[str]) -> list[QuotaNode]:
        try:
            return (await list_all(self._client, WATCHED_QUOTAS))[0]
        except NotFound:
            notes.append(f"{QUOTA_KIND} is not served: its CRD is gone already")
            return []

    async def _kueue(self, notes: list[str]) -> dict[Key, Observed]:
        found: dict[Key, Observed] = {}
        absent: list[str] = []
        for kind in KINDS:
            try:
                found |= {record.key: record for record in await self.listed(kind)}
            except NotFound:
                absent.append(kind)
        if absent:
            await self._check_versions()
            notes.append(f"{', '.join(absent)} of Kueue's are not served: nothing of them is left")
        return found

    async def _check_versions(self) -> None:
        """Raises ConfigurationError where objects of ours may be there, out of our sight."""
        try:
            versions = await self._client.served_versions(KUEUE_GROUP)
        except NotFound:
            return
        if versions and KUEUE_VERSION not in versions:
            raise ConfigurationError(
                f"{KUEUE_GROUP} is served as {', '.join(versions)} alone, and what is ours in it "
                f"can only be read as {KUEUE_VERSION}: nothing was done; run it again with a "
                "Kueue that serves that"
            )

    async def _webhook(self, notes: list[str]) -> Thing | None:
        name = self._names.webhook
        found = await self._object(WEBHOOKS, name)
        if found is None:
            return None
        rules = [rule for hook in found.webhooks for rule in hook.rules]
        if {group for rule in rules for group in rule.api_groups} - {GROUP}:
            notes.append(f"{WEBHOOKS.kind} {name} is about more than {GROUP}: it is not ours")
            return None
        return Thing(WEBHOOKS.kind, "", name, found.metadata.uid)

    async def _secret(self, namespace: str, notes: list[str]) -> Thing | None:
        """One of that name may be cert-manager's, or a person's."""
        name = self._names.secret
        found = await self._object(SECRETS, name, namespace)
        if found is None:
            return None
        if not LABELS.items() <= (found.metadata.labels or {}).items():
            label = ", ".join(f"{key}={value}" for key, value in LABELS.items())
            notes.append(f"Secret {namespace}/{name} does not bear {label}: it is not ours")
            return None
        return Thing(SECRETS.kind, namespace, name, found.metadata.uid)

    async def _own_lease(self, namespace: str) -> Thing | None:
        name = self._names.lease
        found = await self._object(LEASES, name, namespace)
        return Thing(LEASES.kind, namespace, name, found.metadata.uid) if found else None

    async def _object(self, resource: Resource, name: str, namespace: str = "") -> _Object | None:
        try:
            body = await self._client.get(resource, name, namespace)
            return msgspec.json.decode(body, type=_Object)
        except NotFound:
            return None
        except msgspec.DecodeError:  # whose text could show what a Secret holds
            raise Malformed(f"unreadable {resource.kind} {name}") from None

    # --- is somebody alive? ---------------------------------------------------------------

    async def check_nobody_lives(
        self,
        found: Inventory,
        *,
        now: Callable[[], Clock],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tell: Callable[[str], object] = lambda _line: None,
    ) -> None:
        """Raises ControllerAlive. A Lease is watched: whoever lives renews it, and the times of
        other machines are not believed. A claim on root may be that of a controller with another
        Lease, or with none, so it is looked at in any case."""
        is_deserted = await self._watch(found.namespace, now, sleep, tell)
        claim = await self._claim()
        if claim is None:
            return
        where = (claim.holder.namespace, claim.holder.lease)
        if is_deserted and where == (found.namespace, self._names.lease):
            return  # whoever made it has just been seen not to renew its Lease
        age = claim.age(now())
        if age is not None and age < MISSED * INTERVAL:
            raise ControllerAlive(
                f"{named(claim.holder)} wrote this tree {age:.0f} s ago and did not give it up: "
                f"stop it; or, if it is gone, wait {MISSED * INTERVAL - age:.0f} s or use --force"
            )

    async def _claim(self) -> Claim | None:
        """As it is now: what was read before a Lease was watched may have been renewed since."""
        try:
            root = read_quota(await self._client.get(QUOTAS, ROOT))
        except NotFound:
            return None
        return read_claim(root.status)

    async def _watch(
        self,
        namespace: str,
        now: Callable[[], Clock],
        sleep: Callable[[float], Awaitable[None]],
        tell: Callable[[str], object],
    ) -> bool:
        """Until nobody would have left the Lease as it is. True: it still names a holder."""
        seen = await self._lease(namespace)
        until = now().steady + _term(seen)
        if seen.holder_identity:
            tell(f"looking for up to {_term(seen):.0f} s whether {seen.holder_identity} is alive")
        while now().steady < until:
            await sleep(1.0)
            again = await self._lease(namespace)
            if again.holder_identity and again != seen:
                raise ControllerAlive(
                    f"a controller is alive and would make everything again: "
                    f"{again.holder_identity} renews Lease {namespace}/{self._names.lease}; "
                    "stop it first (helm uninstall), or use --force"
                )
            if seen.holder_identity and not again.holder_identity:
                seen, until = again, now().steady + _term(again)
        return bool(seen.holder_identity)

    async def _lease(self, namespace: str) -> _Spec:
        """What it says; nothing where it is not there."""
        lease = await self._object(LEASES, self._names.lease, namespace)
        return lease.spec if lease is not None else _Spec()


def _term(lease: _Spec) -> float:
    """For how many seconds somebody who lives may leave it as it is."""
    if not lease.holder_identity:
        return _TAKEN_SECONDS
    return min(float(lease.lease_duration_seconds or 15), LONGEST_SECONDS)
