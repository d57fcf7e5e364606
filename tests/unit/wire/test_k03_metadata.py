"""Metadata for no topics, in every version, and the cluster id in its answer."""

from __future__ import annotations

import pytest

from receiver.wire import k03_metadata
from receiver.wire.errors import WireError
from receiver.wire.primitives import Reader

REQUESTS = {
    1: "00000000",
    2: "00000000",
    3: "00000000",
    4: "00000000" + "00",
    7: "00000000" + "00",
    8: "00000000" + "00" + "00" + "00",
    9: "01" + "00" + "00" + "00" + "00",
    10: "01" + "00" + "00" + "00" + "00",
    11: "01" + "00" + "00" + "00",
    12: "01" + "00" + "00" + "00",
    13: "01" + "00" + "00" + "00",
}

PLAIN_BROKER = "00000001" + "00016a" + "00002384"  # node 1, host "j", port 9092
COMPACT_BROKER = "00000001" + "026a" + "00002384"

RESPONSES = {
    2: ("00000001" + PLAIN_BROKER + "ffff" + "000178" + "00000001" + "00000000", "x"),
    3: ("00000000" + "00000001" + PLAIN_BROKER + "000172" + "000178" + "00000001" + "00000000", "x"),
    8: ("00000000" + "00000000" + "ffff" + "00000001" + "00000000" + "80000000", None),
    9: (
        "00000000" + "02" + COMPACT_BROKER + "00" + "00" + "0278" + "00000001" + "01" + "80000000" + "00",
        "x",
    ),
    12: ("00000000" + "02" + COMPACT_BROKER + "0272" + "01070162" + "0278" + "00000001" + "01" + "00", "x"),
    13: ("00000000" + "01" + "00" + "ffffffff" + "01" + "0081" + "00", None),
}


@pytest.mark.parametrize(("version", "body"), REQUESTS.items())
def test_request(version: int, body: str) -> None:
    assert k03_metadata.encode_no_topics_request(version).hex() == body


@pytest.mark.parametrize("version", RESPONSES)
def test_cluster_id(version: int) -> None:
    body, cluster_id = RESPONSES[version]
    assert k03_metadata.decode_cluster(Reader(bytes.fromhex(body)), version).id == cluster_id


def test_version_1_has_no_cluster_id() -> None:
    body = bytes.fromhex("00000001" + PLAIN_BROKER + "ffff" + "00000001" + "00000000")
    assert k03_metadata.decode_cluster(Reader(body), 1).id is None


def test_an_impossible_count_of_brokers_is_an_error() -> None:
    with pytest.raises(WireError, match=r"expected Brokers .* at offset 4, found a count of 2147483647"):
        k03_metadata.decode_cluster(Reader(bytes.fromhex("00000000" + "7fffffff") + bytes(100)), 8)


@pytest.mark.parametrize(("version", "count"), [(8, "00000009"), (9, "0b")])
def test_a_count_of_more_brokers_than_fit_is_an_error(version: int, count: str) -> None:
    with pytest.raises(WireError, match=r"Brokers .a count of at most [89] items"):
        k03_metadata.is_error(Reader(bytes.fromhex("00000000" + count) + bytes(107)), version)


@pytest.mark.parametrize("version", [-1, 0, 14])
def test_other_versions(version: int) -> None:
    with pytest.raises(ValueError, match=f"Metadata version {version} is not one of 1 to 13"):
        k03_metadata.encode_no_topics_request(version)
    with pytest.raises(ValueError, match=f"Metadata version {version} is not one of 1 to 13"):
        k03_metadata.decode_cluster(Reader(b""), version)
    with pytest.raises(ValueError, match=f"Metadata version {version} is not one of 1 to 13"):
        k03_metadata.is_error(Reader(b""), version)


#: What Kafka 4.4 answers between SaslHandshake and the end of authentication (ILLEGAL_SASL_STATE).
ERRORS = {
    1: "00000000" + "ffffffff" + "00000000",
    2: "00000000" + "ffff" + "ffffffff" + "00000000",
    9: "00000000" + "01" + "00" + "ffffffff" + "01" + "80000000" + "00",
    13: "00000000" + "01" + "00" + "ffffffff" + "01" + "0022" + "00",
}


@pytest.mark.parametrize(("version", "body"), ERRORS.items())
def test_an_error_names_neither_a_broker_nor_a_cluster(version: int, body: str) -> None:
    assert k03_metadata.is_error(Reader(bytes.fromhex(body)), version)


@pytest.mark.parametrize("version", [version for version, (_, cluster_id) in RESPONSES.items() if cluster_id])
def test_an_answer_is_no_error(version: int) -> None:
    body, _ = RESPONSES[version]
    assert not k03_metadata.is_error(Reader(bytes.fromhex(body)), version)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (2, "00000000" + "000178" + "ffffffff" + "00000000"),
        (12, "00000000" + "01" + "0278" + "ffffffff" + "01" + "00"),
    ],
)
def test_a_broker_that_knows_of_no_broker_yet_is_no_error(version: int, body: str) -> None:
    assert not k03_metadata.is_error(Reader(bytes.fromhex(body)), version)
