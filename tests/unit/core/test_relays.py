"""The core counts what relays report."""

from __future__ import annotations

import socket

from receiver.link.messages import PROTOCOL_VERSION, Hello, RelayMessage, Report, TokenOwner, encode
from tests.unit.gateway.support import Gate, eventually, on_loop


class _Link:
    """A relay's end of a link to a core."""

    def __init__(self, gate: Gate, relay_id: str) -> None:
        self.end, theirs = socket.socketpair()
        self.end.setblocking(False)
        gate.relays.attach(relay_id, theirs)
        self.send(Hello(PROTOCOL_VERSION, "relay-1"))

    def send(self, message: RelayMessage) -> None:
        data = encode(message)
        self.end.sendall(len(data).to_bytes(4, "big") + data)


def report(listener: str, number: int) -> Report:
    """A report of one opened connection."""
    return Report((), (("connection_opened", (listener,), 1.0),), number)


def test_a_report_that_comes_again_over_another_link_counts_once() -> None:
    async def main() -> None:
        gate = Gate()

        def counted(listener: str) -> float:
            return gate.value("connections_opened_total", listener=listener)

        first = _Link(gate, "one")
        first.send(report("A", 1))
        await eventually(lambda: counted("A") == 1, "the first report")
        again = _Link(gate, "one")  # the first broke before the core's answer arrived
        again.send(report("A", 1))
        again.send(report("B", 2))
        await eventually(lambda: counted("B") == 1, "the second report")
        assert counted("A") == 1
        other = _Link(gate, "other")
        other.send(report("A", 2))
        await eventually(lambda: counted("A") == 2, "another relay's report")
        for link in (first, again, other):
            link.end.close()

    on_loop(main())


def test_a_relay_that_has_just_died_disturbs_no_other_one() -> None:
    async def main() -> None:
        gate = Gate()
        dead, alive = _Link(gate, "dead"), _Link(gate, "alive")
        await eventually(lambda: gate.relays.connected == 3, "all relays")
        dead.end.close()
        # The core learns it by sending.
        await gate.relays.refresh_statistics()
        assert gate.relays.connected == 2

        another, last = _Link(gate, "another"), _Link(gate, "last")
        await eventually(lambda: gate.relays.connected == 4, "the relays after it")
        another.end.close()
        alive.send(TokenOwner("token", "User:owner"))
        await eventually(lambda: gate.relays.token_owners == {"token": "User:owner"}, "the token's owner")
        await eventually(lambda: gate.relays.connected == 3, "the end of the link")
        for link in (alive, last):
            link.end.close()

    on_loop(main())
