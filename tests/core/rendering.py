"""Builders for the tests of rendering, and a short form of resource groups.

`told` writes a group as its cells, flavor by flavor: `gpu a100 16 +0 -4` is nominal 16,
borrowingLimit 0 and lendingLimit 4.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from quota_translator.core.check import Frozen
from quota_translator.core.held import advance_zeroed
from quota_translator.core.kueue import cells
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, KINDS, Key, Kind, Pair
from quota_translator.core.options import MaterializeOptions, Options
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.render import Rendering, render
from quota_translator.core.tree import grow
from quota_translator.core.world import (
    Amount,
    Clock,
    Desired,
    Flavor,
    Memory,
    Namespace,
    Observed,
    QuotaNode,
    World,
)
from tests.core.build import RESOURCES, budget

MANAGER = "quota-translator"
SHORT = {name: word for word, name in RESOURCES.items()}
BARE: Mapping[str, Any] = {"cover": False}  # options for tests that are not about the cover


def at(steady: float = 0.0) -> Clock:
    return Clock(datetime(2026, 11, 1, tzinfo=UTC), steady)


def flavors(*names: str, topology: Iterable[str] = (), deleting: Iterable[str] = ()) -> Any:
    """Flavors of these names, some of which carry a topology or are being deleted."""
    return tuple(
        Flavor(name, topology="rack" if name in topology else "", deleting=name in deleting)
        for name in names
    )


def a_world(*nodes: QuotaNode, live: Iterable[Observed] = (), **fields: Any) -> World:
    given: dict[str, Any] = {
        "flavors": flavors("a100", "h100", "l4"),
        "namespaces": (Namespace("ml-serving"),),
        "known": frozenset(KINDS),
    }
    given |= fields
    return World(nodes, live={observed.key: observed for observed in live}, **given)


def an_option(**fields: Any) -> Options:
    selectors = {"enrolled_namespaces", "namespace_selector"}
    given = fields if selectors & fields.keys() else {"enrolled_namespaces": ("ml-serving",)}
    return Options(materialize=MaterializeOptions(**(dict(given) | fields)))


def rendered(
    *nodes: QuotaNode,
    live: Iterable[Observed] = (),
    frozen: Iterable[str] = (),
    memory: Memory | None = None,
    steady: float = 0.0,
    options: Mapping[str, Any] = BARE,
    **world: Any,
) -> Rendering:
    """Render these nodes, with nothing held back unless the arguments say so."""
    marks = {name: Frozen("CapacityExceeded", "too much", name) for name in frozen}
    seen = a_world(*nodes, live=live, **world)
    return render(grow(nodes), marks, seen, memory or Memory(), an_option(**options), at(steady))


def spec_of(rendering: Rendering, kind: Kind, name: str, namespace: str = "") -> Mapping[str, Any]:
    return rendering.desired[Key(kind, namespace, name)].spec


def queue(rendering: Rendering, name: str) -> list[list[str]]:
    return told(spec_of(rendering, CLUSTER_QUEUE, name).get("resourceGroups", []))


def cohort(rendering: Rendering, name: str) -> list[list[str]]:
    return told(spec_of(rendering, COHORT, name).get("resourceGroups", []))


def told(groups: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [_cell(flavor["name"], cell) for flavor in group["flavors"] for cell in flavor["resources"]]
        for group in groups
    ]


def _cell(flavor: str, cell: Mapping[str, Any]) -> str:
    text = f"{SHORT.get(cell['name'], cell['name'])} {flavor} {cell['nominalQuota']}"
    if "borrowingLimit" in cell:
        text += f" +{cell['borrowingLimit']}"
    if "lendingLimit" in cell:
        text += f" -{cell['lendingLimit']}"
    return text


# --- what stands in Kueue ---------------------------------------------------------------------


def stands(
    kind: Kind,
    name: str,
    *budgets: str,
    parent: str | None = None,
    ours: bool = True,
    **fields: Any,
) -> Observed:
    """A live object with one group for each budget."""
    spec: dict[str, Any] = {}
    if parent is not None:
        spec["cohortName" if kind == CLUSTER_QUEUE else "parentName"] = parent
    if budgets:
        spec["resourceGroups"] = [_group(text) for text in budgets]
    labels = {"managed_by": MANAGER, "quota": name} if ours else {}
    given: dict[str, Any] = {"generation": 1} | labels | fields
    return Observed(Key(kind, "", name), spec=spec, **given)


def _group(text: str) -> dict[str, Any]:
    read = budget(text)
    cell: dict[str, Any] = {"name": read.resource, "nominalQuota": read.nominal}
    if read.borrowing_limit is not None:
        cell["borrowingLimit"] = read.borrowing_limit
    return {
        "coveredResources": [read.resource],
        "flavors": [{"name": read.flavor, "resources": [cell]}],
    }


def as_live(desired: Desired, use: Mapping[Pair, int] | None = None, **fields: Any) -> Observed:
    """A desired object as Kueue shows it once it has taken it, with this use and no other."""
    amounts = {
        pair: Amount(Quantity.of((use or {}).get(pair, 0)), ZERO) for pair in cells(desired.spec)
    }
    given: dict[str, Any] = {
        "generation": 1,
        "active": True,
        "active_generation": 1,
        "usage": amounts,
        "reservation": amounts,
    }
    return Observed(
        desired.key,
        managed_by=MANAGER,
        quota=desired.quota,
        part=desired.part,
        spec=desired.spec,
        **(given | fields),
    )


def seen_zero(live: Iterable[Observed], memory: Memory, steady: float) -> Memory:
    """Memory after one more look at the queues."""
    by_key = {observed.key: observed for observed in live}
    return Memory(zeroed=advance_zeroed(by_key, memory, at(steady)), refused=memory.refused)
