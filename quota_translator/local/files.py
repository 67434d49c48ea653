"""Which files a list of paths means, and their bytes. All faults are collected, none is raised."""

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_BYTES: Final = 64 * 2**20  # 5,000 nodes as `kubectl get -o yaml` prints them are near 60 MB
STANDARD_INPUT: Final = Path("-")


class Problem(msgspec.Struct, frozen=True, order=True):
    """What could not be read: where (line 0: the whole file), and what to do about it."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.message}"


def find(paths: Sequence[Path]) -> tuple[list[Path], list[Problem]]:
    """Files in the order of paths, each once; folders are searched whole, in the order of names.

    A file that is named is taken whatever its name; in folders only .yaml, .yml and .json count,
    and what starts with a dot is not looked at.
    """
    found: dict[str, Path] = {}
    problems: list[Problem] = []
    for path in paths:
        inside = [path]
        if path == STANDARD_INPUT:
            found.setdefault("-", path)
            continue
        if not path.exists():
            problems.append(Problem(str(path), 0, "no such file or folder"))
            continue
        if path.is_dir():
            inside = _inside(path, problems)
            if not inside and not problems:
                problems.append(Problem(str(path), 0, "no .yaml, .yml or .json file in here"))
        for file in inside:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values()), problems


def _inside(folder: Path, problems: list[Problem]) -> list[Path]:
    def failed(error: OSError) -> None:
        problems.append(Problem(str(error.filename), 0, f"cannot be read: {error.strerror}"))

    found: list[Path] = []
    for at, folders, files in os.walk(folder, onerror=failed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(at, name) for name in files if is_ours(name)]
    return sorted(found)


def is_ours(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".")


def read(path: Path) -> bytes | Problem:
    """A file's bytes, at most MAX_BYTES of them."""
    if path == STANDARD_INPUT:
        return _limited(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return Problem(str(path), 0, "is not a regular file")
        with path.open("rb") as file:
            return _limited(file.read(MAX_BYTES + 1), str(path))
    except OSError as error:
        return Problem(str(path), 0, f"cannot be read: {error.strerror}")


def _limited(data: bytes, name: str) -> bytes | Problem:
    if len(data) > MAX_BYTES:
        limit = MAX_BYTES // 2**20
        return Problem(name, 0, f"is larger than {limit} MiB, the most that is read: split it")
    return data
