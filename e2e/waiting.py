"""Waiting for a state, instead of sleeping for a time and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.5


def eventually(
    look: Callable[[], T],
    timeout: float = 30.0,
    what: str = "",
    *,
    catch: type[Exception] | tuple[type[Exception], ...] = Exception,
) -> T:
    """Call ``look`` until what it returns is true and it raises nothing; that value.

    A look is a function with asserts in it, or one that returns something false while the state is
    not there. When the time is over, the failure says what was waited for and what was last seen.
    Looks that end in ``return None`` do not fit: None counts as not there yet.
    """
    started = time.monotonic()
    pause = FIRST_PAUSE
    while True:
        value: T | None = None
        problem: Exception | None = None
        try:
            value = look()
        except catch as error:
            problem = error
        if problem is None and value:
            return value
        spent = time.monotonic() - started
        if spent > timeout:
            raise AssertionError(_failure(what or _name(look), spent, value, problem)) from problem
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)


def _failure(what: str, spent: float, value: object, problem: Exception | None) -> str:
    seen = repr(value) if problem is None else f"{type(problem).__name__}: {problem}"
    return f"waited {spent:.1f} s for {what}; last seen: {seen}"


def _name(look: Callable[[], object]) -> str:
    return getattr(look, "__name__", repr(look))
