"""The fences of docs/guide.md as steps: what is documented is what runs.

A fence's info string says what it is: `bash` (run it), `bash eventually` (run it until the output
that follows is seen), `bash fails` (it must fail with that output), `bash about` (times in the
output may be others), `bash setup` (done by the test itself), `yaml FILE` (write it), `output`
(what the command before it prints).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    kind: str  # "file", "run", "eventually", "fails", "about" or "setup"
    text: str  # the command, or the file's content
    name: str = ""  # of the file
    output: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.name or self.text.strip()}"


def steps(document: Path) -> list[Step]:
    found: list[Step] = []
    for fence in _FENCE.finditer(document.read_text(encoding="utf-8")):
        kind, _, rest = fence["info"].strip().partition(" ")
        body = fence["body"]
        if kind == "bash":
            found.append(Step(rest or "run", body))
        elif kind == "yaml":
            found.append(Step("file", body, name=rest))
        elif kind == "output":
            last = found.pop()
            found.append(Step(last.kind, last.text, last.name, body))
        else:
            raise ValueError(f"a fence of an unknown kind: {fence['info']!r}")
    return found
