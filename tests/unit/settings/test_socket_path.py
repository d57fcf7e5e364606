"""Parsing of unix:/path, and of either kind of address."""

from pathlib import Path

import pytest

from receiver.settings.hostport import HostPort
from receiver.settings.socket_path import SocketPath, parse_bind


@pytest.mark.parametrize("text", ["unix:/run/bridge.sock", "127.0.0.1:9714", "[::1]:9714"])
def test_an_address_is_parsed_and_formatted(text: str) -> None:
    found = parse_bind(text)
    assert isinstance(found, SocketPath if text.startswith("unix:") else HostPort)
    assert str(found) == text
    assert parse_bind(text) == found


@pytest.mark.parametrize(
    "text", ["unix:", "unix:run/bridge.sock", "unix:/run/\0", f"unix:/{'é' * 48}", "/run/bridge.sock"]
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|at most 95 bytes"):
        parse_bind(text)


def test_the_path_is_the_sockets_file() -> None:
    assert SocketPath.parse("unix:/run/a b.sock").path == Path("/run/a b.sock")
