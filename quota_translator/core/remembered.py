"""What earlier statuses say: how times and last figures survive a restart.

Statuses are read as they are found: what cannot be read is as good as never written.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from quota_translator.core.names import Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.times import read_stamp
from quota_translator.core.usage import budget_rows, read_amount
from quota_translator.core.verdict import Verdict
from quota_translator.core.world import Clock, QuotaNode


def frozen_since_from(quotas: Iterable[QuotaNode]) -> dict[str, datetime]:
    """Since when each frozen node has been frozen, as stored."""
    found = {node.name: frozen_at(node.status) for node in quotas}
    return {name: since for name, since in found.items() if since is not None}


def over_since_from(quotas: Iterable[QuotaNode]) -> dict[tuple[str, Pair], datetime]:
    """Since when each budget has been over, as stored."""
    found: dict[tuple[str, Pair], datetime] = {}
    for node in quotas:
        for pair, row in budget_rows(node.status).items():
            since = read_stamp(row.get("overSince"))
            if since is not None:
                found[node.name, pair] = since
    return found


def advance_frozen(
    verdict: Verdict, before: Mapping[str, datetime], clock: Clock
) -> dict[str, datetime]:
    """Since when each node that is frozen now has been; all others are forgotten."""
    return {name: before.get(name, clock.wall) for name in verdict.frozen}


def frozen_at(status: Mapping[str, Any]) -> datetime | None:
    """None unless the stored status says that the node is frozen."""
    found = status.get("materialization")
    if not isinstance(found, Mapping) or found.get("frozen") is not True:
        return None
    return read_stamp(found.get("frozenAt"))


def last_in_force(status: Mapping[str, Any]) -> dict[Pair, Quantity]:
    """The shares that Kueue was last seen to enforce."""
    found = {pair: read_amount(row.get("inForce")) for pair, row in budget_rows(status).items()}
    return {pair: share for pair, share in found.items() if share is not None}
