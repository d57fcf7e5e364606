"""The console's files, read once and kept in memory."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

_FOLDER: Final = Path(__file__).parent
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: An import of a package by its name. Browsers resolve it by an import map only, which the content
#: security policy would have to allow as an inline script.
_IMPORT: Final = re.compile(rb"""(\b(?:from|import)\s*\(?\s*)(["'])([@a-z][@a-z/-]*)\2""")

#: Modules of the editor, which is loaded when it opens.
_EDITOR: Final = frozenset({"draft.js", "editor.js"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file as it is served."""

    content: bytes
    compressed: bytes
    """The content as gzip."""
    media_type: str
    """The value of ``Content-Type``."""
    tag: str
    """An entity tag (RFC 9110, section 8.8.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """The page and its files."""

    page: Asset
    """The HTML document."""
    build: str
    """The folder of the files, which stands for the content of all of them."""
    files: dict[str, Asset]
    lazy: frozenset[str]
    """The names of those that only some states of the page need."""


@functools.cache
def console() -> Console:
    """Read all files of the console. It takes some milliseconds the first time."""
    modules = json.loads((_FOLDER / "vendor" / "modules.json").read_bytes())
    names = {package: module["file"] for package, module in modules.items()}
    sources = [_FOLDER / "vendor" / name for name in names.values()]
    sources += [path for path in sorted((_FOLDER / "assets").iterdir()) if path.suffix in _MEDIA_TYPES]
    content = {source.name: source.read_bytes() for source in sources}
    digest = hashlib.sha256()
    for name, data in sorted(content.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
    build = digest.hexdigest()[:16]
    files = {
        name: _asset(_with_paths(data, names), _MEDIA_TYPES[Path(name).suffix])
        for name, data in content.items()
    }
    lazy = _EDITOR.union(module["file"] for module in modules.values() if module.get("lazy"))
    return Console(page=_page(build, files, lazy), build=build, files=files, lazy=lazy)


def _page(build: str, files: dict[str, Asset], lazy: frozenset[str]) -> Asset:
    # Without the preloads a browser learns of each module only from the module that imports it.
    preloads = "\n".join(
        f'<link rel="modulepreload" href="console/{build}/{name}">'
        for name, file in files.items()
        if file.media_type.startswith("text/javascript") and name not in lazy
    )
    template = Template((_FOLDER / "assets" / "index.html").read_text("utf-8"))
    page = template.substitute(assets=f"console/{build}", preloads=preloads)
    return _asset(page.encode(), "text/html; charset=utf-8")


def _with_paths(content: bytes, names: dict[str, str]) -> bytes:
    """Replace the names of packages in imports by paths; all files are in one folder."""

    def path(found: re.Match[bytes]) -> bytes:
        before, quote, package = found.groups()
        return before + quote + b"./" + names[package.decode()].encode() + quote

    return _IMPORT.sub(path, content)


def _asset(content: bytes, media_type: str) -> Asset:
    return Asset(
        content=content,
        compressed=gzip.compress(content, mtime=0),
        media_type=media_type,
        tag=f'"{hashlib.sha256(content).hexdigest()[:16]}"',
    )
