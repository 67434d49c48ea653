"""Tells when something in a folder may have changed.

The kernel's notices come first; where they cannot be had (too many watches, a network file system)
the folder is polled. A look every few seconds, whatever the notices say, makes up for lost ones.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from quota_translator.local.files import is_ours
from quota_translator.local.folder import Report

_QUIET_MS: Final = 50  # a file is read when nothing has happened for so long
_MOST_MS: Final = 300  # or after this, when the writing does not end
POLL_MS: Final = 200
LOOK_AGAIN_MS: Final = 5_000
_PAUSE: Final = 1.0  # seconds before watching is tried again


async def changes_in(
    roots: Sequence[Path], stopping: asyncio.Event, report: Report, force_polling: bool = False
) -> AsyncIterator[None]:
    """Yields when the folders should be looked at; ends when `stopping` is set."""
    polling = force_polling
    while not stopping.is_set():
        try:
            async for _ in awatch(
                *(root for root in roots if root.is_dir()),
                watch_filter=_is_relevant(roots),
                debounce=_MOST_MS,
                step=_QUIET_MS,
                stop_event=stopping,
                rust_timeout=LOOK_AGAIN_MS,
                yield_on_timeout=True,
                force_polling=polling,
                poll_delay_ms=POLL_MS,
            ):
                yield
        except (OSError, RuntimeError) as error:
            if not polling:
                report(f"{roots[0]}: cannot be watched ({error}): it is polled instead")
            polling = True
            yield
            await asyncio.sleep(_PAUSE)


class _is_relevant:  # noqa: N801  a function with a memory of its roots
    """Files that are read: not hidden, and of a suffix that counts; folders, for their renames."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]

    def __call__(self, _change: Change, path: str) -> bool:
        file = Path(path)
        inside = [file.relative_to(root) for root in self._roots if file.is_relative_to(root)]
        shown = any(not part.startswith(".") for parts in inside for part in parts.parts[:1])
        return shown and (is_ours(file.name) or not file.suffix)
