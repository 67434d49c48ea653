"""A real helm, built where it is not at hand yet, before the clock of any test runs."""

import pytest

from e2e.controlplane import build


def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly:
        build.ensure_tool("helm")
