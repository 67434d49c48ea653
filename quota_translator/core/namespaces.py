"""Which namespaces are enrolled, and how a ClusterQueue says so."""

from collections.abc import Iterable
from typing import Any

from quota_translator.core.options import MaterializeOptions
from quota_translator.core.selector import NAME_LABEL, matches
from quota_translator.core.world import Namespace


def enrolled(namespaces: Iterable[Namespace], options: MaterializeOptions) -> tuple[str, ...]:
    """The names of the enrolled namespaces that exist and are not being deleted, sorted.

    A namespace is always selectable by its name, also where its label is missing (a file).
    """
    listed = frozenset(options.enrolled_namespaces)
    selector = options.namespace_selector
    found = (
        namespace.name
        for namespace in namespaces
        if not namespace.terminating
        and (
            namespace.name in listed
            if selector is None
            else matches(selector, {**namespace.labels, NAME_LABEL: namespace.name})
        )
    )
    return tuple(sorted(set(found)))


def queue_selector(options: MaterializeOptions) -> dict[str, Any]:
    """The namespaceSelector of every ClusterQueue: the list by name, or the selector itself.

    Empty parts are left out, as Kueue's webhook leaves them out of what it stores; otherwise the
    queue would differ from what is wanted for ever.
    """
    if options.namespace_selector is None:
        names = sorted(set(options.enrolled_namespaces))
        return {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": names}]}
    labels = dict(options.namespace_selector.get("matchLabels") or {})
    expressions = [
        {name: value for name, value in expression.items() if value}
        for expression in options.namespace_selector.get("matchExpressions") or []
    ]
    parts: dict[str, Any] = {"matchLabels": labels, "matchExpressions": expressions}
    return {name: part for name, part in parts.items() if part}
