"""The type of network addresses in settings: ``host:port``, IPv6 in brackets."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from receiver.hosts import parse_host
from receiver.numbers import whole_number
from receiver.settings.text_type import TextType

_EXPECTED = "expected host:port, for example 127.0.0.1:19092"
_MOST_ADDRESSES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort(TextType):
    """An address to bind or to connect to."""

    EXPECTED = _EXPECTED
    PATTERN = "^.+:[0-9]{1,5}$"

    #: A name, an IPv4 address, or an IPv6 address without brackets.
    host: str
    #: 0 to 65535; with 0 the system chooses the port to bind.
    port: int

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Parse ``host:port``, for example ``127.0.0.1:19092``, or raise ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not host:
            raise ValueError(_EXPECTED)
        number = whole_number(port, 65_535)
        if number is None:
            raise ValueError(f"the port must be a number from 0 to 65535; {_EXPECTED}")
        if ":" in host and not host.startswith("["):
            raise ValueError("write an IPv6 address in brackets, for example [::1]:19092")
        try:
            return cls(host=parse_host(host), port=number)
        except ValueError as error:
            raise ValueError(f"{error}; {_EXPECTED}") from None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it: 127.0.0.0/8, ::1 or ``localhost``."""
        address = self._ip_address()
        return address.is_loopback if address else self.host.lower() == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of this machine: 0.0.0.0 or ::."""
        address = self._ip_address()
        return address is not None and address.is_unspecified

    def _ip_address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class HostPorts(TextType):
    """Addresses to connect to, of which the first that can be reached is used."""

    EXPECTED = _EXPECTED
    PATTERN = "^.+:[0-9]{1,5}( *, *.+:[0-9]{1,5})*$"

    addresses: tuple[HostPort, ...]

    @classmethod
    def parse(cls, text: str) -> HostPorts:
        """Parse ``host:port,host:port``, or raise ValueError."""
        addresses = tuple(HostPort.parse(part.strip()) for part in text.split(","))
        if len(set(addresses)) < len(addresses):
            raise ValueError("an address is given twice")
        if len(addresses) > _MOST_ADDRESSES:
            raise ValueError(f"{len(addresses)} addresses are more than {_MOST_ADDRESSES}")
        return cls(addresses)

    def __str__(self) -> str:
        return ",".join(str(address) for address in self.addresses)

    def __iter__(self) -> Iterator[HostPort]:
        return iter(self.addresses)

    def __len__(self) -> int:
        return len(self.addresses)
