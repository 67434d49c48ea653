"""Tells when something in a folder may have changed.

The kernel's notices come first; where they cannot be had (too many watches, a file system without
them) the folder is looked at all the time. A look every few seconds, whatever the notices say,
makes up for lost ones.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from quota_translator.local.files import is_ours
from quota_translator.local.folder import Report

_QUIET_MS: Final = 50  # a file is read when nothing has happened for so long
_MOST_MS: Final = 300  # or after this, when the writing does not end
LOOK_AGAIN_MS: Final = 5_000
POLL_SECONDS: Final = 0.2


async def changes_in(
    roots: Sequence[Path], stopping: asyncio.Event, report: Report, force_polling: bool = False
) -> AsyncIterator[None]:
    """Yields when the folders should be looked at; ends when `stopping` is set."""
    if not force_polling:
        try:
            async for _ in _notices(roots, stopping):
                yield
        except (OSError, RuntimeError) as error:
            report(f"{roots[0]}: cannot be watched ({error}): it is looked at all the time instead")
    while not stopping.is_set():
        yield
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), POLL_SECONDS)


async def _notices(roots: Sequence[Path], stopping: asyncio.Event) -> AsyncIterator[None]:
    watcher = awatch(
        *(root for root in roots if root.is_dir()),
        watch_filter=_Relevant(roots),
        debounce=_MOST_MS,
        step=_QUIET_MS,
        stop_event=stopping,
        rust_timeout=LOOK_AGAIN_MS,
        yield_on_timeout=True,
        force_polling=False,
    )
    # The watch exists as soon as somebody waits for it; what happened before that is not told.
    first = asyncio.ensure_future(anext(watcher, None))
    await asyncio.sleep(0)
    yield
    await first
    yield
    async for _ in watcher:
        yield


class _Relevant:
    """Files that are read: not hidden, and of a suffix that counts; folders, for their renames."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]

    def __call__(self, _change: Change, path: str) -> bool:
        file = Path(path)
        inside = [file.relative_to(root) for root in self._roots if file.is_relative_to(root)]
        # A root may lie in a hidden folder (the output does); what counts is the part beneath it.
        shown = any(all(not part.startswith(".") for part in found.parts) for found in inside)
        return shown and (is_ours(file.name) or not file.suffix)
