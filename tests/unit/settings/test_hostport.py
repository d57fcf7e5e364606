"""Parsing of host:port."""

import pytest

from receiver.settings.hostport import HostPort


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:19092", "127.0.0.1", 19092),
        ("localhost:0", "localhost", 0),
        ("broker-1.internal:9092", "broker-1.internal", 9092),
        ("kafka_1:65535", "kafka_1", 65535),
        ("[::1]:8642", "::1", 8642),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
    ],
)
def test_an_address_is_parsed_and_formatted(text: str, host: str, port: int) -> None:
    address = HostPort.parse(text)
    assert (address.host, address.port) == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        ":9092",
        "localhost",
        "localhost:",
        "localhost:http",
        "localhost:65536",
        "localhost:-1",
        "localhost:\N{FULLWIDTH DIGIT ONE}",
        "::1:9092",
        "[::1]",
        "[::g]:1",
        "[127.0.0.1]:1",
        "256.0.0.1:1",
        "1.2.3:1",
        "a b:1",
        "http://localhost:1",
        "-a:1",
        "a..b:1",
        "a" * 300 + ":1",
        " localhost:1",
    ],
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|IPv6"):
        HostPort.parse(text)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_loopback_is_this_machine(text: str) -> None:
    assert HostPort.parse(text).is_loopback
    assert not HostPort.parse(text).is_wildcard


@pytest.mark.parametrize("text", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host:1"])
def test_another_address_is_not_loopback(text: str) -> None:
    assert not HostPort.parse(text).is_loopback
    assert HostPort.parse(text).is_wildcard is (text in ("0.0.0.0:1", "[::]:1"))
