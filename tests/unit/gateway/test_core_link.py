"""How a relay's calls leave for the core."""

from __future__ import annotations

import select
import socket

import pytest

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.gateway import core_link
from receiver.gateway.core_link import CoreLink
from receiver.link.messages import Answer, Call, ConfigRequest, Statistics, decode_relay_message, encode
from receiver.metrics import RelayMetrics
from receiver.session.effects import ConfigCall, TelemetryCall
from receiver.settings.limits import LimitsSettings
from receiver.telemetry.control.limits import Limits
from receiver.wire import api_keys, k74_list_config_resources
from receiver.wire.headers import RequestHeader
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.uuid import ZERO_UUID
from tests.unit.gateway.support import eventually, on_loop
from tests.unit.session.support import Clock
from tests.unit.telemetry.parts import connection


class Core:
    """The core's end of a relay's link."""

    def __init__(self) -> None:
        self.end, theirs = self.pair()
        self.clock = Clock()
        self.tokens = DelegationTokens()
        self.link = CoreLink(
            "test",
            process="relay-1",
            brokers=dict,
            limits=Limits(LimitsSettings()),
            metrics=RelayMetrics(),
            tokens=self.tokens,
            clock=self.clock,
            problems=list,
            statistics=lambda request: Statistics(request, 0.0, 0, 0.0, 0, (), 0),
            count_traffic=lambda: None,
            ask_for_link=lambda: None,
        )
        self.link.attach(theirs)

    @staticmethod
    def pair() -> tuple[socket.socket, socket.socket]:
        """The core's end of a link, and the relay's."""
        end, theirs = socket.socketpair()
        end.setblocking(False)
        return end, theirs

    def attach_again(self) -> None:
        """Give the relay a link to a new core."""
        self.end.close()
        self.end, theirs = self.pair()
        self.link.attach(theirs)

    def call(self, number: int) -> None:
        self.link.call(number, self.telemetry_call(number), lambda _: None)

    @staticmethod
    def telemetry_call(number: int) -> TelemetryCall:
        """A client's request for its subscriptions."""
        header = RequestHeader(
            api_key=api_keys.GET_TELEMETRY_SUBSCRIPTIONS, api_version=0, correlation_id=number, client_id="c"
        )
        return TelemetryCall(number, header, GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID))

    def call_configs(self, number: int) -> list[Answer]:
        """Have the core list resources; the answer comes into the list."""
        answers: list[Answer] = []
        header = RequestHeader(api_key=api_keys.LIST_CONFIG_RESOURCES, api_version=0, correlation_id=number)
        self.link.call_configs(number, ConfigCall(number, header, b""), answers.append)
        return answers

    def answer(self, message: Answer) -> None:
        """Send an answer."""
        data = encode(message)
        self.end.sendall(len(data).to_bytes(4, "big") + data)

    def has_more(self) -> bool:
        """Whether something has come that was not read."""
        return bool(select.select([self.end], [], [], 0)[0])

    def calls(self) -> list[int]:
        """Read the connections' numbers of the calls that have come by now."""
        try:
            data = self.end.recv(65_536)
        except BlockingIOError:
            return []
        numbers, start = [], 0
        while start < len(data):
            end = start + 4 + int.from_bytes(data[start : start + 4], "big")
            message = decode_relay_message(memoryview(data)[start + 4 : end])
            if isinstance(message, Call | ConfigRequest):
                numbers.append(message.number)
            start = end
        return numbers


def test_a_call_after_a_pause_leaves_at_once_and_those_behind_it_together() -> None:
    async def main() -> None:
        core = Core()
        core.call(1)
        assert core.calls() == [1]
        core.call(2)
        core.call(3)
        assert core.calls() == []
        await eventually(core.has_more, "the held calls")
        assert core.calls() == [2, 3]
        core.clock.now += 1.0
        core.call(4)
        assert core.calls() == [4]
        core.link.close()
        core.end.close()

    on_loop(main())


def test_held_calls_go_with_another_message_and_in_order() -> None:
    async def main() -> None:
        core = Core()
        core.call(1)
        core.call(2)
        core.tokens.on_learned("token", "User:ann")
        assert core.calls() == [1, 2]
        core.link.close()
        core.end.close()

    on_loop(main())


def error_of(answer: Answer) -> int:
    """The error code of an answered list."""
    return k74_list_config_resources.decode_response(answer.frame[9:])[0]


def test_a_call_about_configs_waits_for_its_answer_and_holds_up_no_telemetry() -> None:
    async def main() -> None:
        core = Core()
        answers = core.call_configs(1)
        core.clock.now += 5.0
        core.call(2)
        assert core.calls() == [1, 2]
        assert answers == []
        core.answer(Answer(1, b"the answer", throttled=False))
        await eventually(lambda: bool(answers), "the answer")
        assert answers == [Answer(1, b"the answer", throttled=False)]
        core.link.close()
        core.end.close()

    on_loop(main())


def test_a_call_about_configs_fails_without_a_core() -> None:
    async def main() -> None:
        core = Core()
        before = core.call_configs(1)
        core.link.close()
        after = core.call_configs(2)
        assert [error_of(one) for one in (*before, *after)] == [7, 7]
        core.end.close()

    on_loop(main())


class Connection:
    """A connection that notes why the core ended it."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def ended_by_core(self, reason: str) -> None:
        self.ended.append(reason)


def test_an_answer_that_fails_ends_its_connection_and_no_other_nor_the_link() -> None:
    """A body that can't be read, and a reply that raises, in every way an answer comes."""

    def raises(_: Answer) -> None:
        raise RuntimeError("no answer can be written")

    async def main() -> None:
        core = Core()
        connections = {number: Connection() for number in range(1, 6)}
        for number, one in connections.items():
            core.link.opened(number, connection(id=f"test-{number}"), one)
        malformed = RequestHeader(api_key=api_keys.DESCRIBE_CONFIGS, api_version=1, correlation_id=1)
        core.link.call_configs(1, ConfigCall(1, malformed, b"\0\0\0\1\x10\0\1\xff"), lambda _: None)
        core.link.call_configs(2, ConfigCall(2, malformed, b""), raises)
        good = core.call_configs(3)
        core.link.call(4, core.telemetry_call(4), raises)
        core.attach_again()  # all calls of the link before fail
        assert error_of(good[0]) == 7
        assert [bool(one.ended) for one in connections.values()] == [True, True, False, True, False]
        # The new link works, also after an answer to a connection that fails.
        core.calls()
        core.link.call(4, core.telemetry_call(4), raises)
        answers = core.call_configs(5)
        core.answer(Answer(5, b"a", throttled=False))
        core.answer(Answer(6, b"b", throttled=False))
        await eventually(lambda: bool(answers), "the next answer")
        assert answers[0].frame == b"b"
        assert connections[4].ended == ["internal_error"] * 2
        core.link.close()
        core.end.close()

    on_loop(main())


def test_a_call_about_configs_fails_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_link, "CONFIGS_WITHIN_S", 0.01)

    async def main() -> None:
        core = Core()
        answers = core.call_configs(1)
        await eventually(lambda: bool(answers), "the end of the wait")
        assert error_of(answers[0]) == 7
        core.answer(Answer(1, b"too late", throttled=False))  # it changes nothing
        answers = core.call_configs(2)
        core.answer(Answer(2, b"in time", throttled=False))
        await eventually(lambda: bool(answers), "the next answer")
        assert answers[0].frame == b"in time"
        core.link.close()
        core.end.close()

    on_loop(main())
