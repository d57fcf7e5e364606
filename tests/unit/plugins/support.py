"""Test helpers for otlp: plugins from an operator's settings, pushes of real clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from plugins.otlp import OtlpReceiver
from receiver.host.discovery import load_plugins
from receiver.plugin import ExportError, Push
from tests.unit.host.support import push

Failure = TypeVar("Failure", bound=ExportError)

PAYLOADS = Path(__file__).parents[2] / "data" / "payloads"


def client_push(name: str = "java44-producer-star-01") -> Push:
    """Return a push with the bytes that a real client sent."""
    return push(data=(PAYLOADS / f"{name}.bin").read_bytes())


def plugin(**settings: Any) -> OtlpReceiver:
    """Return the plugin, not started."""
    (hosted,) = load_plugins([{"type": "otlp", **settings}])
    assert isinstance(hosted.plugin, OtlpReceiver)
    return hosted.plugin


@contextmanager
def started(**settings: Any) -> Iterator[OtlpReceiver]:
    one = plugin(**settings)
    one.start()
    try:
        yield one
    finally:
        one.stop()


def failure(kind: type[Failure], match: str | None = None, **settings: Any) -> Failure:
    """Return the error of one export, which must fail."""
    with started(**settings) as one, pytest.raises(kind, match=match) as caught:
        one.export_batch([client_push()])
    return caught.value
