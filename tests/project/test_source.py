"""Rules for the text of the source files that no linter has."""

from __future__ import annotations

import ast
from pathlib import Path

TREE = Path(__file__).parents[2]
#: What others import: the plugin contract.
_PUBLIC = TREE / "receiver" / "public-api"
_FOLDERS = ("receiver", "plugins", "spark_streaming", "deploy", "tests", "benchmarks", "examples")


def _modules() -> dict[Path, ast.Module]:
    return {
        file: ast.parse(file.read_text("utf-8"))
        for folder in _FOLDERS
        for file in sorted((TREE / folder).rglob("*.py"))
        if "node_modules" not in file.parts
    }


MODULES = _modules()


def test_only_packages_and_the_public_name_list_what_they_export() -> None:
    """In other modules a name with an underscore is private, and every other one is not."""
    found = [
        f"{file.relative_to(TREE)}:{node.lineno}"
        for file, module in MODULES.items()
        if file.name != "__init__.py" and not file.is_relative_to(_PUBLIC)
        for node in module.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    ]
    assert not found, f"remove __all__ of modules: {found}"
