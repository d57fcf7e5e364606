"""Requests about configs: what is split and merged is what was asked and answered."""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from receiver.wire import (
    altered_configs,
    config_resources,
    k32_describe_configs,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredConfig, AlteredResource
from receiver.wire.config_resources import CLIENT_METRICS, Resource, Result
from receiver.wire.errors import WireError
from receiver.wire.k32_describe_configs import DescribeConfigsRequest, DescribedConfig, DescribedResource

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
VERSIONS = [
    *((DESCRIBE, version) for version in k32_describe_configs.SUPPORTED_VERSIONS),
    *((key, version) for key, known in altered_configs.SUPPORTED_VERSIONS.items() for version in known),
]

NAMES = {
    DESCRIBE: "describe_configs",
    ALTER: "alter_configs",
    INCREMENTAL: "incremental_alter_configs",
    74: "list_config_resources",
}
KIO_ERRORS = {code.value for code in KioErrorCode}

texts = st.text(max_size=20)
resources = st.builds(Resource, st.sampled_from((2, 4, 16, 16, 32, -1)), texts)
messages = st.sampled_from(VERSIONS)


@st.composite
def altered_resources(draw: st.DrawFn) -> AlteredResource:
    configs = st.builds(AlteredConfig, texts, st.none() | texts, st.integers(-2, 5))
    return AlteredResource(draw(resources), tuple(draw(st.lists(configs, max_size=4))))


def assert_kio_reads(key: int, version: int, direction: str, body: bytes) -> None:
    """Check a body with kio, a codec made from Kafka's own schemas by other people."""
    if (key, version) == (DESCRIBE, 0):
        return  # Kafka 4 has removed it, and so has kio
    name = NAMES[key]
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
    kind: Any = getattr(module, "".join(map(str.capitalize, name.split("_"))) + direction.capitalize())
    value, size = entity_reader(kind)(body, 0)
    assert size == len(body)
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, value)
    assert buffer.getvalue() == body


@given(st.sampled_from(VERSIONS[5:]), st.lists(altered_resources(), max_size=8), st.booleans(), st.binary())
def test_the_parts_of_a_change_are_the_change(
    message: tuple[int, int], changes: list[AlteredResource], validate_only: bool, behind: bytes
) -> None:
    key, version = message
    whole = AlterConfigsRequest(resources=tuple(changes), validate_only=validate_only)
    body = altered_configs.encode_request(whole, key, version) + behind  # Kafka ignores what is behind
    parts = config_resources.split(body, key, version)
    ours = [change for change in changes if change.resource.type == CLIENT_METRICS]
    theirs = [change for change in changes if change.resource.type != CLIENT_METRICS]
    if not ours:
        assert parts is None
        return
    assert parts is not None
    assert list(parts.asked) == [change.resource for change in changes]
    if not behind:
        assert_kio_reads(key, version, "request", parts.own)
    read = altered_configs.decode_request(parts.own, key, version)
    assert _set_only(read, key) == _set_only(
        AlterConfigsRequest(resources=tuple(ours), validate_only=validate_only), key
    )
    if not theirs:
        assert parts.others is None
        return
    assert parts.others is not None
    others = altered_configs.decode_request(parts.others, key, version)
    assert _set_only(others, key) == _set_only(
        AlterConfigsRequest(resources=tuple(theirs), validate_only=validate_only), key
    )


def _set_only(request: AlterConfigsRequest, key: int) -> AlterConfigsRequest:
    """Return the request as its message can have it: AlterConfigs has no operations."""
    if key == INCREMENTAL:
        return request
    return AlterConfigsRequest(
        resources=tuple(
            AlteredResource(
                change.resource,
                tuple(AlteredConfig(config.name, config.value) for config in change.configs),
            )
            for change in request.resources
        ),
        validate_only=request.validate_only,
    )


@given(
    st.sampled_from(VERSIONS[:5]),
    st.lists(st.tuples(resources, st.none() | st.lists(texts, max_size=3).map(tuple)), max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_the_parts_of_a_question_are_the_question(
    message: tuple[int, int],
    asked: list[tuple[Resource, tuple[str, ...] | None]],
    synonyms: bool,
    documentation: bool,
) -> None:
    key, version = message
    flags = {
        "include_synonyms": synonyms and version >= 1,
        "include_documentation": documentation and version >= 3,
    }
    body = k32_describe_configs.encode_request(
        DescribeConfigsRequest(resources=tuple(asked), **flags), version
    )
    assert k32_describe_configs.decode_request(body, version).resources == tuple(asked)
    parts = config_resources.split(body, key, version)
    for own in (True, False):
        chosen = tuple(item for item in asked if (item[0].type == CLIENT_METRICS) is own)
        part = None if parts is None else parts.own if own else parts.others
        if parts is None or part is None:
            assert not chosen or (parts is None and not own)
            continue
        expected = DescribeConfigsRequest(resources=chosen, **flags)
        assert k32_describe_configs.decode_request(part, version) == expected
        assert_kio_reads(key, version, "request", part)


def _response(message: tuple[int, int], asked: list[Resource]) -> bytes:
    """Answer each resource with a result of its own."""
    key, version = message
    results = [Result(item, len(item.name), f"{index}") for index, item in enumerate(asked)]
    if key != DESCRIBE:
        return altered_configs.encode_response(results, key, version)
    config = DescribedConfig(name="n", value="v", source=7, type=3, documentation="d")
    request = DescribeConfigsRequest(resources=(), include_synonyms=True, include_documentation=True)
    described = [DescribedResource(result, (config,) * (index % 3)) for index, result in enumerate(results)]
    return k32_describe_configs.encode_response(described, version, request)


@given(messages, st.lists(resources, max_size=12), st.randoms(use_true_random=False))
def test_what_is_merged_has_each_result_once_and_in_order(
    message: tuple[int, int], asked: list[Resource], random: object
) -> None:
    key, version = message
    own = [item for item in asked if item.type == CLIENT_METRICS]
    others = [item for item in asked if item.type != CLIENT_METRICS]
    random.shuffle(others)  # type: ignore[attr-defined]
    ours, theirs = _response(message, own), _response(message, others)
    merged = config_resources.merge(asked, key, version, ours, theirs)
    results = config_resources.read_results(merged, key, version)
    assert [result.resource for result in results] == asked
    expected = [
        result for body in (ours, theirs) for result in config_resources.read_results(body, key, version)
    ]
    assert sorted(map(repr, results)) == sorted(map(repr, expected))
    if all(len(item.name) in KIO_ERRORS for item in asked):
        assert_kio_reads(key, version, "response", merged)


@given(st.lists(texts, max_size=5))
def test_a_list_is_kafkas(names: list[str]) -> None:
    body = k74_list_config_resources.encode_response(names, error_code=0)
    assert k74_list_config_resources.decode_response(body) == (0, tuple(names))
    assert_kio_reads(74, 0, "response", body)


@given(messages, st.binary(max_size=200))
def test_other_bytes_are_read_or_refused(message: tuple[int, int], body: bytes) -> None:
    key, version = message
    for read in (config_resources.split, config_resources.check_response, config_resources.read_results):
        with contextlib.suppress(WireError):
            read(body, key, version)
