"""The configuration reference, made from the types: every key, its type, default, bounds and variable.

Owns the form of docs/configuration.md. It describes only what a type says, so the page cannot differ from
what is accepted.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from receiver.settings.environment import variable_name
from receiver.settings.errors import key_text
from receiver.settings.hostport import HostPort
from receiver.settings.model import ReceiverSettings
from receiver.settings.schema import Loc, bounds, fields_of, model_of, options, takes_null, type_name

__all__ = ["reference", "table"]

_HEAD = """\
# Configuration

<!-- Made by `kafka-telemetry config reference`; change the types, not this page. -->

`kafka-telemetry serve --config receiver.yaml` reads one YAML file. `kafka-telemetry config check
receiver.yaml` says what is wrong with it, on one line that names the key, the value and the fix.

```yaml
broker: {id: 1, cluster_id: null}            # null: asked from the broker
listeners:
  - {name: CLIENT, bind: "127.0.0.1:19092", upstream: "127.0.0.1:29092"}
subscriptions: {store: sqlite, path: ./subscriptions.db}
rest: {bind: "127.0.0.1:8642"}
plugins:
  - {type: otlp, endpoint: "http://127.0.0.1:4317", protocol: grpc}
```

**Environment variables** go over the file. Each key has one: `KAFKA_TELEMETRY_`, then its path in capitals
with two underscores between the parts and a list's index as a number, counted from 0:
`KAFKA_TELEMETRY_LISTENERS__0__BIND=127.0.0.1:19093`. A list or mapping can also be given whole, as JSON or
YAML. A text is taken as it stands; `null` is null where the key takes null. In a plugin's own keys, JSON is
read as JSON (`5`, `true`, `"5"`, `["a"]`), anything else is text, and the keys become lower case. A variable
with the prefix that names no key stops the start. Passed by are only `KAFKA_TELEMETRY_URL`,
`KAFKA_TELEMETRY_TOKEN`, `KAFKA_TELEMETRY_CONFIG`, `KAFKA_TELEMETRY_ROLLUP_CONFIG`,
`KAFKA_TELEMETRY_ROLLUP_POSTGRES` and `KAFKA_TELEMETRY_JARS`, which the command line and the roll-up read, and
the variables that Kubernetes sets for a Service of that name.

**Secrets** can be kept out of the file: a key of the type *text or {file: PATH}* takes
`{file: /run/secrets/token}`, and the file's text is used without its last newline.

**Paths** that are relative start at the working directory.
"""


def reference(plugins: Mapping[str, type[BaseModel]], every_plugin: type[BaseModel]) -> str:
    """Write the configuration reference.

    Args:
        plugins: Each installed plugin's own settings, by the type that an operator writes.
        every_plugin: The settings that every plugin has besides its own.

    Returns:
        Markdown, ending with a newline.
    """
    parts = [_HEAD]
    for name, annotation, field in fields_of(ReceiverSettings):
        parts.append(f"\n## {name}\n\n")
        if name == "plugins":
            parts.append(_plugins(field, plugins, every_plugin))
        else:
            parts.append(_section((name,), annotation, field))
    return "".join(parts)


def _section(loc: Loc, annotation: Any, field: FieldInfo) -> str:
    model = model_of(annotation) or _item_model(annotation)
    assert model is not None, f"{loc}: a section is a mapping or a list of mappings"  # noqa: S101
    inner: Loc = loc if model_of(annotation) else (*loc, 0)
    text = field.description or _first_line(model)
    kind = "A list" if inner != loc else "A mapping"
    needed = "required" if field.is_required() else "may be left out"
    return f"{text} {kind}, {needed}.\n\n{table(inner, model)}"


def _plugins(field: FieldInfo, plugins: Mapping[str, type[BaseModel]], every_plugin: type[BaseModel]) -> str:
    parts = [f"{field.description} A list, may be left out.\n\n### Every plugin\n\n"]
    loc: Loc = ("plugins", 0)
    type_row = _row(
        (*loc, "type"), "text", "**required**", "", "Which plugin: " + ", ".join(sorted(plugins)) + "."
    )
    parts.append(table(loc, every_plugin, first=type_row))
    parts += [
        f"\n### type: {name}\n\n{_first_line(plugins[name])}\n\n{table(loc, plugins[name])}"
        for name in sorted(plugins)
    ]
    return "".join(parts)


def table(loc: Loc, model: type[BaseModel], first: str = "", *, variables: bool = True) -> str:
    """Write a table of all keys below a path.

    Args:
        loc: The path.
        model: What stands there.
        first: A row to begin with.
        variables: Whether each key has a variable of the environment.

    Returns:
        Markdown, ending with a newline.
    """
    rows = "".join(_rows(loc, model, variables=variables))
    if not rows and not first:
        return "No keys of its own.\n"
    return f"| key | type | default | bounds | what it does |\n|---|---|---|---|---|\n{first}{rows}"


def _rows(loc: Loc, model: type[BaseModel], optional: Loc = (), *, variables: bool = True) -> Iterator[str]:
    required = f"**required** with `{key_text(optional)}`" if optional else "**required**"
    for name, annotation, field in fields_of(model):
        path = (*loc, name)
        inner, item = model_of(annotation), _item_model(annotation)
        if inner is not None and not field.is_required():
            below = path if takes_null(annotation) else optional
            yield from _rows(path, inner, below, variables=variables)
            continue
        default = required if field.is_required() else f"`{_default(field)}`"
        limits = _limits(annotation, field)
        yield _row(path, type_name(annotation), default, limits, field.description or "", variable=variables)
        if item is not None:
            yield from _rows((*path, 0), item, variables=variables)


def _row(loc: Loc, type_: str, default: str, limits: str, text: str, *, variable: bool = True) -> str:
    key = f"`{key_text(loc)}`"
    if variable:
        key += f"<br>`{variable_name(loc)}`"
    cells = [key, type_, default, limits, text]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _limits(annotation: Any, field: FieldInfo) -> str:
    limits = bounds(annotation)
    for entry in field.metadata:
        pattern = getattr(entry, "pattern", None)
        if pattern:
            limits = f"`{pattern}`"
        least = getattr(entry, "min_length", None)
        if least:
            limits = f"at least {least} long"
    return limits


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    assert value is not PydanticUndefined, "only a key that is not required has a default"  # noqa: S101
    if isinstance(value, Path | HostPort):
        return str(value)
    if isinstance(value, BaseModel):
        return "{}"
    return json.dumps(value, ensure_ascii=False)


def _item_model(annotation: Any) -> type[BaseModel] | None:
    for option in options(annotation):
        if typing.get_origin(option) in (tuple, list):
            return model_of(typing.get_args(option)[0])
    return None


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ").strip()
