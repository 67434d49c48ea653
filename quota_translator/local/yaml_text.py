"""YAML to values, as the API server would read them.

libyaml composes a node tree with marks (it refuses nesting beyond 1,000 levels itself); the tree is
turned into plain JSON values here, so that scalars are read as `kubectl` reads them (`scalars.py`),
keys that stand twice are refused, and aliases can neither run in circles nor blow up.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml
from yaml._yaml import CParser
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import BaseResolver

from quota_translator.local.items import DocumentError, Item, Step, is_list, typed
from quota_translator.local.scalars import PLAIN, TEXT, key_text, resolve

MAX_DEPTH: Final = 100  # nested deeper than this, a document is none of ours
MAX_ALIASED: Final = 1_000_000  # values that aliases may add to what is written out
MERGE_KEY: Final = "<<"
_HEADS: Final = ("apiVersion", "kind", "metadata")  # what every object starts with


class _Loader(CParser, BaseResolver):
    """libyaml's parser with no opinion about scalars but whether they are plain."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        BaseResolver.__init__(self)

    def resolve(self, kind: type[Node], _value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            return PLAIN if implicit[0] else TEXT
        return ""


def yaml_items(text: str) -> Iterator[Item]:
    for node in _compose(text):
        value = _Converter().convert(node)
        if is_list(value) and isinstance(node, MappingNode):
            items = next((v for k, v in node.value if k.value == "items"), None)
            for inner, at in zip(value["items"], items.value if items else [], strict=True):
                yield _yaml_item(typed(inner, value), at)
        elif value is not None:
            yield _yaml_item(value, node)


def _yaml_item(value: Any, node: Node) -> Item:
    line = node.start_mark.line + 1
    return Item(
        value=value,
        line=line,
        line_of_steps=lambda path: _descend(node, path)[0],
        text_of_steps=lambda path: _scalar_text(*_descend(node, path)[1:]),
    )


def _compose(text: str) -> Iterator[Node]:
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    except yaml.MarkedYAMLError as error:
        raise _explain(text, error) from error
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        message = f"not YAML: character {error.character:#x} is not allowed in text"
        raise DocumentError(line, message) from error


def _explain(text: str, error: yaml.MarkedYAMLError) -> DocumentError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 0
    lines = text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return DocumentError(line, "not YAML: a tab in the indentation; indent with spaces")
    said = ", ".join(part for part in (error.problem, error.context) if part)
    return DocumentError(line, f"not YAML: {said}")


class _Converter:
    """One document's nodes to JSON values. Aliased nodes are converted once and shared."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[Any, int]] = {}  # node → (value, how many values it holds)
        self.open: set[int] = set()
        self.aliased = 0

    def convert(self, node: Node, depth: int = 0) -> Any:
        return self._of(node, depth)[0]

    def _of(self, node: Node, depth: int) -> tuple[Any, int]:
        if isinstance(node, ScalarNode):
            return self._scalar(node), 1
        me = id(node)
        if me in self.done:
            self._count(node, self.done[me][1])
            return self.done[me]
        if me in self.open:
            raise _fault(node, "an anchor contains itself")
        if depth > MAX_DEPTH:
            raise _fault(node, f"nested deeper than {MAX_DEPTH} levels")
        self.open.add(me)
        made = self._map(node, depth) if isinstance(node, MappingNode) else self._list(node, depth)
        self.open.remove(me)
        self.done[me] = made
        return made

    def _count(self, node: Node, size: int) -> None:
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            message = f"aliases expand to more than {MAX_ALIASED:,} values; write them out"
            raise _fault(node, message)

    def _scalar(self, node: ScalarNode) -> Any:
        try:
            return resolve(node.value, node.tag)
        except ValueError as error:
            raise _fault(node, str(error)) from error

    def _list(self, node: Node, depth: int) -> tuple[list[Any], int]:
        found = [self._of(inner, depth + 1) for inner in node.value]
        return [value for value, _ in found], 1 + sum(size for _, size in found)

    def _map(self, node: Node, depth: int) -> tuple[dict[str, Any], int]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        total = 1
        for key_node, value_node in node.value:
            key, (value, size) = self._key(key_node), self._of(value_node, depth + 1)
            total += size
            if key == MERGE_KEY and key_node.tag == PLAIN:
                self._merge(merged, value, value_node)
            elif key in own:
                raise _fault(key_node, f"the key {key!r} stands twice in one mapping{_hint(key)}")
            else:
                own[key] = value
        return merged | own, total

    def _key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            raise _fault(node, "a key must be text, not a list or a mapping")
        try:
            return key_text(self._scalar(node))
        except ValueError as error:
            raise _fault(node, str(error)) from error

    def _merge(self, merged: dict[str, Any], value: Any, node: Node) -> None:
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise _fault(node, "<< merges mappings only")
            for key, inner in part.items():
                merged.setdefault(key, inner)


def _hint(key: str) -> str:
    """Files that were put together by hand often lack what keeps their objects apart."""
    return "; is a line --- missing between two objects?" if key in _HEADS else ""


def _fault(node: Node, message: str) -> DocumentError:
    return DocumentError(node.start_mark.line + 1, message)


def _descend(node: Node, path: Sequence[Step]) -> tuple[int, Node, bool]:
    """(line, node, arrived) of a path, as far as it exists."""
    line = node.start_mark.line + 1
    for step in path:
        found = _step(node, step)
        if found is None:
            return line, node, False
        at, node = found
        line = at.start_mark.line + 1
    return line, node, True


def _step(node: Node, step: Step) -> tuple[Node, Node] | None:
    if isinstance(node, MappingNode):
        return next(((k, v) for k, v in node.value if k.value == step), None)
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _scalar_text(node: Node, arrived: bool) -> str | None:
    return str(node.value) if arrived and isinstance(node, ScalarNode) else None


# --- writing ----------------------------------------------------------------------------------


class _Dumper(yaml.CSafeDumper):
    """Quotes every text that the API server would read as something else (y, 1e3, 0o10)."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> ScalarNode:
    try:
        is_text = isinstance(resolve(text), str)
    except ValueError:
        is_text = False
    return dumper.represent_scalar(TEXT, text, style=None if is_text else '"')


_Dumper.add_representer(str, _represent_text)


def dump(value: Any) -> str:
    """JSON values as YAML, in the order in which they are given."""
    made = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return str(made)
