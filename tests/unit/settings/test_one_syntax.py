"""Secrets and TLS files have one syntax in the receiver, its plugins and the roll-up."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr, TypeAdapter

from receiver.host.discovery import installed_types
from receiver.plugin import PluginConfig
from receiver.settings.model import ReceiverSettings
from receiver.settings.schema import fields_of, model_of, options
from spark_streaming.settings import RollupSettings

TLS_FILES: Final = {"cert_file", "key_file", "ca_file", "client_ca_file"}
#: Words of a key that holds a secret.
_SECRET: Final = re.compile("password|secret|token$|^key$")


def _plugins() -> dict[str, type[BaseModel]]:
    return {name: entry.load().Config for name, entry in installed_types().items()}


ROOTS: Final[dict[str, type[BaseModel]]] = {
    "receiver": ReceiverSettings,
    "rollup": RollupSettings,
    **_plugins(),
}


def _settings(model: type[BaseModel], loc: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield the place, key and type of each setting below a model."""
    for key, annotation, _ in fields_of(model):
        yield f"{loc}{key}", key, annotation
        for option in options(annotation):
            if typing.get_origin(option) is dict:
                yield f"{loc}{key}.*", "*", typing.get_args(option)[1]
        for inner in _models(annotation):
            yield from _settings(inner, f"{loc}{key}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if (model := model_of(annotation)) is not None:
        yield model
        return
    for option in options(annotation):
        for part in typing.get_args(option):
            yield from _models(part)


@pytest.mark.parametrize("root", ROOTS)
def test_files_of_tls_have_the_same_keys_everywhere(root: str) -> None:
    files = {
        place: key
        for place, key, annotation in _settings(ROOTS[root])
        if re.search(r"cert|key|trust|\bca\b|ca_|_ca", key) and _is_path(annotation)
    }
    assert set(files.values()) <= TLS_FILES, files
    if root in {"receiver", "otlp", "kafka_topic", "prometheus"}:
        assert len(files) >= 3


def _is_path(annotation: Any) -> bool:
    return any(isinstance(option, type) and issubclass(option, Path) for option in options(annotation))


@pytest.mark.parametrize("root", ROOTS)
def test_a_secret_may_be_in_a_file_everywhere(root: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret-s3cret-s3cret-s3cret-s3cret\n")
    secrets = {
        place: annotation
        for place, key, annotation in _settings(ROOTS[root])
        if _is_secret(annotation) or _SECRET.search(key)
    }
    for annotation in secrets.values():
        TypeAdapter(annotation).validate_python({"file": str(file)})
    if root in {"receiver", "rollup", "otlp", "kafka_topic", "prometheus"}:
        assert secrets


def _is_secret(annotation: Any) -> bool:
    return any(option in (SecretStr, SecretBytes) for option in options(annotation))


def test_every_plugin_of_ours_is_looked_at() -> None:
    assert {"otlp", "kafka_topic", "prometheus", "spool_files", "console"} <= ROOTS.keys()
    assert all(issubclass(config, PluginConfig) for config in _plugins().values())
