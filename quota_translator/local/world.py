"""What was read, as the World that the core looks at, and what had to be assumed for it."""

from collections.abc import Iterable, Sequence

import msgspec

from quota_translator.core.names import COHORT, KINDS, QUOTA_KIND, ROOT, Key, Pair
from quota_translator.core.options import Options
from quota_translator.core.quantity import ZERO, Quantity, QuantityError
from quota_translator.core.world import CapacityRow, Namespace, Observed, QuotaNode, World
from quota_translator.local.load import Loaded
from quota_translator.local.objects import NAMESPACE, NODE, Entry


class MarkError(ValueError):
    """A --mark that cannot be read."""


def world_of(loaded: Loaded, enrolled: Iterable[str] = ()) -> World:
    """Kinds of which the input has no object are not known, except Kueue's, which are all there.

    So without a Node nothing is measured, and without a ResourceFlavor no budget is dropped.
    `root` is added where it is missing, as the controller would create it. Namespaces that are
    enrolled by name are taken to exist. A node that files do not have any more was taken away.
    """
    entries = loaded.entries
    quotas = [entry.quota for entry in entries if entry.quota is not None]
    if all(node.name != ROOT for node in quotas):
        quotas.append(QuotaNode(name=ROOT, role=COHORT))
    spaces = {entry.space.name: entry.space for entry in entries if entry.space is not None}
    for name in enrolled:
        spaces.setdefault(name, Namespace(name))
    return World(
        quotas=tuple(quotas),
        nodes=tuple(entry.node for entry in entries if entry.node) or None,
        flavors=tuple(entry.flavor for entry in entries if entry.flavor) or None,
        namespaces=tuple(spaces[name] for name in sorted(spaces)) or None,
        live=live_of(entries),
        known=frozenset(KINDS),
        has_finalizers=False,
    )


def live_of(entries: Iterable[Entry]) -> dict[Key, Observed]:
    """Kueue's current objects."""
    return {entry.live.key: entry.live for entry in entries if entry.live is not None}


def options_for(options: Options, enrolled: Sequence[str] | None = None) -> Options:
    """Enrol what was asked for, else what the settings say, else every namespace of the input."""
    chosen = options.materialize
    if enrolled is None and chosen.enabled:
        return options
    names = tuple(enrolled or ())
    selector: dict[str, str] | None = None if names else {}
    chosen = msgspec.structs.replace(chosen, enrolled_namespaces=names, namespace_selector=selector)
    return msgspec.structs.replace(options, materialize=chosen)


def assumptions(loaded: Loaded, world: World, options: Options, marks: int) -> list[str]:
    """What a reader must know of how the input was understood, one sentence each."""
    kinds = {entry.kind for entry in loaded.entries}
    notes = []
    if options.capacity.resources and world.nodes is None:
        basis = "budgets are held to earlier marks" if marks else "capacity is not checked"
        notes.append(f"no {NODE} in the input: nothing is measured, so {basis}")
    if world.flavors is None:
        notes.append("no ResourceFlavor in the input: flavors count as unreadable, none as missing")
    if NAMESPACE not in kinds and world.namespaces is None:
        notes.append(
            f"no {NAMESPACE} in the input and none enrolled: queues are open to every namespace, "
            "and no LocalQueue is shown"
        )
    if QUOTA_KIND not in kinds:
        notes.append(f"no {QUOTA_KIND} in the input: the tree is root alone")
    elif all(entry.kind != QUOTA_KIND or entry.name != ROOT for entry in loaded.entries):
        notes.append("root is not in the input: the controller creates it")
    return notes


def read_mark(text: str) -> CapacityRow:
    """`nvidia.com/gpu/a100=32`: an earlier high-water mark. Raises MarkError."""
    names, equals, amount = text.partition("=")
    resource, slash, flavor = names.rpartition("/")
    if not (equals and slash and resource and flavor):
        raise MarkError(f"{text!r} is not RESOURCE/FLAVOR=N, such as nvidia.com/gpu/a100=32")
    try:
        mark = Quantity.parse(amount)
    except QuantityError as error:
        raise MarkError(f"{text!r}: {error}") from error
    if mark < ZERO:
        raise MarkError(f"{text!r}: a mark cannot be negative")
    return CapacityRow(
        pair=Pair(resource, flavor),
        allocatable=ZERO,
        unavailable=ZERO,
        unhealthy=ZERO,
        installed=ZERO,
        mark=mark,
        measured=False,
    )
