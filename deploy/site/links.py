"""Links and anchors of Markdown pages, resolved as GitHub resolves them.

Only links within the repository are checked. External links are not fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

_EXTERNAL: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link of a page: its target as written, split at ``#``."""

    path: str
    anchor: str

    @property
    def external(self) -> bool:
        """Whether the target is outside of the repository."""
        return bool(_EXTERNAL.match(self.path))


def links(text: str) -> list[Link]:
    """Return the links and images of a Markdown text, in order."""
    found = []
    for token in _walk(_MARKDOWN.parse(text)):
        target = token.attrGet("href") if token.type == "link_open" else None
        target = token.attrGet("src") if token.type == "image" else target
        if isinstance(target, str):
            path, _, anchor = target.partition("#")
            found.append(Link(path=path, anchor=anchor))
    return found


def anchors(text: str) -> set[str]:
    """Return the anchors of a Markdown text's headings, by GitHub's rule."""
    tokens = _MARKDOWN.parse(text)
    found: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        title = "".join(child.content for child in inline.children or ())
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        if count:
            found[f"{slug}-{count}"] = 1
    return set(found)


def broken_links(root: Path, pages: Mapping[Path, str]) -> list[str]:
    """Return one line for each broken link; ``pages`` has texts by path within the repository."""
    found = []
    anchors_of = cache(lambda page: anchors(pages[page]))
    for page, text in pages.items():
        for link in links(text):
            if link.external:
                continue
            where = f"{page}: {link.path}{'#' if link.anchor else ''}{link.anchor}"
            target = (root / page.parent / link.path).resolve() if link.path else root / page
            if not target.is_relative_to(root) or not target.exists():
                found.append(f"{where}: there is no such file")
                continue
            target_page = target.relative_to(root)
            if link.anchor and target_page in pages and link.anchor not in anchors_of(target_page):
                found.append(f"{where}: there is no such heading")
    return found


def _walk(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _walk(token.children or [])
