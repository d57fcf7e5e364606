"""The link checker finds broken links, and the repository's pages have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.site.build import NAVIGATION, ROOT, repository_pages
from deploy.site.links import anchors, broken_links, links
from deploy.site.reference import PAGES


def test_no_page_of_the_repository_has_a_broken_link() -> None:
    assert broken_links(ROOT, repository_pages()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a](missing.md)", "there is no such file"),
        ("[a](other.md#missing)", "there is no such heading"),
        ("[a](#missing)", "there is no such heading"),
        ("![a](missing.png)", "there is no such file"),
        ("[a](../../outside.md)", "there is no such file"),
        ("| a |\n|---|\n| [b](missing.md) |", "there is no such file"),
    ],
)
def test_a_broken_link_is_named(tmp_path: Path, text: str, problem: str) -> None:
    pages = {Path("page.md"): text, Path("other.md"): "# Title\n\n## A part"}
    for name, content in pages.items():
        (tmp_path / name).write_text(content)
    (found,) = broken_links(tmp_path, pages)
    assert found.startswith("page.md: ")
    assert found.endswith(problem)


def test_good_and_external_links_pass(tmp_path: Path) -> None:
    text = "# Here\n\n[a](other.md#a-part) [b](#here) [c](https://nowhere.example/x.md#y) `[d](missing.md)`"
    pages = {Path("page.md"): text, Path("other.md"): "# Title\n\n## A part"}
    for name, content in pages.items():
        (tmp_path / name).write_text(content)
    assert broken_links(tmp_path, pages) == []


def test_anchors_are_githubs() -> None:
    text = "# Kafka's `max_bytes`\n\n## A part\n\n## A part\n\n## `up`, 1.0"
    assert anchors(text) == {"kafkas-max_bytes", "a-part", "a-part-1", "up-10"}


def test_a_link_is_split_at_its_anchor() -> None:
    (link,) = links("[a](b.md#c)")
    assert (link.path, link.anchor, link.external) == ("b.md", "c", False)


def test_every_page_is_in_one_section() -> None:
    named = [page for pages in NAVIGATION.values() for page in pages]
    assert len(named) == len(set(named))
    listed = {
        str(page.relative_to("docs").with_suffix(""))
        for page in repository_pages()
        if page.is_relative_to("docs") and page.parts[1] not in {"changes", "decisions"}
    } - {"index"}
    outside = {"security", "contributing", "changelog", "releasing", "spool-files"}
    generated = {f"reference/{name}" for name in PAGES}
    assert set(named) == listed | outside | generated | {"decisions/index"}
