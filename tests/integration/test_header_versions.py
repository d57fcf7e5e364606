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
from receiver.wire.header_versions import FIRST_FLEXIBLE, LATEST
from receiver.wire.headers import request_header_version, response_header_version
from receiver.wire.primitives import Reader
from tests.testbed import jvm

#: Produce and WriteTxnMarkers.
_IN_THE_ORDER_OF_A_HASH_MAP = {0, 27}


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
        body = error_body(schema.key, schema.version, ErrorCode.INVALID_REQUEST)
        if schema.stable and body is not None and schema.error_body != "-":
            assert body.hex() == schema.error_body, schema


@pytest.mark.full
def test_every_refused_request_has_the_answer_of_kafkas_classes(schemas: list[Schema]) -> None:
    """Every version has an answer: one error code, or one for each entry of the request."""
    stable = {(schema.key, schema.version) for schema in schemas if schema.stable}
    coded = {(schema.key, schema.version) for schema in schemas if schema.error_body != "-"}
    without_code = stable - coded
    keys = sorted({key for key, _ in without_code})
    program = Path(__file__).parent / "KafkaRefusals.java"
    command = jvm.command(str(program), *map(str, keys))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    compared = set()
    for line in done.stdout.splitlines():
        key, version, request, response = line.split()
        asked = int(key), int(version)
        if asked in without_code:
            compared.add(asked)
            body = error_body(*asked, ErrorCode.INVALID_REQUEST)
            if body is None:
                assert has_entries(*asked), asked
                body = error_entries(*asked, Reader(bytes.fromhex(request)), ErrorCode.INVALID_REQUEST)
            if asked[0] in _IN_THE_ORDER_OF_A_HASH_MAP:
                assert sorted(body) == sorted(bytes.fromhex(response)), asked
            else:
                assert body.hex() == response, asked
    assert compared == without_code
    answered = {asked for asked in stable if error_body(*asked, 42) is not None} | compared
    assert {key for key, _ in stable - answered} == {api_keys.SASL_HANDSHAKE}, "which can't carry an id"
