"""What is sent: whole objects to create, merge patches to change. Pure.

A merge patch merges maps, so that what must go from a map needs an explicit null; lists are
replaced whole.
"""

from collections.abc import Mapping
from typing import Any, Final

from quota_translator.core import kueue
from quota_translator.core.actions import Action
from quota_translator.core.names import API_VERSION, LABEL_PART, QUOTA_KIND, ROOT, STATES
from quota_translator.core.world import Desired, Observed

LABELS: Final = "labels"  # the name in Action.fields that stands for our labels


def desired(action: Action) -> Desired:
    return Desired(action.key, action.quota, action.nodes, action.spec, action.part)


def update(action: Action, live: Observed, manager: str) -> dict[str, Any]:
    """The merge patch that turns the fields of `action` from what is live into what is wanted.

    The uid makes it an update of this very object and of no other of its name. An action without
    one follows a create of the same plan, which nobody could know the uid of.
    """
    metadata: dict[str, Any] = {"uid": action.uid or live.uid}
    if LABELS in action.fields:
        wanted: dict[str, str | None] = dict(kueue.labels(desired(action), manager))
        if live.part is not None:
            wanted.setdefault(LABEL_PART, None)
        metadata["labels"] = wanted
    if set(action.fields) & set(kueue.OPTIONAL_FIELDS.get(action.key.kind, ())):
        metadata["annotations"] = {STATES: kueue.states(action.key.kind, action.spec) or None}
    wanted_spec = kueue.plain(action.spec)
    spec = {
        field: replacing(live.spec.get(field), wanted_spec.get(field))
        for field in action.fields
        if field != LABELS
    }
    return {"metadata": metadata} | ({"spec": spec} if spec else {})


def replacing(old: Any, new: Any) -> Any:
    """The value that gives `new` when it is merged into `old`."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    gone = {name: None for name in old if name not in new}
    return gone | {name: replacing(old.get(name), value) for name, value in new.items()}


def root() -> dict[str, Any]:
    """The AcceleratorQuota that everything hangs beneath: a group without budgets."""
    return {
        "apiVersion": API_VERSION,
        "kind": QUOTA_KIND,
        "metadata": {"name": ROOT},
        "spec": {"role": "Cohort"},
    }
