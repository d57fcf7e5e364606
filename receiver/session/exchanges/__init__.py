"""The kinds of requests that sessions read, one module each.

A new kind is a module with a :class:`~receiver.session.exchange.Kind`, and its line in
:data:`KINDS`. :mod:`~receiver.session.exchanges.refusal` and
:mod:`~receiver.session.exchanges.addresses` are for requests of any kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from receiver.brokers.upstream import Upstream
from receiver.session.exchange import Kind
from receiver.session.exchanges import (
    api_versions,
    config_requests,
    delegation_tokens,
    offset_delete,
    sasl,
    telemetry,
)

__all__ = ["BY_KEY", "KINDS", "LONGEST", "watched_keys"]

KINDS: Final[tuple[Kind, ...]] = (
    api_versions.KIND,
    telemetry.KIND,
    sasl.HANDSHAKE,
    sasl.AUTHENTICATE,
    delegation_tokens.KIND,
    config_requests.KIND,
    offset_delete.KIND,
)

#: The kind of each API key that any session reads.
BY_KEY: Final[Mapping[int, Kind]] = MappingProxyType({key: kind for kind in KINDS for key in kind.keys})

#: The longest request that is read, by API key; a longer one passes.
LONGEST: Final[Mapping[int, int]] = MappingProxyType(
    {key: longest for kind in KINDS for key, longest in kind.longest.items()}
)


def watched_keys(upstream: Upstream) -> frozenset[int]:
    """Return the API keys of the requests that a new session reads."""
    keys = (kind.keys if kind.watched is None else kind.watched(upstream) for kind in KINDS)
    return frozenset[int]().union(*keys)
