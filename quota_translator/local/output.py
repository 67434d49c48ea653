"""Where local mode writes: Kueue's objects as files, and a state file for the tree's statuses.

    objects/<kind>/[<namespace>/]<name>.yaml    what would be in the cluster, ready for `kubectl`
    state.yaml                                  statuses and generations of the tree's nodes

Every file is written whole and renamed into place, so that a reader, or this program after a crash,
sees the old one or the new one. What a person adds to an object outside the fields that this
program states stays, as it would on a server.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from quota_translator.core.kueue import body, stated_names
from quota_translator.core.names import API_VERSION, LABEL_MANAGED_BY, STATES, Key
from quota_translator.core.rules import is_subdomain
from quota_translator.core.world import Desired
from quota_translator.local.documents import parse
from quota_translator.local.files import Problem, read
from quota_translator.local.items import DocumentError
from quota_translator.local.yaml_text import dump

FOLDER: Final = ".quota-translator"
OBJECTS: Final = "objects"
STATE: Final = "state.yaml"
_KIND: Final = "LocalState"
_HEADER: Final = "# Written by quota-translator run --local. Edits are put back.\n"


class NodeState(msgspec.Struct):
    """What a server would keep of a node of the tree besides what its author wrote."""

    generation: int
    digest: str  # of the spec that has this generation
    status: Mapping[str, Any]


class Output:
    """The output folder. All methods do I/O; those that write raise OSError."""

    def __init__(self, folder: Path, manager: str) -> None:
        self.folder = folder
        self.objects = folder / OBJECTS
        self._manager = manager

    # --- Kueue's objects ------------------------------------------------------------------

    def path(self, key: Key) -> Path:
        """Raises ValueError for names that no server would take (and no path should hold)."""
        parts = [part for part in (key.namespace, key.name) if part or part == key.name]
        for part in parts:
            if not is_subdomain(part):
                raise ValueError(f"{part!r} is not a name that Kubernetes takes")
        return self.objects.joinpath(key.kind, *parts[:-1], f"{parts[-1]}.yaml")

    def write(self, wanted: Desired) -> None:
        """Create or update the object's file. Raises ValueError as `path` does."""
        path = self.path(wanted.key)
        made = body(wanted, self._manager)
        old = _one(path)
        spec = old.get("spec")
        if isinstance(spec, dict):
            ours = stated_names(wanted.key.kind, _annotations(old))
            made["spec"] = {k: v for k, v in spec.items() if k not in ours} | made["spec"]
        metadata = old.get("metadata")
        if isinstance(metadata, dict):
            labels = metadata.get("labels")
            if isinstance(labels, dict):
                group = LABEL_MANAGED_BY.partition("/")[0]
                kept = {k: v for k, v in labels.items() if not str(k).startswith(f"{group}/")}
                made["metadata"]["labels"] |= kept
            own = made["metadata"].get("annotations", {})
            kept = {k: v for k, v in _annotations(old).items() if k != STATES}
            if kept or own:
                made["metadata"]["annotations"] = kept | own
        replace(path, _HEADER + dump(made))

    def delete(self, key: Key) -> None:
        self.path(key).unlink(missing_ok=True)

    # --- the state ------------------------------------------------------------------------

    def read_state(self) -> tuple[dict[str, NodeState], set[str]] | Problem:
        """(nodes, keys of input objects that were deleted); empty when there is no file yet."""
        path = self.folder / STATE
        if not path.exists():
            return {}, set()
        data = read(path)
        if isinstance(data, Problem):
            return data
        try:
            found = msgspec.convert(next((i.value for i in parse(data)), {}), _State)
        except (DocumentError, msgspec.ValidationError) as error:
            return Problem(str(path), getattr(error, "line", 0), f"state cannot be read: {error}")
        return dict(found.nodes), set(found.deleted)

    def write_state(self, nodes: Mapping[str, NodeState], deleted: set[str]) -> None:
        made = {
            "apiVersion": API_VERSION,
            "kind": _KIND,
            "nodes": {name: msgspec.structs.asdict(nodes[name]) for name in sorted(nodes)},
            "deleted": sorted(deleted),
        }
        replace(self.folder / STATE, _HEADER + dump(made))


class _State(msgspec.Struct):
    nodes: dict[str, NodeState] = {}
    deleted: list[str] = []


def digest(text: str) -> str:
    """The same for equal texts, in this process and the next."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def replace(path: Path, content: str) -> None:
    """Write a file whole or not at all; nothing is written when it says the same already."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _annotations(document: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = document.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def _one(path: Path) -> Mapping[str, Any]:
    """The object in a file; {} when there is none or it cannot be read."""
    data = read(path) if path.exists() else Problem("", 0, "")
    if isinstance(data, Problem):
        return {}
    try:
        value = next((item.value for item in parse(data)), None)
    except DocumentError:
        return {}
    return value if isinstance(value, dict) else {}
