"""Reads the descriptions of settings: the text below each key of a model.

They are read from the source, and only where a reference or a schema is generated, because that
takes as long as all other imports of the settings.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from collections.abc import Mapping
from functools import cache

from pydantic import BaseModel


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the description of each key of a model: the text below its field.

    Where there is none, the description of its ``Field`` counts.
    """
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        texts |= _texts(kind)
    return {
        field.alias or name: text
        for name, field in model.model_fields.items()
        if (text := texts.get(name) or field.description)
    }


def _texts(kind: type) -> dict[str, str]:
    found = {}
    for field, below in itertools.pairwise(_classes(kind.__module__).get(kind.__qualname__, ())):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


@cache
def _classes(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of each class of a module; none without its source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
