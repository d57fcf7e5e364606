"""ApiVersions: its versions, the fallback for unknown ones, and editing a response as bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from receiver.wire import k18_api_versions as k18
from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader
from tests.unit.wire.corpus import Captured, load

RESPONSES = [f for f in load() if f.key == 18 and not f.is_request]
TELEMETRY = {71: (0, 0), 72: (0, 1)}
HEADER = 4  # bytes of a response header v0


def _body(api_keys: str, *, error: str = "0000", after: str = "00000007" + "0105026162") -> bytes:
    """Return a v3 response: count and entries in hex, a throttle time and an unknown tag."""
    return bytes.fromhex(error + api_keys + after)


def _name(frame: Captured) -> str:
    return frame.file.removesuffix(".bin")


@pytest.mark.parametrize(
    ("version", "body", "request_"),
    [
        (0, b"", k18.ApiVersionsRequest()),
        (2, b"", k18.ApiVersionsRequest()),
        (
            3,
            b"\x02n\x041.0\x00",
            k18.ApiVersionsRequest(client_software_name="n", client_software_version="1.0"),
        ),
        (
            5,
            b"\x02n\x021\x02c\x00\x00\x00\x07\x01\x63\x01x",
            k18.ApiVersionsRequest(
                client_software_name="n",
                client_software_version="1",
                cluster_id="c",
                node_id=7,
                tagged_fields=((99, b"x"),),
            ),
        ),
        (5, b"\x01\x01\x00\xff\xff\xff\xff\x00", k18.ApiVersionsRequest()),
    ],
)
def test_request(version: int, body: bytes, request_: k18.ApiVersionsRequest) -> None:
    reader = Reader(body)
    assert k18.decode_request(reader, version) == request_
    reader.expect_end()
    assert k18.encode_request(request_, version) == body


@pytest.mark.parametrize(
    ("name", "version", "valid"),
    [
        ("apache-kafka-java", "4.4.0", True),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", True),
        ("-", ".", True),  # the KIP's pattern; Kafka 4.4 itself refuses it
        ("", "1", False),
        ("n", "", False),
        ("a b", "1", False),
        ("n", "1+2", False),
        ("n\n", "1", False),
        ("né", "1", False),
        ("n", "\u0661", False),
    ],
)
def test_client_information(name: str, version: str, valid: bool) -> None:
    assert k18.is_valid_client_information(name, version) is valid


def test_unsupported_version_is_answered_in_version_0() -> None:
    body = k18.unsupported_version_body()
    assert body.hex() == "0023" + "00000001" + "001200000005"
    # Whatever version was asked for, it is read and written as version 0.
    for version in k18.SUPPORTED_VERSIONS:
        reader = Reader(body)
        response = k18.decode_response(reader, version)
        reader.expect_end()
        assert response.error_code == 35
        assert response.api_keys == (k18.ApiVersion(api_key=18, min_version=0, max_version=5),)
        assert k18.encode_response(response, version) == body
        assert k18.read_ranges(body, version, [18, 71]) == {18: (0, 5)}
        assert k18.splice_api_keys(body, version, TELEMETRY) is body
    assert k18.unsupported_version_body(range(5)).hex().endswith("001200000004")


def test_an_unknown_error_is_kept() -> None:
    body = _body("01", error="03e7")
    assert k18.decode_response(Reader(body), 3).error_code == 999
    assert k18.read_error_code(body) == 999
    with pytest.raises(WireError, match="expected ErrorCode"):
        k18.read_error_code(b"\x00")


def test_a_response_has_its_throttle_time_from_version_1_on() -> None:
    response = k18.ApiVersionsResponse(error_code=0, throttle_time_ms=7)
    assert k18.encode_response(response, 0).hex() == "0000" + "00000000"
    assert k18.encode_response(response, 1).hex() == "0000" + "00000000" + "00000007"
    assert k18.decode_response(Reader(k18.encode_response(response, 1)), 1) == response


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, "0000" + "00000003" + "000000000001" * 2 + "ffff"),
        (3, "0000" + "04" + "00000000000100" * 2 + "ffff"),
    ],
)
def test_a_count_of_more_keys_than_fit_is_an_error(version: int, body: str) -> None:
    with pytest.raises(WireError, match=r"ApiKeys .a count of at most 2 items"):
        k18.read_ranges(bytes.fromhex(body), version, [0])
    with pytest.raises(WireError, match=r"ApiKeys .a count of at most 2 items"):
        k18.decode_response(Reader(bytes.fromhex(body)), version)


@pytest.mark.parametrize("version", [-1, 6])
def test_other_versions(version: int) -> None:
    message = f"ApiVersions version {version} is not one of 0 to 5"
    with pytest.raises(ValueError, match=message):
        k18.decode_request(Reader(b""), version)
    with pytest.raises(ValueError, match=message):
        k18.encode_request(k18.ApiVersionsRequest(), version)
    with pytest.raises(ValueError, match=message):
        k18.decode_response(Reader(b""), version)
    with pytest.raises(ValueError, match=message):
        k18.encode_response(k18.ApiVersionsResponse(error_code=0), version)
    with pytest.raises(ValueError, match=message):
        k18.splice_api_keys(b"", version, TELEMETRY)
    with pytest.raises(ValueError, match=message):
        k18.read_ranges(b"", version, [18])


@pytest.mark.parametrize("frame", RESPONSES, ids=_name)
def test_read_ranges_of_captured_responses(frame: Captured) -> None:
    assert frame.decoded is not None
    expected = {k: frame.decoded[f"k{k}"] for k in (18, 71, 72, 74)}
    found = k18.read_ranges(frame.data[HEADER:], frame.version, [*expected, 999])
    assert {key: list(found[key]) for key in found} == {k: v for k, v in expected.items() if v is not None}


@pytest.mark.parametrize("frame", RESPONSES, ids=_name)
def test_splicing_captured_responses(frame: Captured) -> None:
    body = frame.data[HEADER:]
    version = frame.version
    response = k18.decode_response(Reader(body), version)
    without = replace(response, api_keys=tuple(e for e in response.api_keys if e.api_key not in (18, 71, 72)))
    listed = dict(k18.read_ranges(body, version, [18, 71, 72]))

    # Putting back what was there gives the broker's own bytes.
    assert k18.splice_api_keys(k18.encode_response(without, version), version, listed) == body
    # Other ranges for listed and unlisted keys: the rest is untouched.
    edited = k18.decode_response(
        Reader(k18.splice_api_keys(body, version, {**TELEMETRY, 18: (0, 9)})), version
    )
    ranges = {e.api_key: (e.min_version, e.max_version) for e in edited.api_keys}
    assert ranges == {
        **{e.api_key: (e.min_version, e.max_version) for e in response.api_keys},
        **TELEMETRY,
        18: (0, 9),
    }
    assert [e.api_key for e in edited.api_keys] == sorted(ranges)
    assert (edited.throttle_time_ms, edited.tagged_fields) == (
        response.throttle_time_ms,
        response.tagged_fields,
    )


@pytest.mark.parametrize(
    ("before", "ranges", "after"),
    [
        # Inserted before, between and after.
        ("02" + "00120000000500", {3: (1, 2)}, "03" + "00030001000200" + "00120000000500"),
        (
            "03" + "00030000000100" + "00500000000000",
            TELEMETRY,
            "05" + "00030000000100" + "00470000000000" + "00480000000100" + "00500000000000",
        ),
        ("02" + "00120000000500", TELEMETRY, "04" + "00120000000500" + "00470000000000" + "00480000000100"),
        # A list that does not ascend is not put in order: new entries go to the end.
        (
            "03" + "00500000000000" + "00030000000100",
            TELEMETRY,
            "05" + "00500000000000" + "00030000000100" + "00470000000000" + "00480000000100",
        ),
        # Replaced, with its unknown tagged field kept; so is its neighbour's.
        (
            "03" + "00120000000401" + "070178" + "00470001000100",
            {18: (0, 5), 71: (0, 0)},
            "03" + "00120000000501" + "070178" + "00470000000000",
        ),
        (
            "02" + "00120000000401" + "070178",
            {71: (0, 0), 2: (0, 0)},
            "04" + "00020000000000" + "00120000000401" + "070178" + "00470000000000",
        ),
        # Listed twice: both entries get the same range.
        (
            "03" + "00470003000400" + "00470001000200",
            {71: (0, 0)},
            "03" + "00470000000000" + "00470000000000",
        ),
        # Keys whose high byte matters.
        ("02" + "01470000000100", {0x147: (2, 3), 71: (0, 0)}, "03" + "00470000000000" + "01470002000300"),
        # Nothing to put in; nothing to put it into.
        ("02" + "00120000000500", {}, "02" + "00120000000500"),
        ("01", TELEMETRY, "01"),
        ("00", TELEMETRY, "00"),
    ],
)
def test_splice(before: str, ranges: dict[int, tuple[int, int]], after: str) -> None:
    assert k18.splice_api_keys(_body(before), 3, ranges).hex() == _body(after).hex()


def test_splice_before_version_3() -> None:
    body = bytes.fromhex("0000" + "00000001" + "001200000003" + "00000007")
    assert k18.splice_api_keys(body, 2, {18: (0, 5), 71: (0, 0)}).hex() == (
        "0000" + "00000002" + "001200000005" + "004700000000" + "00000007"
    )
    null = bytes.fromhex("0000" + "ffffffff" + "00000007")
    assert k18.splice_api_keys(null, 1, TELEMETRY) == null


def test_the_count_may_outgrow_its_byte() -> None:
    entries = tuple(k18.ApiVersion(api_key=key, min_version=0, max_version=1) for key in range(200, 326))
    body = k18.encode_response(k18.ApiVersionsResponse(error_code=0, api_keys=entries), 4)
    assert body[2:3] == b"\x7f"
    spliced = k18.splice_api_keys(body, 4, TELEMETRY)
    assert spliced[2:4] == b"\x81\x01"
    assert [e.api_key for e in k18.decode_response(Reader(spliced), 4).api_keys] == [71, 72, *range(200, 326)]


@pytest.mark.parametrize("version", [0, 3])
def test_many_entries(version: int) -> None:
    """More entries than are unpacked at once."""
    entries = tuple(k18.ApiVersion(api_key=key, min_version=0, max_version=1) for key in range(100, 1_100))
    body = k18.encode_response(k18.ApiVersionsResponse(error_code=0, api_keys=entries), version)
    spliced = k18.splice_api_keys(body, version, {71: (0, 0), 1_000: (7, 8)})
    assert k18.read_ranges(spliced, version, [71, 72, 100, 1_000]) == {71: (0, 0), 100: (0, 1), 1_000: (7, 8)}


def test_a_refusal_is_left_alone() -> None:
    body = _body("02" + "00120000000500", error="002a")
    assert k18.splice_api_keys(body, 3, TELEMETRY) is body
    assert k18.splice_api_keys(b"\x00\x2a", 3, TELEMETRY) == b"\x00\x2a"


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b"", 3),
        (b"\x00", 3),
        (b"\x00\x00", 3),
        (b"\x00\x00\x02\x00\x12\x00\x00\x00\x05", 3),
        (b"\x00\x00\x02\x00\x12\x00\x00\x00\x05\x01", 3),
        (b"\x00\x00\xff\xff\xff\xff\x0f\x00\x12\x00\x00\x00\x05\x00", 3),
        (b"\x00\x00\x7f\xff\xff\xff\x00\x12\x00\x00\x00\x05", 0),
        (b"\x00\x00\xff\xff\xff\xfe\x00\x12\x00\x00\x00\x05", 0),
    ],
)
def test_a_malformed_response_is_not_spliced(body: bytes, version: int) -> None:
    with pytest.raises(WireError):
        k18.splice_api_keys(body, version, TELEMETRY)
    with pytest.raises(WireError):
        k18.read_ranges(body, version, [18])
