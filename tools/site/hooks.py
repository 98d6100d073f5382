"""Hooks of mkdocs for the site: rewrite links that leave docs/, refuse pages that need a network.

Links from pages to files of the repository become names without a link on the site.
"""

import re
import sys
from pathlib import Path, PurePosixPath
from typing import Protocol

sys.path.append(str(Path(__file__).parent))
import reference_pages

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
# Elements that a browser loads by itself; links that a reader follows are allowed.
LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\bsrc=["']?(?:https?:)?//[^>]*>"""
    r"""|<link(?![^>]*canonical)[^>]*\bhref=["']?(?:https?:)?//[^>]*>"""
)
# A heading of the reference whose path has a private name.
PRIVATE = re.compile(r'<h\d id="(gt\.(?:\w+\.)*_(?!_)[\w.]*)"')


class _File(Protocol):
    src_uri: str


class _Page(Protocol):
    file: _File


def on_page_markdown(markdown: str, *, page: _Page, **_others: object) -> str:
    """The page's text, with links out of docs/ and to folders written as code.

    Raises:
        ValueError: where such a link leads nowhere.
    """
    folder = DOCS / PurePosixPath(page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        title, target = match[1], match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = (folder / target).resolve()
        if path.is_relative_to(DOCS) and not path.is_dir():
            return match[0]  # mkdocs looks at it
        if not path.exists():
            raise ValueError(f"{page.file.src_uri}: no such file: {target}")
        return f"{title} (`{path.relative_to(ROOT)}`)"

    return LINK.sub(rewritten, reference_pages.with_families(markdown))


def on_post_page(output: str, *, page: _Page, **_others: object) -> str:
    """The page, unchanged.

    Raises:
        ValueError: where a browser would load something of it from the network, or a name of the
            reference is private.
    """
    if private := PRIVATE.search(output):
        raise ValueError(f"{page.file.src_uri} has a private name: {private[1]}")
    if loaded := LOADED.search(output):
        raise ValueError(f"{page.file.src_uri} needs a network: {loaded[0]}")
    return output
