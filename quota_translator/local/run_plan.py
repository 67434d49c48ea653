"""The `plan` command: files in, a plan out. Never raises for what the files hold."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from quota_translator.core.options import Options
from quota_translator.core.report import report
from quota_translator.core.translate import remember, translate
from quota_translator.core.world import Clock
from quota_translator.local.changes import changes
from quota_translator.local.load import Loaded, load
from quota_translator.local.markdown import summary
from quota_translator.local.present import View, document
from quota_translator.local.text import text
from quota_translator.local.world import MarkError, assumptions, options_for, read_mark, world_of
from quota_translator.local.yaml_text import dump

DONE, FAILED, VIOLATED = 0, 1, 2


def run_plan(
    paths: Sequence[Path],
    *,
    output: str = "text",
    marks: Sequence[str] = (),
    enrolled: Sequence[str] | None = None,
    options: Options | None = None,
    clock: Clock | None = None,
) -> tuple[int, str, str]:
    """(exit code, what goes to stdout, what goes to stderr).

    `output` is text, markdown (a summary), json or yaml; `marks` are RESOURCE/FLAVOR=N. `enrolled`
    None takes what the options say, else all namespaces of the input. Code 1: one line per problem,
    and no plan.
    """
    loaded = load(paths)
    if loaded.problems:
        return FAILED, "", "".join(f"{problem}\n" for problem in loaded.problems)
    try:
        view = view_of(loaded, marks, enrolled, options or Options(), clock or now())
    except MarkError as error:
        return FAILED, "", f"--mark: {error}\n"
    code = VIOLATED if view.translation.verdict.violations else DONE
    if output == "text":
        return code, text(view), ""
    if output == "markdown":
        return code, summary(view), ""
    made = document(view)
    return code, dump(made) if output == "yaml" else f"{json.dumps(made, indent=2)}\n", ""


def view_of(
    loaded: Loaded,
    marks: Sequence[str],
    enrolled: Sequence[str] | None,
    options: Options,
    clock: Clock,
) -> View:
    """Look once at what was read. Raises MarkError."""
    rows = [read_mark(mark) for mark in marks]
    world = world_of(loaded, enrolled or options.materialize.enrolled_namespaces)
    options = options_for(options, enrolled)
    memory = remember(world.quotas or ())
    capacity = {**memory.capacity, **{row.pair: row for row in rows}}
    memory = msgspec.structs.replace(memory, capacity=capacity)
    notes = [*loaded.notes, *assumptions(loaded, world, options, len(capacity))]
    found = translate(world, memory, options, clock)
    return View(
        translation=found,
        statuses=report(found, world, options, clock),
        changes=changes(found.rendering, found.tree, world.live, options.materialize.manager),
        options=options,
        notes=notes,
        where=loaded.where,
    )


def now() -> Clock:
    return Clock(wall=datetime.now(UTC), steady=time.monotonic())
