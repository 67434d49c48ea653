"""A vulnerability fails the build, an advisory source that is away does not."""

from pathlib import Path
from typing import Any

import pytest

from tests import advisories
from tests.advisories import ignored, judge, main

VULNERABLE: dict[str, Any] = {
    "dependencies": [
        {"name": "sound", "version": "1.0", "vulns": []},
        {
            "name": "broken",
            "version": "2.0",
            "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-9"], "fix_versions": ["2.1"]}],
        },
    ]
}
UNKNOWN: dict[str, Any] = {
    "dependencies": [{"name": "sound", "skip_reason": "Dependency not found"}]
}


@pytest.fixture(autouse=True)
def _accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ignore.txt"
    file.write_text("# nothing\n")
    monkeypatch.setattr(advisories, "IGNORED", file)


def test_a_vulnerability_is_a_fault_that_names_the_remedy() -> None:
    assert judge(VULNERABLE, {}) == (["broken 2.0: PYSEC-1, fixed in 2.1"], [])


@pytest.mark.parametrize("name", ["PYSEC-1", "CVE-9"])
def test_what_was_judged_is_no_fault(name: str) -> None:
    accepted = ignored(f"# why\n\n{name} 2026-11-30 the parser is not used\n")
    assert accepted == {name: "the parser is not used"}
    assert judge(VULNERABLE, accepted) == ([], [])


def test_a_judgement_of_what_is_found_no_more_is_shown() -> None:
    faults, warnings = judge(VULNERABLE, {"PYSEC-1": "x", "PYSEC-2": "y"})
    assert faults == []
    assert warnings[0].endswith("PYSEC-2 is found no more")


@pytest.mark.parametrize("line", ["PYSEC-1", "PYSEC-1 2026-11-30", "PYSEC-1 soon it is harmless"])
def test_a_judgement_has_a_date_and_a_reason(line: str) -> None:
    with pytest.raises(ValueError, match="line 1: is not `ID YYYY-MM-DD reason`"):
        ignored(line)


def test_packages_that_the_source_does_not_know_are_counted() -> None:
    assert judge(UNKNOWN, {"PYSEC-1": "x"}) == (
        [],
        ["the advisory source knows nothing of 1 of 1 packages: not audited"],
    )


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (VULNERABLE, 1, "broken 2.0"),
        (UNKNOWN, 0, "not audited"),
        ("Name or service not known", 0, "warning: not audited, the advisory source is away"),
    ],
)
def test_the_exit_code(
    answer: Any,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(advisories, "audit", lambda _requirements: answer)
    assert main() == code
    said = capsys.readouterr()
    assert says in said.out + said.err


def test_a_requirements_file_that_cannot_be_audited_says_so_in_one_line(tmp_path: Path) -> None:
    said = advisories.audit(tmp_path / "none.txt")
    assert isinstance(said, str)
    assert "\n" not in said


def test_the_file_of_this_repository_is_readable() -> None:
    ignored((Path(__file__).parents[1] / "requirements" / "audit-ignore.txt").read_text())
