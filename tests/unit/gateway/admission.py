"""Helpers for admission tests: settings, TLS clients, logged refusals."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, MutableMapping, MutableSequence
from typing import Any

from structlog.testing import capture_logs

from receiver.gateway.listeners.listener import Listener
from tests.testbed.scripted_broker import ScriptedBroker, produce_frame
from tests.unit.gateway.support import (
    Gate,
    connected,
    eventually,
    send,
)
from tests.unit.gateway.tls import Certificates, TlsPeer
from tests.unit.session.support import get_subscriptions, read_subscriptions

PROXIED: dict[str, Any] = {"proxy_protocol": {"from": ["127.0.0.1/32", "::1/128"]}}
ELSEWHERE = "127.0.0.2"


def ssl_settings(certificates: Certificates, **tls: object) -> dict[str, Any]:
    """Settings of an SSL listener."""
    return {"security_protocol": "SSL", "tls": certificates.server_settings(**tls)}


def verifying(certificates: Certificates, client_auth: str, **more: object) -> dict[str, Any]:
    """Settings of an SSL listener that looks at client certificates."""
    authority = {} if client_auth == "none" else {"client_ca_file": certificates.server.ca}
    return {**ssl_settings(certificates, client_auth=client_auth, **authority), **more}


@contextlib.asynccontextmanager
async def over_tls(
    listener: Listener, context: ssl.SSLContext, *, first: bytes = b""
) -> AsyncIterator[TlsPeer]:
    """A client whose handshake is over."""
    async with connected(listener) as client:
        await send(client, first)
        peer = TlsPeer(client, context)
        await peer.shake_hands()
        yield peer


async def is_served(peer: TlsPeer) -> bool:
    await peer.send(produce_frame(1, b"echo") + get_subscriptions())
    echoed = (await peer.receive_frame()).endswith(b"echo")
    return echoed and read_subscriptions(await peer.receive_frame()).error_code == 0


async def refusal(gate: Gate, listener: Listener, context: ssl.SSLContext) -> tuple[str, str]:
    """Connect over TLS in vain; the reason that is counted, and the problem that is logged."""
    entry = await refusal_line(gate, listener, context)
    return entry["reason"], entry["problem"]


async def refusal_line(gate: Gate, listener: Listener, context: ssl.SSLContext) -> MutableMapping[str, Any]:
    """Connect over TLS in vain; the log's line."""
    with capture_logs() as log:
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            async with over_tls(listener, context) as peer:
                await peer.receive(1)
        await eventually(lambda: bool(refusals(log)), "a refusal")
    (entry,) = refusals(log)
    assert gate.value("connections_refused_total", listener="CLIENT", reason=entry["reason"]) == 1
    assert nobody_is_counted(gate)
    return entry


def nobody_is_counted(gate: Gate) -> bool:
    limits = gate.limits
    return not (limits._sources._connections or limits._principals._connections or limits._principal_of)


def asked(broker: ScriptedBroker) -> int:
    """How many connections the broker got beside the probe's, which need not have come yet."""
    return max(0, len(broker.peers) - 1)


def refusals(log: MutableSequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in log if line["event"] == "connection refused"]
