"""Draw the pictures of docs/tutorial: a timeline of a page's own program, and a sharded layer.

Times differ from run to run, so the pictures are committed; run this again when the page's program
or `gt visualize` changes.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gt.config.environment import with_settings

ROOT = Path(__file__).resolve().parent.parent.parent
TUTORIAL = ROOT / "docs/tutorial"
COLOURS = ("#90caf9", "#ffcc80")  # worker 0, worker 1
UNITS = 8


def main() -> None:
    (TUTORIAL / "timeline.svg").write_text(timeline(), encoding="utf-8")
    (TUTORIAL / "workers.svg").write_text(workers(), encoding="utf-8")


def timeline() -> str:
    """The log of the program of page 5, without file names of this machine."""
    page = (TUTORIAL / "5_looking_inside.md").read_text(encoding="utf-8")
    program = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert program, "page 5 has a program"
    with tempfile.TemporaryDirectory() as folder:
        environment = with_settings(PYTHONPATH=str(ROOT))
        for command in (("-c", program[1]), ("-m", "gt", "visualize", "trace.txt", "-o", "t.svg")):
            subprocess.run([sys.executable, *command], cwd=folder, env=environment, check=True)
        drawn = (Path(folder) / "t.svg").read_text(encoding="utf-8")
    return re.sub(r"<title>.*?</title>", "", drawn, flags=re.DOTALL)


def workers() -> str:
    """Two inputs, hidden units split over two workers, and two outputs that are reduced."""
    hidden = [(340, 40 + 36 * unit, COLOURS[unit >= UNITS // 2]) for unit in range(UNITS)]
    ends = [(x, 130 + 72 * n, "#eceff1") for x in (120, 560) for n in range(2)]
    lines = [
        f'<line x1="{x}" y1="{y}" x2="{hx}" y2="{hy}" stroke="{colour}"/>\n'
        for x, y, _ in ends
        for hx, hy, colour in hidden
    ]
    circles = [
        f'<circle cx="{x}" cy="{y}" r="13" fill="{colour}" stroke="#546e7a"/>\n'
        for x, y, colour in hidden + ends
    ]
    labels = [(x, y + 5, str(int(colour == COLOURS[1]))) for x, y, colour in hidden]
    labels += [
        (220, 335, "0.weight: shard(0)"),
        (460, 335, "2.weight: shard(1)"),
        (340, 20, "hidden units, each on worker 0 or 1"),
        (100, 262, "x, whole on both"),
        (575, 262, "partial sums,"),
        (575, 280, "one all-reduce"),
    ]
    texts = [f'<text x="{x}" y="{y}" text-anchor="middle">{text}</text>\n' for x, y, text in labels]
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="680" height="350" font-size="15"'
    background = '<rect width="100%" height="100%" fill="white"/>\n'
    body = "".join(lines + circles + texts)
    return f'{head} font-family="sans-serif">\n{background}{body}</svg>\n'


if __name__ == "__main__":
    main()
