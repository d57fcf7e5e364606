"""Builds the docs site: stages the pages, adds the generated reference, runs Sphinx strictly.

Pages stay plain Markdown, so they read the same on GitHub. The staging step adds what only the site
needs: navigation, generated pages, and repository URLs in place of links to files that are no
pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

from sphinx.cmd.build import main as sphinx

from deploy.site.links import broken_links
from deploy.site.reference import PAGES

ROOT: Final = Path(__file__).parents[2]
_DOCS: Final = Path("docs")

#: The site's sections and their pages. A page is named by its path below docs/ without the suffix.
NAVIGATION: Final[dict[str, tuple[str, ...]]] = {
    "Start": ("quick-start", "where-are-my-metrics", "doctor", "attach", "bridge", "glossary"),
    "Operations": (
        "operations",
        "forty-clusters",
        "runbooks",
        "failure-modes",
        "sizing",
        "listeners",
        "connect-and-streams",
        "subscription-stores",
        "delivery",
        "rollup",
        "dashboards",
        "dashboards-on-prometheus",
        "find-the-culprit",
        "findings",
        "security",
    ),
    "Destinations and plugin authors": ("plugins", "vendors", "prometheus", "spool-files", "meaning"),
    "Authors of clients": ("testkit",),
    "Reference": (
        "reference",
        *(f"reference/{name}" for name in PAGES),
        "rest",
        "receiver-metrics",
        "rollup-metrics",
        "rollup-tables",
        "protocol",
        "bridge-protocol",
    ),
    "Project": (
        "architecture",
        "decisions/index",
        "contributing",
        "releasing",
        "changelog",
    ),
}

#: Pages outside docs/ that are part of the site, and their names there.
_OUTSIDE: Final = {
    Path("SECURITY.md"): "security.md",
    Path("CONTRIBUTING.md"): "contributing.md",
    Path("CHANGELOG.md"): "changelog.md",
    Path("deploy/releasing.md"): "releasing.md",
    Path("plugins/spool_files/FORMAT.md"): "spool-files.md",
}

#: Folders of docs/ that are no pages: changelog fragments.
_NOT_PAGES: Final = (Path("docs/changes"),)

_LINK: Final = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]*)((?:#[^)\s]*)?\))")

_CONFIGURATION: Final = """\
project = "Kafka Client Telemetry"
author = "The Kafka Client Telemetry authors"
copyright = author
release = {version!r}
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Kafka Client Telemetry " + release
html_theme_options = {{"source_repository": {source!r}}}
html_copy_source = False
myst_heading_anchors = 6
myst_enable_extensions = []
suppress_warnings = ["misc.highlighting_failure"]
"""


class SiteError(Exception):
    """The site can't be built; the message says which page is wrong."""


def repository_pages(root: Path = ROOT) -> dict[Path, str]:
    """Return the text of every Markdown page that Git tracks, by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"],  # noqa: S607
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = (Path(name) for name in listed.split("\0") if name)
    return {name: (root / name).read_text("utf-8") for name in names if (root / name).is_file()}


def build(out: Path, root: Path = ROOT) -> Path:
    """Build the site into ``out`` and return its first page."""
    pages = repository_pages(root)
    if broken := broken_links(root, pages):
        raise SiteError("\n".join(broken))
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    source, html = out / "source", out / "html"
    shutil.rmtree(source, ignore_errors=True)
    _stage(root, pages, source, project["urls"]["Repository"])
    (source / "conf.py").write_text(
        _CONFIGURATION.format(version=project["version"], source=project["urls"]["Repository"]), "utf-8"
    )
    arguments = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "doctrees")]
    if sphinx([*arguments, str(source), str(html)]) != 0:
        raise SiteError("Sphinx found the mistakes above")
    return html / "index.html"


def _stage(root: Path, pages: dict[Path, str], source: Path, repository: str) -> None:
    """Copy the pages, with links that work on the site, and add navigation and generated pages."""
    staged = {
        page: _OUTSIDE.get(page) or str(page.relative_to(_DOCS))
        for page in pages
        if page in _OUTSIDE
        or (page.is_relative_to(_DOCS) and not any(page.is_relative_to(folder) for folder in _NOT_PAGES))
    }
    for page, name in staged.items():
        _write(source / name, _with_site_links(root, page, pages[page], staged, repository))
    for name, text in PAGES.items():
        # The generated texts name pages as seen from docs/.
        below = _LINK.sub(lambda found: f"{found[1]}{_from_reference(found[2])}{found[3]}", text())
        _write(source / "reference" / f"{name}.md", below)
    shutil.copytree(root / _DOCS / "images", source / "images")
    _write(source / "index.md", (source / "index.md").read_text("utf-8") + _toctrees())
    _write(
        source / "decisions/index.md",
        (source / "decisions/index.md").read_text("utf-8") + "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n",
    )


def _with_site_links(root: Path, page: Path, text: str, staged: dict[Path, str], repository: str) -> str:
    """Replace each relative link by the page's place on the site, or by a URL of the repository."""

    def replaced(found: re.Match[str]) -> str:
        before, path, after = found.groups()
        if not path:
            return found[0]
        target = (root / page.parent / path).resolve().relative_to(root)
        if target in staged:
            here = Path(staged[page]).parent
            return f"{before}{os.path.relpath(staged[target], here)}{after}"
        if target.is_relative_to(_DOCS / "images"):
            return found[0]
        kind = "tree" if (root / target).is_dir() else "blob"
        return f"{before}{repository}/{kind}/main/{target}{after}"

    return _LINK.sub(replaced, text)


def _from_reference(path: str) -> str:
    return path if path.startswith("../") or not path else f"../{path}"


def _toctrees() -> str:
    parts = []
    for caption, names in NAVIGATION.items():
        entries = "\n".join(names)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    return "".join(parts)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
