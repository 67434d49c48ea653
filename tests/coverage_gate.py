"""Fails when fewer than 97 % of the branches of core/ were taken by the tests."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

WANTED = 97.0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)]
        subprocess.run(command, check=True)
        files = json.loads(report.read_text())["files"]
    core = {n: f["summary"] for n, f in files.items() if n.startswith("quota_translator/core/")}
    taken = sum(summary["covered_branches"] for summary in core.values())
    there = sum(summary["num_branches"] for summary in core.values())
    if not there:
        sys.stderr.write("no branches of core/ were measured: did the tests run with --cov?\n")
        return 1
    percent = 100 * taken / there
    for name, summary in sorted(core.items()):
        missed = summary["num_branches"] - summary["covered_branches"]
        if missed:
            sys.stdout.write(f"    {name}: {missed} of {summary['num_branches']} not taken\n")
    sys.stdout.write(f"    core/: {percent:.1f} % of {there} branches taken (at least {WANTED})\n")
    return 0 if percent >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
