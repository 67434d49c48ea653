"""A plan as a comment: short, and nothing in the input can leave its block."""

from pathlib import Path

from quota_translator.local.run_plan import run_plan

EXAMPLES = Path(__file__).parents[2] / "examples"
QUOTA = """\
apiVersion: quota-translator.dev/v1beta1
kind: AcceleratorQuota
metadata: {{name: {name}}}
spec:
  role: Cohort
  parentRef: {{name: {parent}}}
"""


def summary(*paths: Path) -> tuple[int, str]:
    code, out, err = run_plan(paths, output="markdown")
    assert err == ""
    return code, out


def test_a_sound_tree_and_what_it_changes() -> None:
    code, out = summary(EXAMPLES / "guide")
    assert code == 0
    assert out.startswith("### Accelerator quotas: sound\n\n```text\nCHANGES (7 to create)\n")
    assert out.endswith("Sound: 4 nodes, no violation; 7 to create.\n```\n")


def test_an_unsound_one_is_cut_to_a_screen() -> None:
    code, out = summary(EXAMPLES / "broken")
    assert code == 2
    assert out.startswith("### Accelerator quotas: **not sound**\n")
    assert "VIOLATIONS (21)" in out
    assert "  ... and 11 more lines (-o text shows all)" in out
    assert len(out.splitlines()) <= 45
    assert max(map(len, out.splitlines())) <= 301


def test_a_name_cannot_end_the_block_or_begin_a_line(tmp_path: Path) -> None:
    names = ('"a```\\n# Approved\\n@everyone"', '"````` <script>"')
    text = "---\n".join(QUOTA.format(name=name, parent="nowhere") for name in names)
    (tmp_path / "tree.yaml").write_text(text)
    code, out = summary(tmp_path)
    assert code == 2
    lines = out.splitlines()
    fence = lines[2].removesuffix("text")
    assert set(fence) == {"`"}
    assert lines[-1] == fence
    inside = lines[3:-1]
    assert all(fence not in line for line in inside)
    assert not [line for line in inside if line.startswith(("#", "@", "`"))]
