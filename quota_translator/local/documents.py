"""A file's text to its objects, YAML or JSON: what `kubectl` would make of it."""

import json
import re
from typing import Final

from quota_translator.local.items import DocumentError, Item
from quota_translator.local.json_text import json_items
from quota_translator.local.yaml_text import yaml_items

_MEANT_AS_JSON: Final = re.compile(r'\s*[{\[]\s*["{\[]')


def parse(data: bytes) -> list[Item]:
    """All objects of a file, Lists taken apart. Raises DocumentError at the first fault."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, f"not UTF-8 text (byte {error.start})") from error
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return list(json_items(text))
        except json.JSONDecodeError as error:
            # Perhaps YAML that starts with a flow mapping. If not, complain about what was meant.
            try:
                return list(yaml_items(text))
            except DocumentError:
                if not _MEANT_AS_JSON.match(text):
                    raise
                raise DocumentError(error.lineno, f"not JSON: {error.msg}") from error
    return list(yaml_items(text))
