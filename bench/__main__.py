"""`python -m bench`: measure everything at every size, print the table, write the JSON."""

import argparse
import sys
import time
from pathlib import Path

from bench import measure, report
from bench.recording import record
from bench.sizes import SIZES
from bench.subjects import SUBJECTS


def main() -> int:
    arguments = _arguments()
    commit_before, load_before = measure.commit(), measure.load()
    found: list[measure.Record] = []
    for name in arguments.sizes:
        size, started = SIZES[name], time.monotonic()
        _say(f"==> {name}: {size.nodes} nodes, {size.objects} Kueue objects: recording")
        place = record(size, arguments.data)
        _say(f"    recorded: {time.monotonic() - started:.0f} s")
        for at, subject in enumerate(arguments.subjects, 1):
            started = time.monotonic()
            found += measure.run(subject, size, place, arguments.processes)
            took = f"{time.monotonic() - started:.0f} s"
            _say(f"    {name} {at} of {len(arguments.subjects)}: {subject}: {took}")
    about = measure.machine(commit_before, load_before)
    made = report.Report(about, tuple(found), report.growth(found))
    sys.stdout.write("\n" + report.table(made))
    _say(f"\nwritten to {report.write(made, arguments.results)}")
    return 0


def _arguments() -> argparse.Namespace:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["S", "M", "L"])
    parser.add_argument("--subjects", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--processes", type=int, default=3, help="processes a subject and size")
    parser.add_argument("--data", type=Path, default=here.parent / "build" / "bench")
    parser.add_argument("--results", type=Path, default=here / "results")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
