"""Pages of the reference from gt/documentation: texts in families, as `help()` shows them.

A line `::: family NAMESPACE` in a page is replaced by a namespace. tools/reference/families.txt
defines the groups; every public name must be in one.
"""

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
LINE = re.compile(r"^::: family (\S+)$", re.MULTILINE)
HEADING = re.compile(r"(Args|Shape|Attributes|Returns|Raises|Example):")


class Entry(NamedTuple):
    """A name, the forms of its call, and its text without them."""

    name: str
    heads: list[str]
    text: str


def with_families(markdown: str) -> str:
    """The page with the texts of the namespaces that it names."""
    return LINE.sub(lambda match: page(match[1]), markdown)


def page(namespace: str) -> str:
    known = {entry.name: entry for entry in entries(namespace)}
    parts = []
    for title, names in families(namespace, list(known)).items():
        parts.append(f"## {title}\n")
        parts += [section(namespace, known[name]) for name in names]
    return "\n".join(parts)


def entries(namespace: str) -> list[Entry]:
    """The entries of a file, in its order."""
    found = (ROOT / f"gt/documentation/{namespace}.txt").read_text(encoding="utf-8")
    listed = []
    for title, _, text in (entry.partition("\n") for entry in found.split("\f")[1:]):
        name, *heads = title.split("\t")
        first, _, rest = text.partition("\n\n")
        if first.startswith(f"{name}("):
            listed.append(Entry(name, first.splitlines(), rest))
        else:
            listed.append(Entry(name, heads, text))
    return listed


def families(namespace: str, names: list[str]) -> dict[str, list[str]]:
    """Headings in order, with the names under each.

    Raises:
        ValueError: a name belongs to no heading.
    """
    patterns = table(namespace)
    found: dict[str, list[str]] = {title: [] for title in patterns}
    rows = tomllib.loads((ROOT / "ops.toml").read_text(encoding="utf-8"))["op"]
    family = {row["name"]: f"={row['family']}" for row in rows}
    for name in names:
        title = family_of(name, family.get(name, ""), patterns)
        if title is None:
            raise ValueError(f"{namespace}.{name} has no family: tools/reference/families.txt")
        found[title].append(name)
    return {title: listed for title, listed in found.items() if listed}


def family_of(name: str, row: str, patterns: dict[str, list[str]]) -> str | None:
    """The heading that lists the name itself, else the first with a matching pattern or family."""

    def fits(word: str) -> bool:
        alike = word == "*" or word.endswith("_") == name.endswith("_")
        return word == row or (alike and fnmatch.fnmatchcase(name, word))

    own = (title for title, words in patterns.items() if name in words)
    broad = (title for title, words in patterns.items() if any(map(fits, words)))
    return next(own, None) or next(broad, None)


def table(namespace: str) -> dict[str, list[str]]:
    """The headings of a namespace and their patterns."""
    title = "[gt]" if namespace == "gt.Tensor" else f"[{namespace}]"
    lines = (ROOT / "tools/reference/families.txt").read_text(encoding="utf-8").splitlines()
    below = lines[lines.index(title) + 1 :]
    end = next((at for at, line in enumerate(below) if line.startswith("[")), len(below))
    pairs = (line.partition(": ") for line in below[:end])
    return {heading: words.split() for heading, _, words in pairs}


def section(namespace: str, entry: Entry) -> str:
    """One entry in Markdown: its heading, forms, and each part of its text."""
    lines = [f"### `{entry.name}` {{ #{namespace}.{entry.name} }}", ""]
    if entry.heads:
        lines += ["```python", *entry.heads, "```", ""]
    title, body = "", []
    for line in [*entry.text.splitlines(), "Example:"]:
        if not HEADING.fullmatch(line):
            body.append(line)
            continue
        lines += part(title, body)
        title, body = line[:-1], []
    return "\n".join([*lines, ""])


def part(title: str, body: list[str]) -> list[str]:
    """The Markdown of one part of a text; arguments become a list."""
    if title == "Example":
        session = [line.removeprefix("    ").replace("<BLANKLINE>", "") for line in body]
        return ["```pycon", *session, "```", ""]
    if not title:
        return [*map(escaped, body), ""]
    items: list[str] = []
    for line in filter(str.strip, body):
        if line.startswith("     ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line.strip())
    if title == "Returns":
        return [f"**Returns** {escaped(' '.join(items))}", ""]
    named = (re.match(r"(\*{0,2}[\w, ]+?)(\W.*)", item) for item in items)
    return [f"**{title}**", "", *(f"- `{m[1]}`{escaped(m[2])}" for m in named if m), ""]


def escaped(text: str) -> str:
    """Text outside of code, escaped so that Markdown finds no marks in it."""
    return "".join(
        run if run.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", run)
        for run in re.split(r"(`[^`]*`)", text)
    )
