"""A plan as a comment on a pull request: short, and safe whatever names the input has.

What comes from the input stands in one fenced block. A fence is longer than any run of backticks in
it, so nothing can end it early and turn into a link, a mention or a heading.
"""

import re
from collections.abc import Sequence
from typing import Final

from quota_translator.local.present import View
from quota_translator.local.text import change_lines, finding_lines, verdict_line, violation_lines

_MOST: Final = 10  # lines of each kind; the whole plan is one command away
_MOST_LINE: Final = 300
_RUN: Final = re.compile("`+")


def summary(view: View) -> str:
    """At most some 40 lines."""
    is_sound = not view.translation.verdict.violations
    parts = [
        _cut(violation_lines(view)),
        _cut(finding_lines(view)),
        _cut(change_lines(view.changes)),
        [verdict_line(view)],
    ]
    body = "\n\n".join("\n".join(lines) for lines in parts if lines)
    longest = max((len(run) for run in _RUN.findall(body)), default=0)
    fence = "`" * max(3, longest + 1)
    verdict = "sound" if is_sound else "**not sound**"
    return f"### Accelerator quotas: {verdict}\n\n{fence}text\n{body}\n{fence}\n"


def _cut(lines: Sequence[str]) -> list[str]:
    """The heading and the first lines; one line more is shown rather than counted."""
    rest = len(lines) - (_MOST + 1)
    if rest <= 1:
        return [_line(line) for line in lines]
    shown = [_line(line) for line in lines[: _MOST + 1]]
    return [*shown, f"  ... and {rest} more lines (-o text shows all)"]


def _line(line: str) -> str:
    flat = " ".join(line.splitlines())
    return flat if len(flat) <= _MOST_LINE else f"{flat[:_MOST_LINE]}…"
