"""Every Python block of a page that is followed by its output is run, and prints that output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"
SCREEN_LINES = 70
EXAMPLE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n\s*^```text\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE
)


def _examples():
    return [
        pytest.param(match["code"], match["output"], id=f"{page.relative_to(ROOT)}-{number}")
        for page in (README, *sorted((ROOT / "docs").rglob("*.md")))
        for number, match in enumerate(EXAMPLE.finditer(page.read_text(encoding="utf-8")), 1)
    ]


@pytest.mark.parametrize(("code", "output"), _examples())
def test_example_prints_what_the_page_says(code, output, tmp_path):
    file = tmp_path / "example.py"
    file.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


@pytest.mark.fast
def test_readme_is_one_screen_with_two_commands_and_one_example():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= SCREEN_LINES
    commands = re.findall(r"^```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(commands) == 2, commands  # .ci/run takes them by their order
    assert all(command.count("\n") == 1 for command in commands), commands
    assert text.count("```python") == len(EXAMPLE.findall(text)) == 1


@pytest.mark.fast
def test_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.fast
def test_every_class_of_errors_is_in_the_catalogue():
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    names = re.findall(r"^class (\w+)\(", (ROOT / "gt/errors.py").read_text(), re.MULTILINE)
    assert len(names) >= 16
    assert sorted(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == sorted(names)


@pytest.mark.fast
@pytest.mark.parametrize(
    "page", ["tutorial", "how_to", "sharp_bits.md", "errors.md", "from_pytorch.md"]
)
def test_every_python_block_is_followed_by_its_output(page):
    path = ROOT / "docs" / page
    for file in sorted(path.glob("*.md")) if path.is_dir() else [path]:
        text = file.read_text(encoding="utf-8")
        assert text.count("```python") == len(EXAMPLE.findall(text)) >= 1, file
