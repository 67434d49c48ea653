"""Fails when a package of requirements/run.txt has a known vulnerability that nobody has judged.

An advisory source that cannot be reached is a warning: a build must not hang on somebody's network.
What was judged stands in requirements/audit-ignore.txt, a line each: `ID YYYY-MM-DD reason`.
"""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

REQUIREMENTS = Path("requirements/run.txt")
IGNORED = Path("requirements/audit-ignore.txt")
SECONDS = 120.0


class Finding(NamedTuple):
    package: str
    identity: str
    aliases: frozenset[str]
    fixed_in: str

    @property
    def names(self) -> frozenset[str]:
        return self.aliases | {self.identity}


def audit(requirements: Path) -> dict[str, Any] | str:
    """pip-audit's report, or a sentence that says why there is none."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"),
        *("--timeout", "10", "--disable-pip", "--require-hashes", "-r", str(requirements)),
    ]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS:g} s"
    try:
        report = json.loads(found.stdout)
    except ValueError:
        lines = [line for line in found.stderr.splitlines() if line.strip()]
        return lines[-1][:200] if lines else f"pip-audit ended with {found.returncode}"
    return dict(report)


def ignored(text: str) -> dict[str, str]:
    """Advisory to reason. Raises ValueError for a line without a date or a reason."""
    entries: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        try:
            identity, day, reason = words
            date.fromisoformat(day)
        except ValueError:
            raise ValueError(f"line {number}: is not `ID YYYY-MM-DD reason`: {line!r}") from None
        entries[identity] = reason
    return entries


def findings(report: dict[str, Any]) -> list[Finding]:
    return [
        Finding(
            f"{package['name']} {package['version']}",
            each["id"],
            frozenset(each.get("aliases", ())),
            ", ".join(each.get("fix_versions", ())) or "no version",
        )
        for package in report["dependencies"]
        for each in package.get("vulns", ())
    ]


def judge(report: dict[str, Any], accepted: dict[str, str]) -> tuple[list[str], list[str]]:
    """Faults and warnings, a line each."""
    found = findings(report)
    faults = [
        f"{each.package}: {each.identity}, fixed in {each.fixed_in}"
        for each in found
        if not each.names & set(accepted)
    ]
    skipped = [each["name"] for each in report["dependencies"] if "skip_reason" in each]
    warnings = []
    if skipped:
        count = f"{len(skipped)} of {len(report['dependencies'])}"
        warnings.append(f"the advisory source knows nothing of {count} packages: not audited")
    else:
        known = {name for each in found for name in each.names}
        warnings += [
            f"{IGNORED}: {name} is found no more" for name in sorted(set(accepted) - known)
        ]
    return faults, warnings


def main() -> int:
    try:
        accepted = ignored(IGNORED.read_text())
    except ValueError as error:
        sys.stderr.write(f"{IGNORED}: {error}\n")
        return 1
    report = audit(REQUIREMENTS)
    if isinstance(report, str):
        sys.stdout.write(f"    warning: not audited, the advisory source is away: {report}\n")
        return 0
    faults, warnings = judge(report, accepted)
    for warning in warnings:
        sys.stdout.write(f"    warning: {warning}\n")
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
