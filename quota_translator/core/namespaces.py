"""Which namespaces are enrolled, which of them are a team's, and how a ClusterQueue says so."""

from collections.abc import Iterable, Mapping
from typing import Any

from quota_translator.core.options import MaterializeOptions
from quota_translator.core.selector import NAME_LABEL, SelectorError, matches, parse_selector
from quota_translator.core.world import FieldFault, Namespace


def enrolled(namespaces: Iterable[Namespace], options: MaterializeOptions) -> tuple[Namespace, ...]:
    """The enrolled namespaces that exist and are not being deleted, by name."""
    selector = _enrolment(options)
    found = {one.name: one for one in namespaces if not one.terminating and fits(one, selector)}
    return tuple(found[name] for name in sorted(found))


def fits(namespace: Namespace, selector: Mapping[str, Any]) -> bool:
    """A namespace is always selectable by its name, also where its label is missing (a file)."""
    return matches(selector, {**namespace.labels, NAME_LABEL: namespace.name})


def queue_selector(
    options: MaterializeOptions, own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The namespaceSelector of a ClusterQueue: what is enrolled, and of that what is the team's.

    Empty parts are left out, as Kueue's webhook leaves them out of what it stores; otherwise the
    queue would differ from what is wanted for ever.
    """
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for selector in (_enrolment(options), own or {}):
        for key, value in (selector.get("matchLabels") or {}).items():
            if labels.setdefault(key, value) != value:  # it cannot be both, and then none fits
                expressions.append({"key": key, "operator": "In", "values": [value]})
        expressions += [
            {name: value for name, value in expression.items() if value}
            for expression in selector.get("matchExpressions") or []
        ]
    parts: dict[str, Any] = {"matchLabels": labels, "matchExpressions": expressions}
    return {name: part for name, part in parts.items() if part}


def _enrolment(options: MaterializeOptions) -> Mapping[str, Any]:
    if options.namespace_selector is not None:
        return options.namespace_selector
    return by_name(options.enrolled_namespaces)


def by_name(names: Iterable[str]) -> dict[str, Any]:
    """The selector of these namespaces."""
    values = sorted(set(names))
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": values}]}


def named(selector: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names in a selector that `by_name` made; () for any other."""
    expressions = (selector or {}).get("matchExpressions") or [{}]
    names = expressions[0].get("values") or []
    return tuple(names) if selector == by_name(names) else ()


def read_namespaces(spec: Mapping[str, Any], faults: list[FieldFault]) -> Mapping[str, Any] | None:
    """A team's own selector, from `namespaces` or `namespaceSelector`. Never raises."""
    names, selector = spec.get("namespaces"), spec.get("namespaceSelector")
    if names is not None and selector is not None:
        message = "excludes spec.namespaces: keep one of them"
        faults.append(FieldFault("spec.namespaceSelector", message))
        return None
    if names is not None:
        if isinstance(names, list) and names and all(isinstance(one, str) for one in names):
            return by_name(names)
        faults.append(FieldFault("spec.namespaces", "is not a list of names"))
    if selector is not None:
        try:
            if not isinstance(selector, Mapping):
                raise SelectorError("is not a LabelSelector")
            return parse_selector(selector)
        except (SelectorError, AttributeError, TypeError) as error:
            faults.append(FieldFault("spec.namespaceSelector", str(error)))
    return None
