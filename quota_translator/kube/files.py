"""When files that others write have changed: a kubelet's, or those that a kubeconfig names."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[tuple[str, int, int], ...]


def stamp_of(paths: Iterable[str | Path]) -> Stamp:
    """What changes when a file is written or exchanged; one that is not there counts as none."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            state = Path(path).stat()
            found.append((str(path), state.st_mtime_ns, state.st_ino))
    return tuple(found)
