"""Rules for the source files that no linter has: ``python -m tests.project.source``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

TREE: Final = Path(__file__).parents[2]
#: What others import: the plugin contract.
_PUBLIC: Final = TREE / "receiver" / "public-api"
_PRODUCT: Final = ("receiver", "plugins", "spark_streaming")
_FOLDERS: Final = (*_PRODUCT, "deploy", "tests", "benchmarks", "examples")
_MAX_FIRST_LINE: Final = 80
#: The module that reads files up to a bound.
_READER: Final = TREE / "spark_streaming" / "files.py"
#: Pages with the words of vendors.
_WITH_OTHERS_WORDS: Final = frozenset({"vendors.md"})
#: Words that no reader knows in our sense, and the glossary's.
_FORBIDDEN: Final = {
    "site": "address block",
    "sites": "address blocks",
    "narrowed": "reduced",
    "shadow": "hidden telemetry",
    "shadowed": "hidden",
}
_FORBIDDEN_WORD: Final = re.compile(
    rf"(?<![a-z.-])(?<!docs )(?<!make )({'|'.join(_FORBIDDEN)})(?![a-z/-])", re.IGNORECASE
)

#: What is counted in lines for people, where a number may be one.
_COUNTED: Final = re.compile(
    r" ([a-z]+ )?(clients|connections|metrics|names|points|pushes|requests|subscriptions)\b"
)

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def broken_rules() -> list[str]:
    """Return each break of a rule, with its place and the fix."""
    files = [
        file
        for folder in _FOLDERS
        for file in sorted((TREE / folder).rglob("*.py"))
        if "node_modules" not in file.parts
    ]
    pages = [
        page
        for page in (*sorted((TREE / "docs").rglob("*.md")), TREE / "README.md", TREE / "SECURITY.md")
        if page.name not in _WITH_OTHERS_WORDS
    ]
    return [
        f"{file.relative_to(TREE)}:{line}: {problem}"
        for found, check in ((files, problems), (pages, forbidden_words))
        for file in found
        for line, problem in check(file, file.read_text("utf-8"))
    ]


def problems(file: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each problem of a file.

    Args:
        file: Its absolute path, which decides which rules hold.
        text: Its content.
    """
    module = ast.parse(text)
    if file.name != "__init__.py" and not file.is_relative_to(_PUBLIC):
        yield from _exports(module)
    yield from _loops_over_one(module)
    if file.relative_to(TREE).parts[0] in _PRODUCT:
        yield from _long_first_lines(module)
        if file != _READER:
            yield from _own_bounds(module)
        yield from _plurals(module)
        yield from forbidden_words(file, text)


def forbidden_words(_: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each word that the glossary has another word for."""
    for number, line in enumerate(text.splitlines(), start=1):
        if (found := _FORBIDDEN_WORD.search(line)) is not None:
            yield number, f"{found[0]}: write {_FORBIDDEN[found[0].lower()]} (docs/glossary.md)"


def _exports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Only packages list what they export. Elsewhere a name with ``_`` is private."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            yield node.lineno, "remove __all__: only packages have it"


def _loops_over_one(module: ast.Module) -> Iterator[tuple[int, str]]:
    """A loop's variable says what it is."""
    for node in ast.walk(module):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name) and name.id == "one":
                    yield name.lineno, "one: name the loop's variable by what it holds"


def _long_first_lines(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The first line of a docstring is read in lists. Ruff checks that it is a whole sentence."""
    for node in ast.walk(module):
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
            length = len(text.partition("\n")[0])
            if length > _MAX_FIRST_LINE:
                yield (
                    node.body[0].lineno,
                    f"shorten the docstring's first line: {length} characters (at most {_MAX_FIRST_LINE})",
                )


def _plurals(module: ast.Module) -> Iterator[tuple[int, str]]:
    """A number that may be one has its noun from ``count_text`` or ``share_text``."""
    for node in ast.walk(module):
        if not isinstance(node, ast.JoinedStr):
            continue
        for number, noun in pairwise(node.values):
            match number, noun:
                case (
                    ast.FormattedValue(value=ast.Call(func=ast.Name(id="len"))),
                    ast.Constant(value=str(after)),
                ) if _COUNTED.match(after):
                    yield number.lineno, "write the number and its noun by receiver.amounts.count_text"


def _own_bounds(module: ast.Module) -> Iterator[tuple[int, str]]:
    """A read of one byte more than a bound is in one module, with its errors."""
    for node in ast.walk(module):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="read"), args=[ast.BinOp(op=ast.Add(), right=ast.Constant(value=1))]
            ):
                yield node.lineno, "read the file by spark_streaming.files"


if __name__ == "__main__":
    broken = broken_rules()
    sys.stdout.writelines(f"{line}\n" for line in broken)
    sys.exit(bool(broken))
