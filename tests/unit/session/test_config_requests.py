"""Requests about client metrics resources, in front of a broker that does not keep them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from receiver.session.exchanges import LONGEST
from receiver.wire import (
    altered_configs,
    api_keys,
    config_resources,
    k32_describe_configs,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredResource
from receiver.wire.config_resources import BROKER, CLIENT_METRICS, Resource, Result
from receiver.wire.errors import WireError
from receiver.wire.headers import decode_response_header, response_header_version
from receiver.wire.k32_describe_configs import DescribeConfigsRequest
from receiver.wire.primitives import Reader
from tests.testbed.scripted_broker import METADATA, produce_frame, request_frame
from tests.unit.session.config_answers import NAMES, OLD_RANGES, ConfigAnswers, body_of, config_request
from tests.unit.session.support import (
    ARRIVALS,
    Wire,
    api_versions,
    correlation_id_of,
    get_subscriptions,
    listed_ranges,
    read_api_versions,
)

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC = 2
OURS, THEIRS, MORE = Resource(CLIENT_METRICS, "s"), Resource(TOPIC, "t"), Resource(CLIENT_METRICS, "u")
VERSIONS = [
    *((DESCRIBE, version) for version in k32_describe_configs.SUPPORTED_VERSIONS),
    *((key, version) for key, known in altered_configs.SUPPORTED_VERSIONS.items() for version in known),
]


def results_of(answer: bytes, key: int, version: int, correlation_id: int = 5) -> list[Result]:
    """Read an answer."""
    return config_resources.read_results(body_in(answer, key, version, correlation_id), key, version)


def body_in(answer: bytes, key: int, version: int, correlation_id: int = 5) -> bytes:
    reader = Reader(answer)
    header = decode_response_header(reader, response_header_version(key, version))
    assert header.correlation_id == correlation_id
    return answer[reader.offset :]


def old_broker(arrival: str = "whole", *, refuses: int = 0, security_protocol: str = "PLAINTEXT") -> Wire:
    answers = ConfigAnswers()
    answers.refuses = refuses
    return Wire(
        arrival=arrival,
        ranges=OLD_RANGES,
        learned=OLD_RANGES,
        config_answers=answers,
        security_protocol=security_protocol,
    )


def asked(wire: Wire) -> list[tuple[int, list[Resource]]]:
    """Return the requests that the broker got: their API keys and resources."""
    found = []
    for item in wire.seen():
        if item.api_key not in (DESCRIBE, ALTER, INCREMENTAL):
            continue
        body = item.body[1:] if response_header_version(item.api_key, item.api_version) else item.body
        if item.api_key == DESCRIBE:
            resources = [
                each for each, _ in k32_describe_configs.decode_request(body, item.api_version).resources
            ]
        else:
            altered = altered_configs.decode_request(body, item.api_key, item.api_version)
            resources = [each.resource for each in altered.resources]
            assert resources != [QUESTION] or (altered.validate_only and not altered.resources[0].configs)
        found.append((item.api_key, resources))
    return found


QUESTION = Resource(BROKER, "")
QUESTION_KEYS = {DESCRIBE: DESCRIBE, ALTER: INCREMENTAL, INCREMENTAL: INCREMENTAL}


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_client_metrics_are_answered_here_and_the_broker_is_asked_for_the_right(
    key: int, version: int, arrival: str
) -> None:
    wire = old_broker(arrival)
    answer = wire.exchange(config_request(key, version, OURS, MORE))
    assert [item.resource for item in results_of(answer, key, version)] == [OURS, MORE]
    assert asked(wire) == [(QUESTION_KEYS[key], [QUESTION])]
    (call,) = wire.config_calls
    assert call.body == body_of(key, version, OURS, MORE)
    assert not wire.session.awaiting
    assert not wire.session.in_flight


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_the_list_is_answered_here(arrival: str) -> None:
    wire = old_broker(arrival)
    body = body_in(wire.exchange(config_request(LIST, 0)), LIST, 0)
    assert k74_list_config_resources.decode_response(body) == (0, NAMES)
    assert asked(wire) == [(DESCRIBE, [QUESTION])]


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_other_types_in_the_same_request_are_the_brokers(key: int, version: int, arrival: str) -> None:
    wire = old_broker(arrival)
    answer = wire.exchange(config_request(key, version, OURS, THEIRS, MORE))
    results = results_of(answer, key, version)
    assert [result.resource for result in results] == [OURS, THEIRS, MORE]
    assert {result.error_code for result in results} == {0}
    assert asked(wire) == [(QUESTION_KEYS[key], [QUESTION]), (key, [THEIRS])]
    (call,) = wire.config_calls
    assert call.body == body_of(key, version, OURS, MORE)
    assert not wire.session.awaiting
    assert not wire.session.in_flight


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_request_for_other_types_alone_passes_byte_for_byte(key: int, version: int) -> None:
    wire = old_broker()
    data = config_request(key, version, THEIRS, Resource(BROKER, "1"))
    wire.send(data)
    assert bytes(wire.to_broker) == data
    wire.answer()
    assert correlation_id_of(wire.received()[0]) == 5
    assert wire.config_calls == []


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("key", "version"), [*VERSIONS, (LIST, 0)])
def test_who_has_no_right_gets_the_brokers_error(key: int, version: int, mixed: bool) -> None:
    wire = old_broker(refuses=31)
    resources = (THEIRS, OURS) if mixed else (OURS,)
    answer = wire.exchange(config_request(key, version, *resources))
    if key == LIST:
        assert k74_list_config_resources.decode_response(body_in(answer, key, version)) == (31, ())
    else:
        results = results_of(answer, key, version)
        assert results[-1] == Result(OURS, 31, "Cluster authorization failed.")
        assert [result.resource for result in results] == list(resources)
        assert {result.error_code for result in results[:-1]} <= {0}
    assert wire.config_calls == []
    assert [code for _, code in wire.events.refused_configs] == [31]
    # The connection goes on.
    assert correlation_id_of(wire.exchange(config_request(key, version, *resources, correlation_id=6))) == 6


def test_a_change_is_never_made_by_the_question() -> None:
    """AlterConfigs replaces all configs, so the question must only validate."""
    very_old = {key: span for key, span in OLD_RANGES.items() if key != INCREMENTAL}
    for key, version in VERSIONS[5:]:
        for ranges in (OLD_RANGES, very_old):
            wire = Wire(ranges=ranges, learned=ranges, config_answers=ConfigAnswers(ranges))
            wire.exchange(config_request(key, version, OURS, THEIRS))
            question, others = wire.seen()
            assert others.api_key == key
            assert question.api_key == (INCREMENTAL if ranges is OLD_RANGES else ALTER)
            flexible = response_header_version(question.api_key, question.api_version)
            body = question.body[flexible:]
            decoded = altered_configs.decode_request(body, question.api_key, question.api_version)
            assert decoded == AlterConfigsRequest(resources=(AlteredResource(QUESTION),), validate_only=True)
            if key == INCREMENTAL and ranges is very_old:
                break


def test_whether_a_change_is_only_validated_is_kept_for_both_parts() -> None:
    for validate_only in (False, True):
        wire = old_broker()
        wire.exchange(config_request(INCREMENTAL, 1, OURS, THEIRS, validate_only=validate_only))
        (call,) = wire.config_calls
        own = altered_configs.decode_request(call.body, INCREMENTAL, 1)
        others = altered_configs.decode_request(wire.seen()[-1].body[1:], INCREMENTAL, 1)
        assert (own.validate_only, others.validate_only) == (validate_only, validate_only)


def test_answers_keep_their_order_in_a_pipeline() -> None:
    wire = old_broker()
    requests = [
        produce_frame(1),
        config_request(INCREMENTAL, 1, OURS, THEIRS, correlation_id=2),
        config_request(LIST, 0, correlation_id=3),
        get_subscriptions(correlation_id=4),
        config_request(DESCRIBE, 4, THEIRS, OURS, correlation_id=5),
        produce_frame(6),
    ]
    wire.send(b"".join(requests))
    wire.answer()
    assert [correlation_id_of(item) for item in wire.received()] == [1, 2, 3, 4, 5, 6]
    assert not wire.session.in_flight


def test_nothing_is_read_from_the_broker_while_the_call_is_open() -> None:
    wire = old_broker()
    wire.send(config_request(DESCRIBE, 4, OURS, THEIRS))
    before = wire.session.may_call
    wire.answer()
    assert (before, wire.session.may_call, wire.session.calling) == (True, False, False)
    assert wire.session.held_bytes == 0


def test_before_a_login_nothing_is_answered() -> None:
    wire = old_broker(security_protocol="SASL_PLAINTEXT")
    answer = wire.exchange(config_request(INCREMENTAL, 1, OURS))
    (result,) = results_of(answer, INCREMENTAL, 1)
    assert (result.error_code, result.resource) == (34, OURS)
    assert wire.config_calls == []


def test_the_brokers_throttle_time_is_passed_on() -> None:
    for resources in ((OURS,), (OURS, THEIRS)):
        wire = old_broker()
        assert isinstance(wire.answers, ConfigAnswers)
        wire.answers.throttled_ms = 77
        body = body_in(wire.exchange(config_request(DESCRIBE, 4, *resources)), DESCRIBE, 4)
        assert config_resources.throttle_time_ms(body) == 77


@pytest.mark.parametrize("padding", [config_resources.MAX_ORDERED_BYTES, 20_000])
def test_a_long_response_has_all_results(padding: int) -> None:
    wire = old_broker()
    assert isinstance(wire.answers, ConfigAnswers)
    wire.answers.padding = min(padding, 32_000)
    others = [Resource(TOPIC, f"t{index}") for index in range(8)]
    answer = wire.exchange(config_request(DESCRIBE, 4, *others, OURS))
    results = results_of(answer, DESCRIBE, 4)
    assert {result.resource for result in results} == {*others, OURS}
    # Past the bound, results are not read one by one.
    assert (results[0].resource == OURS) == (len(answer) > config_resources.MAX_ORDERED_BYTES)


def test_a_response_that_is_too_long_passes_unread() -> None:
    wire = old_broker()
    assert isinstance(wire.answers, ConfigAnswers)
    wire.answers.padding = 32_000
    others = [Resource(TOPIC, f"t{index}") for index in range(140)]  # more than 4 MiB
    answer = wire.exchange(config_request(DESCRIBE, 4, *others, OURS))
    assert [item.resource for item in results_of(answer, DESCRIBE, 4)] == others[::-1]
    assert not wire.session.may_call
    assert not wire.session.awaiting


def test_a_request_that_is_too_large_to_be_read_is_the_brokers() -> None:
    many = [Resource(TOPIC, str(index)) for index in range(config_resources.MAX_ITEMS)]
    long = [Resource(TOPIC, "x" * 250 + str(index)) for index in range(LONGEST[DESCRIBE] // 250)]
    for others in (many, long):
        wire = old_broker()
        data = config_request(DESCRIBE, 4, OURS, *others)
        assert (len(data) > LONGEST[DESCRIBE]) == (others is long)
        wire.send(data)
        assert bytes(wire.to_broker) == data
        wire.answer()
        (answer,) = wire.received()
        assert {item.error_code for item in results_of(answer, DESCRIBE, 4) if item.resource == OURS} == {42}


def test_unknown_versions_are_the_brokers() -> None:
    for key, version in ((DESCRIBE, 5), (ALTER, 3), (INCREMENTAL, 2), (LIST, 1), (LIST, 2)):
        wire = old_broker()
        data = request_frame(key, version, 5, b"\0\x02\x10\0")
        wire.send(data)
        assert bytes(wire.to_broker) == data


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_malformed_request_ends_the_connection(arrival: str) -> None:
    for body in (b"", b"\xff", struct.pack(">i", 1), struct.pack(">ib", 1, 16) + b"\0\x05ab"):
        wire = old_broker(arrival)
        with pytest.raises(WireError):
            wire.send(request_frame(DESCRIBE, 1, 5, body))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_request_that_cannot_be_answered_later_ends_the_connection_now(
    key: int, version: int, arrival: str
) -> None:
    """A name or a value that is not UTF-8 is refused before anything waits for an answer."""
    body = body_of(key, version, OURS, MORE)
    if key == DESCRIBE:
        named = DescribeConfigsRequest(resources=((OURS, None), (MORE, ("metrics",))))
        body = k32_describe_configs.encode_request(named, version)
    tags = b"\0" * (response_header_version(key, version) > 0)
    for text in (b"metrics",) if key == DESCRIBE else (b"metrics", b"x."):
        hostile = body.replace(text, b"\xff" * len(text))
        assert hostile != body
        wire = old_broker(arrival)
        with pytest.raises(WireError, match="UTF-8"):
            wire.send(request_frame(key, version, 5, tags + hostile))
        assert asked(wire) == []


def test_a_malformed_response_of_the_broker_ends_the_connection() -> None:
    for responses in ((b"\0\0\0\0\0",), (bytes(8), b"\0\0\0\0\0\0\0\1")):
        wire = old_broker()
        wire.send(config_request(DESCRIBE, 1, OURS, THEIRS))
        answers = [struct.pack(">i", item.correlation_id) for item in wire.forwarded()]
        stream = b"".join(
            struct.pack(">i", 4 + len(body)) + correlation_id + body
            for correlation_id, body in zip(answers, responses, strict=False)
        )
        with pytest.raises(WireError):
            wire.receive(stream)


def test_an_answer_without_results_gives_no_right() -> None:
    wire = old_broker()
    wire.send(config_request(DESCRIBE, 1, OURS))
    (question,) = wire.forwarded()
    wire.receive(struct.pack(">iiii", 12, question.correlation_id, 0, 0))
    (result,) = results_of(wire.received()[0], DESCRIBE, 1)
    assert result.error_code == -1
    assert wire.config_calls == []


def test_clients_are_offered_the_list_where_it_is_answered() -> None:
    wire = old_broker()
    ranges = listed_ranges(read_api_versions(wire.exchange(api_versions(3)), 3))
    assert ranges[LIST] == (0, 0)
    assert {key: ranges[key] for key in (DESCRIBE, ALTER, INCREMENTAL)} == {
        DESCRIBE: (0, 4),
        ALTER: (0, 2),
        INCREMENTAL: (0, 1),
    }
    keeps = {**OLD_RANGES, LIST: (0, 1)}
    wire = Wire(ranges=keeps, learned=keeps, config_answers=ConfigAnswers(keeps))
    assert listed_ranges(read_api_versions(wire.exchange(api_versions(3)), 3))[LIST] == (0, 1)


def hidden(reads_resources: bool) -> Wire:
    keeps = {**OLD_RANGES, LIST: (0, 1)}
    answers = ConfigAnswers(keeps)
    return Wire(ranges=keeps, learned=keeps, config_answers=answers, reads_resources=reads_resources)


@pytest.mark.parametrize(
    ("key", "version", "resources", "counts"),
    [
        (INCREMENTAL, 1, (THEIRS, OURS), True),
        (ALTER, 2, (OURS,), True),
        (LIST, 0, (), True),
        (INCREMENTAL, 1, (THEIRS,), False),
        (DESCRIBE, 4, (OURS,), False),
    ],
)
def test_where_the_broker_keeps_other_resources_requests_are_counted_and_pass(
    key: int, version: int, resources: Sequence[Resource], counts: bool
) -> None:
    data = config_request(key, version, *resources)
    for reads_resources in (False, True):
        wire = hidden(reads_resources)
        wire.send(data)
        assert bytes(wire.to_broker) == data
        wire.answer()
        assert len(wire.received()) == 1
        assert len(wire.events.hidden_configs) == (counts and not reads_resources)
        assert wire.config_calls == []


def test_a_list_of_other_types_counts_as_nothing() -> None:
    for types, counts in ((b"\x02\x02", 0), (b"\x02\x10", 1), (b"\x01", 1)):
        wire = hidden(reads_resources=False)
        wire.send(request_frame(LIST, 1, 5, b"\0" + types + b"\0"))
        assert len(wire.events.hidden_configs) == counts


def test_a_broker_that_was_upgraded_answers_itself() -> None:
    wire = old_broker()
    wire.answers.ranges[LIST] = (0, 1)
    wire.exchange(api_versions(3))
    data = config_request(DESCRIBE, 4, OURS)
    wire.send(data)
    assert bytes(wire.to_broker) == data


def test_nothing_is_answered_before_the_brokers_versions_are_known() -> None:
    wire = Wire(ranges=OLD_RANGES, learned=None, config_answers=ConfigAnswers())
    data = config_request(DESCRIBE, 4, OURS)
    wire.send(data)
    assert bytes(wire.to_broker) == data
    wire.answer()
    wire.received()
    wire.exchange(api_versions(3))
    assert results_of(wire.exchange(data), DESCRIBE, 4)[0].error_code == 0


def test_no_byte_is_looked_at_without_need() -> None:
    wire = Wire(ranges=OLD_RANGES, learned=OLD_RANGES)
    for data in (config_request(DESCRIBE, 4, OURS), request_frame(LIST, 0, 5, b"\0")):
        wire.send(data)
    assert not wire.session.may_call
    assert wire.upstream.watched_config_keys == frozenset()
    assert METADATA not in {item.api_key for item in wire.forwarded()}
    assert api_keys.DESCRIBE_CONFIGS in {item.api_key for item in wire.forwarded()}
