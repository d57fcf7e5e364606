"""Plugin of mypy: a text for people shows no Python object.

An f-string shows anything that it is given: ``None``, ``True``, ``['a']``, ``(1, 2)``,
``State.OPEN``. mypy knows the type of each value, and so this plugin refuses those that have no
form for people. With ``!r`` it takes text alone, which it shows in quotes and without control
characters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mypy.nodes import StrExpr
from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.types import AnyType, Instance, LiteralType, NoneType, ProperType, Type, UnionType, get_proper_type

#: The folders with texts for people. Tests may show anything.
_PRODUCT: Final = ("receiver", "plugins", "spark_streaming")

#: Classes of the standard library that have a form for people, which their stubs don't show.
_SHOWN: Final = frozenset(
    {
        "builtins.BaseException",
        "builtins.float",
        "builtins.int",
        "builtins.str",
        "datetime.date",
        "datetime.datetime",
        "httpx._urls.URL",
        "importlib.abc.Traversable",
        "importlib.resources.abc.Traversable",
        "ipaddress._BaseAddress",
        "ipaddress._BaseNetwork",
        "pathlib.PurePath",
        "uuid.UUID",
    }
)
#: Their parents that are shown, and they are not.
_NOT_SHOWN: Final = frozenset({"builtins.bool", "enum.Enum"})


def plugin(_: str) -> type[Plugin]:
    """Return the plugin (mypy's entry point)."""
    return _Texts


class _Texts(Plugin):
    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        # An f-string is '{:{}}'.format(value, spec) to mypy.
        return _check_format if fullname == "builtins.str.format" else None

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        return _check_str if fullname == "builtins.str" else None


def _check_format(context: MethodContext) -> Type:
    callee = getattr(context.context, "callee", None)
    form = getattr(callee, "expr", None)
    is_f_string = isinstance(form, StrExpr) and form.value in {"{:{}}", "{!r:{}}", "{!s:{}}"}
    if is_f_string and context.arg_types and context.arg_types[0]:
        is_repr = isinstance(form, StrExpr) and form.value == "{!r:{}}"
        _check(context, context.arg_types[0][0], is_repr=is_repr)
    return context.default_return_type


def _check_str(context: FunctionContext) -> Type:
    given = [types for types in context.arg_types if types]
    if len(given) == 1 and given[0] is context.arg_types[0]:
        shown = get_proper_type(given[0][0])
        # str(flag).lower() is a flag of another language.
        if not (isinstance(shown, Instance) and shown.type.fullname == "builtins.bool"):
            _check(context, shown, is_repr=False)
    return context.default_return_type


def _check(context: MethodContext | FunctionContext, shown: Type, *, is_repr: bool) -> None:
    path = Path(getattr(context.api, "path", "")).absolute()
    if not path.is_relative_to(Path.cwd()) or path.relative_to(Path.cwd()).parts[0] not in _PRODUCT:
        return
    wrong = _wrong(get_proper_type(shown), is_repr=is_repr)
    if wrong is not None:
        context.api.fail(
            f"a text shows {wrong}: write a form for people (tests/project/texts.py)", context.context
        )


def _wrong(shown: ProperType, *, is_repr: bool) -> str | None:
    """Return what of a type has no form for people; None if it has one, or is not known."""
    match shown:
        case AnyType():
            return None
        case NoneType():
            return "None"
        case UnionType(items=items):
            found = (_wrong(get_proper_type(item), is_repr=is_repr) for item in items)
            return next((problem for problem in found if problem), None)
        case LiteralType(fallback=fallback):
            return _wrong(fallback, is_repr=is_repr)
        case Instance(type=info):
            parents = {parent.fullname for parent in info.mro}
            if is_repr:
                return None if "builtins.str" in parents else f"the repr() of {info.name}"
            is_text = "builtins.str" in parents
            own = info.get_method("__str__") or info.get_method("__format__")
            has_own = own is not None and own.info.fullname not in {"builtins.object", "enum.Enum"}
            if is_text or (not parents & _NOT_SHOWN and (parents & _SHOWN or has_own)):
                return None
            return info.name
        case _:
            return str(shown)
