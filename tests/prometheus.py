"""The real Prometheus, where there is one."""

import shutil
from typing import Final

import pytest

PROMTOOL: Final = shutil.which("promtool") or ""
PROMETHEUS: Final = shutil.which("prometheus") or ""
MISSING: Final = (
    "no prometheus and promtool on PATH: install Debian's package prometheus "
    "(make does so where it is root and there is a network)"
)
needs_prometheus = pytest.mark.skipif(not (PROMTOOL and PROMETHEUS), reason=MISSING)
