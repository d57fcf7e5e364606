from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import pytest

from receiver.host.push_format import PushFormatError, decode_push, encode_push
from receiver.plugin import ClientTelemetryContext, ClientTelemetryPayload, Push
from tests.unit.host.support import push


def changed(**context: Any) -> Push:
    one = push(3, data=b"otlp")
    return dataclasses.replace(one, context=dataclasses.replace(one.context, **context))


def written(text: str, data: bytes = b"otlp", version: int = 1) -> bytes:
    return struct.pack("<BI", version, len(text)) + text.encode() + data


def arrays() -> list[list[Any]]:
    data = encode_push(push(3, data=b""))
    both: list[list[Any]] = json.loads(data[5:])
    return both


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_a_push_is_read_as_it_was_written(view: type) -> None:
    one = push(3, size=70_000)
    assert decode_push(view(encode_push(one))) == one


def test_none_and_strange_text_are_kept() -> None:
    one = changed(
        cluster_id=None, sasl_mechanism="PLAIN", client_id='ü"\\\0\ud800', principal="User:" + "x" * 9000
    )
    assert decode_push(encode_push(one)) == one


def test_every_field_is_written() -> None:
    context, payload = arrays()
    assert len(context) == len(dataclasses.fields(ClientTelemetryContext))
    assert len(payload) == len(dataclasses.fields(ClientTelemetryPayload)) - 1, "the data follows"


def test_what_an_older_receiver_did_not_write_has_its_default() -> None:
    (*context, _sasl_mechanism, _version, _correlation_id), (*payload, _content_type) = arrays()
    assert decode_push(written(json.dumps([context, payload]))) == push(3, data=b"otlp")


def test_what_a_newer_receiver_wrote_is_passed_over() -> None:
    context, payload = arrays()
    text = json.dumps([[*context, {"more": 1}], [*payload, None], "more"])
    assert decode_push(written(text)) == push(3, data=b"otlp")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x01\0", "expected at least 5"),
        (written("[]", version=2), "version 2"),
        (struct.pack("<BI", 1, 100) + b"[]", "its context alone has 100"),
        (written("[]"), "not JSON of two arrays"),
        (written("{"), "not JSON of two arrays"),
        (written("1"), "not JSON of two arrays"),
        (written("[1,2]"), "not JSON of two arrays"),
        (written("[" * 200_000), "not JSON of two arrays"),
        (written("[" + "9" * 10_000 + "]"), "not JSON of two arrays"),
        (written("[[],[]]"), "lacks fields"),
        (written('[["id", 5], []]'), "listener has the type int"),
    ],
)
def test_what_is_no_push_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(PushFormatError, match=problem):
        decode_push(data)


def test_a_boolean_is_no_number() -> None:
    context, payload = arrays()
    context[4] = True
    with pytest.raises(PushFormatError, match="source_port has the type bool"):
        decode_push(written(json.dumps([context, payload])))
