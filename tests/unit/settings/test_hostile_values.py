"""Any value of any setting, from the file or a variable, loads or is a mistake with its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from receiver.settings.environment import variable_name
from receiver.settings.errors import SettingsError
from receiver.settings.load import load
from receiver.settings.model import ReceiverSettings
from receiver.settings.schema import child_type, fields_of, model_of
from spark_streaming.plain_yaml import Loc
from tests.unit.hostile_values import NUMBERS, PATTERNS, TEXTS, TIMES, VALUES, nested

#: A configuration that loads.
BASE = {"listeners": [{"name": "A", "bind": "127.0.0.1:0", "upstream": "127.0.0.1:1"}]}

RAW = (
    "0x" + "f" * 5000,
    "1" + ":59" * 300 + ".5",
    "!!int ''",
    "!!bool x",
    "[" * 5000,
    "{a: ",
    "*x",
    "&x [*x]",
)


def places(model: type[BaseModel] = ReceiverSettings, above: Loc = ()) -> Iterator[Loc]:
    """The path of each setting, in the first item of a list and under one key of a mapping."""
    for name, annotation, _ in fields_of(model):
        loc = (*above, name)
        yield loc
        for part in (None, 0, "key"):
            inner = annotation if part is None else child_type(annotation, part)
            below = None if inner is None else model_of(inner)
            if below is not None and len(loc) < 6:
                yield from places(below, loc if part is None else (*loc, part))
                break


def put(document: Any, loc: Loc, value: Any) -> Any:
    """Return the document with a value at a path."""
    if not loc:
        return value
    first, rest = loc[0], loc[1:]
    if isinstance(first, int):
        before = document[0] if isinstance(document, list) and document else {}
        return [put(before, rest, value)]
    return {**document, first: put(document.get(first, {}), rest, value)}


PLACES = sorted(places(), key=str)


def loads(path: Path, environ: dict[str, str]) -> None:
    """Load it, or get mistakes that have a text of a length to be read."""
    try:
        load(path, environ)
    except SettingsError as error:
        for mistake in (error, *error.further):
            assert mistake.problem
            assert len(str(mistake)) < 16_000


def test_every_setting_is_tried() -> None:
    assert len(PLACES) > 150
    assert ("listeners", 0, "bind") in PLACES


def tries(path: Path, loc: Loc, values: Sequence[Any], texts: Sequence[str]) -> None:
    """Load it with each value at a place of the file, and each text in the place's variable."""
    for value in values:
        try:
            path.write_text(yaml.dump(put(BASE, loc, value), allow_unicode=True, Dumper=yaml.CSafeDumper))
        except (UnicodeEncodeError, ValueError):  # no file can hold it
            continue
        loads(path, {})
    path.write_text(yaml.safe_dump(BASE))
    for text in texts:
        loads(path, {variable_name(loc): text})


IN_FILES = (*VALUES, nested(40))
IN_VARIABLES = tuple(item for item in (*TIMES[:2], *NUMBERS, *TEXTS, *PATTERNS[:2], *RAW) if "\0" not in item)


@pytest.mark.full
@pytest.mark.parametrize("section", sorted({str(loc[0]) for loc in PLACES}))
def test_any_value_in_the_file_or_a_variable(tmp_path: Path, section: str) -> None:
    for loc in (loc for loc in PLACES if loc[0] == section):
        tries(tmp_path / "receiver.yaml", loc, IN_FILES, IN_VARIABLES)


def test_a_value_of_each_kind_at_some_settings(tmp_path: Path) -> None:
    """Another one at each setting, so that all values and all settings have their turn."""
    for number, loc in enumerate(PLACES):
        value, text = IN_FILES[number % len(IN_FILES)], IN_VARIABLES[number % len(IN_VARIABLES)]
        tries(tmp_path / "receiver.yaml", loc, [value], [text])


@pytest.mark.parametrize(
    "name", ["__" + "9" * 5000, "__²__NAME", "LISTENERS__" + "9" * 5000 + "__BIND", "X" * 5000]
)
def test_any_name_of_a_variable(tmp_path: Path, name: str) -> None:
    path = tmp_path / "receiver.yaml"
    path.write_text(yaml.safe_dump(BASE))
    loads(path, {f"KAFKA_TELEMETRY_{name}": "1"})


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: raw[:20])
def test_any_text_of_a_file(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "receiver.yaml"
    path.write_text(f"{yaml.safe_dump(BASE)}\nbroker: {{id: {raw}\n")
    loads(path, {})
    path.write_text(f"{yaml.safe_dump(BASE)}\nbroker:\n  id: {raw}\n")
    loads(path, {})
