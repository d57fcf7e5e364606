"""Secrets: literal or from a file, and never shown."""

from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from receiver.plugin import PluginConfig
from receiver.plugin.secret import Secret
from receiver.settings.errors import settings_errors
from spark_streaming.files import MAX_SECRET_BYTES


class _Config(PluginConfig):
    headers: dict[str, Secret] = Field(default={})
    password: Secret | None = None


def problem(**settings: object) -> str:
    with pytest.raises(ValidationError) as caught:
        _Config.model_validate(settings)
    assert "hunter2" not in str(caught.value)
    (found,) = settings_errors(caught.value, _Config)
    assert found.value is None
    return f"{found.loc}: {found.problem}"


def test_a_literal_secret_is_hidden(tmp_path: Path) -> None:
    config = _Config.model_validate({"headers": {"authorization": "Bearer hunter2"}})
    assert config.headers["authorization"].get_secret_value() == "Bearer hunter2"
    for shown in (repr(config), str(config), config.model_dump_json(), repr(config.model_dump())):
        assert "hunter2" not in shown


@pytest.mark.parametrize("content", [b"hunter2", b"hunter2\n", b"hunter2\r\n"])
def test_a_secret_in_a_file_loses_one_trailing_newline(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "{token}"
    path.write_bytes(content)
    config = _Config.model_validate({"headers": {"authorization": {"file": str(path)}}})
    assert config.headers["authorization"].get_secret_value() == "hunter2"
    assert "hunter2" not in repr(config)


def test_inner_newlines_stay(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"a\nb\n\n")
    config = _Config.model_validate({"password": {"file": str(path)}})
    assert config.password is not None
    assert config.password.get_secret_value() == "a\nb\n"


def test_an_invalid_file_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "{absent}"
    assert problem(password={"file": str(absent)}) == (
        f"('password',): the secret's file {absent} cannot be read: No such file or directory"
    )
    empty = tmp_path / "empty"
    empty.write_bytes(b"\n")
    assert problem(headers={"a": {"file": str(empty)}}) == (
        f"('headers', 'a'): the secret's file {empty} is empty"
    )
    large = tmp_path / "large"
    large.write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    assert "is larger than 65536 bytes" in problem(password={"file": str(large)})
    binary = tmp_path / "binary"
    binary.write_bytes(b"hunter2\xff")
    assert problem(password={"file": str(binary)}) == (
        f"('password',): the secret's file {binary} is not UTF-8 text"
    )


@pytest.mark.parametrize(
    "value", [5, True, ["hunter2"], {"file": 5}, {"file": "a", "x": "hunter2"}, {"files": "hunter2"}]
)
def test_any_other_value_is_refused_and_hidden(value: object) -> None:
    assert problem(password=value) == "('password',): expected text, or {file: PATH} to read it from a file"
