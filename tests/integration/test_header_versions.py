"""The tables of versions and error bodies equal those of Kafka's message classes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from receiver.session.exchanges.refusal import error_body
from receiver.session.exchanges.refused_entries import error_entries, has_entries
from receiver.wire import api_keys
from receiver.wire.error_codes import ErrorCode
from receiver.wire.header_versions import FIRST_FLEXIBLE, FIRST_WITH_HEADER_V3, LATEST
from receiver.wire.headers import request_header_version, response_header_version
from receiver.wire.primitives import Reader
from tests.testbed import jvm

_WRITE_TXN_MARKERS = 27


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Kafka's facts about one version of one RPC."""

    key: int
    version: int
    stable: bool
    request_header: int
    response_header: int
    error_body: str


@pytest.fixture(scope="module")
def schemas() -> list[Schema]:
    program = Path(__file__).parent / "KafkaSchemas.java"
    done = subprocess.run(jvm.command(str(program)), capture_output=True, text=True, check=True, timeout=120)
    found = []
    for line in done.stdout.splitlines():
        key, version, stable, request_header, response_header, error_body = line.split()
        found.append(
            Schema(
                key=int(key),
                version=int(version),
                stable=stable == "true",
                request_header=int(request_header),
                response_header=int(response_header),
                error_body=error_body,
            )
        )
    return found


def test_the_latest_versions_are_kafkas(schemas: list[Schema]) -> None:
    latest: dict[int, int] = {}
    for schema in schemas:
        if schema.stable:
            latest[schema.key] = max(schema.version, latest.get(schema.key, 0))
    assert latest == LATEST
    assert FIRST_FLEXIBLE.keys() == LATEST.keys()


def test_the_header_versions_are_kafkas(schemas: list[Schema]) -> None:
    known = [schema for schema in schemas if schema.stable]
    assert len(known) > 300
    for schema in known:
        assert request_header_version(schema.key, schema.version) == schema.request_header, schema
        assert response_header_version(schema.key, schema.version) == schema.response_header, schema


def test_the_error_bodies_are_kafkas(schemas: list[Schema]) -> None:
    for schema in schemas:
        if not schema.stable:
            continue
        body = error_body(schema.key, schema.version, ErrorCode.INVALID_REQUEST)
        if schema.version != FIRST_WITH_HEADER_V3.get(schema.key, 0) - 1:
            assert body is None, schema
        else:
            assert schema.error_body == ("-" if body is None else body.hex()), schema


@pytest.mark.full
def test_the_errors_for_entries_are_kafkas(schemas: list[Schema]) -> None:
    """Every RPC has an answer, of one error code or of one for each entry of the request."""
    without_code = {
        schema.key for schema in schemas if schema.stable and schema.version == LATEST[schema.key]
    }
    without_code -= {key for key, version in LATEST.items() if error_body(key, version, 42) is not None}
    keys = sorted(key for key in LATEST if has_entries(key))
    assert without_code - set(keys) == {api_keys.SASL_HANDSHAKE}, "which can't carry an id"
    program = Path(__file__).parent / "KafkaRefusals.java"
    command = jvm.command(str(program), *map(str, keys))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [int(key) for key, _, _ in answers] == keys
    for key, request, response in answers:
        body = error_entries(int(key), Reader(bytes.fromhex(request)), ErrorCode.INVALID_REQUEST)
        if int(key) == _WRITE_TXN_MARKERS:  # Kafka gives the order of a hash map
            assert sorted(body) == sorted(bytes.fromhex(response))
        else:
            assert body.hex() == response, key
