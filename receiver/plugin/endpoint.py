"""Checks of the addresses in a plugin's settings."""

from __future__ import annotations

from receiver.hosts import parse_host
from receiver.numbers import whole_number


def check_host_port(text: str, *, needs_port: bool = True) -> None:
    """Check ``host:port``, with an IPv6 address in brackets.

    Raise ValueError with the fix.

    The port is 1 to 65535. It may be left out if ``needs_port`` is False.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        if needs_port:
            raise ValueError("has no port; write for example 127.0.0.1:9092")
        parse_host(text)
        return
    if not whole_number(port, 65_535):
        raise ValueError("the port must be a number from 1 to 65535")
    parse_host(host)
