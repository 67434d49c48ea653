"""`quota-translator capacity retire`: asks the controller to give up the mark of a pair."""

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from quota_translator.connecting import connect_by
from quota_translator.core.ceilings import declared
from quota_translator.core.names import RETIRE, ROOT, Pair
from quota_translator.core.quantity import ZERO
from quota_translator.core.retirement import is_forgotten, written
from quota_translator.core.rootstatus import capacity_from_status
from quota_translator.core.verdict import listed
from quota_translator.core.world import CapacityRow, QuotaNode
from quota_translator.errors import Conflict, QuotaTranslatorError
from quota_translator.kube.client import Client
from quota_translator.kube.decode import WATCHED_QUOTAS
from quota_translator.kube.listing import list_all
from quota_translator.kube.resources import QUOTAS
from quota_translator.settings import Settings

_ATTEMPTS: Final = 3


class NotRetired(QuotaTranslatorError):
    """It must not be retired, or there is nothing to retire; the message says why."""


class Retiring(msgspec.Struct, frozen=True):
    """What was asked of the controller. `freezes`: the nodes whose budgets are then too large."""

    pair: Pair
    mark: str
    freezes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {
            "resourceName": self.pair.resource,
            "resourceFlavor": self.pair.flavor,
            "highWaterMark": self.mark,
            "freezes": list(self.freezes),
        }

    def text(self) -> str:
        told = f"{self.pair}: the controller was asked to give up its mark of {self.mark}\n"
        if self.freezes:
            told += f"These nodes freeze until their budgets are lowered: {listed(self.freezes)}\n"
        return told


def run_retire(settings: Settings, pair: Pair, output: str) -> int:
    """The whole command; its exit code."""
    try:
        found = asyncio.run(_run(settings, pair))
    except QuotaTranslatorError as error:
        sys.stderr.write(f"quota-translator: {error}\n")
        return 1
    text = json.dumps(found.document(), indent=2) + "\n" if output == "json" else found.text()
    sys.stdout.write(text)
    return 0


async def _run(settings: Settings, pair: Pair) -> Retiring:
    connection = await connect_by(settings)
    async with Client(connection) as client:
        return await retire(client, pair)


async def retire(client: Client, pair: Pair) -> Retiring:
    """Annotate root. Raises NotRetired, or what the client raises."""
    for left in range(_ATTEMPTS, 0, -1):
        nodes, _ = await list_all(client, WATCHED_QUOTAS)
        root = next((node for node in nodes if node.name == ROOT), None)
        found = _check(root, nodes, pair)
        assert root is not None, "checked"
        asked = [part for part in str(root.annotations.get(RETIRE, "")).split(",") if part.strip()]
        wanted = ",".join(dict.fromkeys([*asked, written(pair)]))
        # Somebody else's request, made meanwhile, must not be lost.
        metadata = {"uid": root.uid, "resourceVersion": root.resource_version}
        try:
            patch = {"metadata": metadata | {"annotations": {RETIRE: wanted}}}
            await client.merge_patch(QUOTAS, ROOT, patch)
        except Conflict:
            if left == 1:
                raise
            continue
        return found
    raise AssertionError("the last attempt returns or raises")


def _check(root: QuotaNode | None, nodes: Iterable[QuotaNode], pair: Pair) -> Retiring:
    if root is None:
        raise NotRetired("there is no AcceleratorQuota root, so nothing is measured here")
    rows = capacity_from_status(root.status)
    row = rows.get(pair)
    if row is None:
        known = listed([written(one) for one in sorted(rows)]) or "none"
        raise NotRetired(f"{pair} is not among the pairs that root.status has: {known}")
    if is_forgotten(row):
        raise NotRetired(f"{pair} has no mark: no node has ever reported it")
    if row.measured:
        raise NotRetired(f"{pair} is not retired: {_reported(row)}; take them away first")
    most = declared(root).get(pair, ZERO)
    freezes = sorted(
        node.name
        for node in nodes
        if any(budget.pair == pair and budget.nominal > most for budget in node.budgets)
    )
    return Retiring(pair, row.mark.canonical(), tuple(freezes))


def _reported(row: CapacityRow) -> str:
    count = row.nodes + row.unavailable_nodes
    return f"{count} node(s) report {row.installed}" if count else "nodes report it, with 0"
