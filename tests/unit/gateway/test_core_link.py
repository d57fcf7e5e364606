"""How a relay's calls leave for the core."""

from __future__ import annotations

import select
import socket

import pytest

from receiver.brokers.delegation_tokens import DelegationTokens
from receiver.gateway import core_link
from receiver.gateway.core_link import CoreLink
from receiver.link.messages import Answer, Call, Statistics, decode_relay_message, encode
from receiver.metrics import RelayMetrics
from receiver.session.call import OpenCall
from receiver.session.exchange import Request
from receiver.session.exchanges.config_requests import ConfigExchange, _Parts
from receiver.session.exchanges.telemetry import TelemetryExchange
from receiver.settings.limits import LimitsSettings
from receiver.telemetry.control.limits import Limits
from receiver.traffic.table import RelayTable, Slot, new_table, private_slot
from receiver.wire import api_keys, k74_list_config_resources
from receiver.wire.headers import RequestHeader, decode_request_header
from receiver.wire.primitives import Reader
from tests.unit.gateway.support import eventually, on_loop
from tests.unit.session.support import Clock, get_subscriptions, read_subscriptions
from tests.unit.telemetry.parts import connection


def get(number: int) -> OpenCall:
    """A client's request for its subscriptions."""
    data = get_subscriptions(correlation_id=number)[4:]
    reader = Reader(data)
    header = decode_request_header(reader)
    return TelemetryExchange(Request(header=header, client_id=None, data=data, reader=reader), None, 0)


def config_call(api_key: int, version: int, own: bytes) -> OpenCall:
    """A request about client metrics resources that the broker allows."""
    header = RequestHeader(api_key=api_key, api_version=version, correlation_id=1)
    return ConfigExchange(_Parts(header=header, own=own, asked=(), others=None, question=(0, 0, b"")))


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
            traffic=RelayTable(new_table(64)),
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

    def call(self, number: int) -> list[Answer]:
        """Have the core answer a get; the answer comes into the list."""
        answers: list[Answer] = []
        self.link.call(number, get(number), answers.append)
        return answers

    def call_configs(self, number: int) -> list[Answer]:
        """Have the core list resources; the answer comes into the list."""
        answers: list[Answer] = []
        self.link.call(number, config_call(api_keys.LIST_CONFIG_RESOURCES, 0, b""), answers.append)
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
            if isinstance(message, Call):
                numbers.append(message.number)
            start = end
        return numbers


def test_a_call_leaves_at_once_while_the_core_is_idle_and_else_behind_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_link, "_CALLS_WINDOW_S", 3600.0)

    async def main() -> None:
        core = Core()
        answers = core.call(1)
        assert core.calls() == [1]
        core.call(2)
        core.call(3)
        assert core.calls() == []
        core.answer(Answer(1, b"the core is idle again"))
        await eventually(lambda: bool(answers), "the answer")
        assert core.calls() == [2, 3]
        core.call(4)
        core.answer(Answer(2, b"the core has one more call"))
        core.answer(Answer(3, b"and is idle now"))
        await eventually(core.has_more, "the held call")
        assert core.calls() == [4]
        core.link.close()
        core.end.close()

    on_loop(main())


def test_a_call_does_not_wait_long_for_the_answers_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_link, "_CALLS_WINDOW_S", 0.001)

    async def main() -> None:
        core = Core()
        for number in (1, 2, 3):
            core.call(number)
        assert core.calls() == [1]
        await eventually(core.has_more, "the held calls")
        assert core.calls() == [2, 3]
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
        core.answer(Answer(1, b"the answer"))
        await eventually(lambda: bool(answers), "the answer")
        assert answers == [Answer(1, b"the answer")]
        core.link.close()
        core.end.close()

    on_loop(main())


def test_a_call_about_configs_fails_without_a_core() -> None:
    async def main() -> None:
        core = Core()
        before = core.call_configs(1)
        core.link.close()
        after = core.call_configs(2)
        assert [error_of(item) for item in (*before, *after)] == [7, 7]
        core.end.close()

    on_loop(main())


class Connection:
    """A connection that notes why the core ended it."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    @property
    def slot(self) -> Slot:
        return private_slot()

    def ended_by_core(self, reason: str) -> None:
        self.ended.append(reason)


def test_an_answer_that_fails_ends_its_connection_and_no_other_nor_the_link() -> None:
    """A body that can't be read, and a reply that raises, in every way an answer comes."""

    def raises(_: Answer) -> None:
        raise RuntimeError("no answer can be written")

    async def main() -> None:
        core = Core()
        connections = {number: Connection() for number in range(1, 6)}
        for number, item in connections.items():
            core.link.opened(number, connection(id=f"test-{number}"), item)
        for number, own in ((1, b"\0\0\0\1\x10\0\1\xff"), (2, b"")):
            core.link.call(number, config_call(api_keys.DESCRIBE_CONFIGS, 1, own), raises)
        good = core.call_configs(3)
        core.link.call(4, get(4), raises)
        core.attach_again()  # all calls of the link before fail
        assert error_of(good[0]) == 7
        assert [bool(item.ended) for item in connections.values()] == [True, True, False, True, False]
        # The new link works, also after an answer to a connection that fails.
        core.calls()
        core.link.call(4, get(4), raises)
        answers = core.call_configs(5)
        core.answer(Answer(5, b"a"))
        core.answer(Answer(6, b"b"))
        await eventually(lambda: bool(answers), "the next answer")
        assert answers[0].frame == b"b"
        assert connections[4].ended == ["internal_error"] * 2
        core.link.close()
        core.end.close()

    on_loop(main())


def test_each_call_fails_in_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the core's answer is the kind's, and a slow disk is no reason to throttle."""
    monkeypatch.setattr(TelemetryExchange, "answer_within_s", 0.02)
    monkeypatch.setattr(ConfigExchange, "answer_within_s", 0.01)

    async def main() -> None:
        core = Core()
        configs, telemetry = core.call_configs(1), core.call(2)
        core.clock.now += 0.015
        await eventually(lambda: bool(configs), "the end of the wait for configs")
        assert (error_of(configs[0]), telemetry) == (7, [])
        core.answer(Answer(1, b"too late"))  # it changes nothing
        telemetry = core.call(3)
        assert telemetry == []
        core.clock.now += 0.025
        await eventually(lambda: bool(telemetry), "the end of the wait for telemetry")
        assert read_subscriptions(telemetry[0].frame[4:], 3).error_code == 89
        # Until the core has answered, it gets no telemetry.
        assert [len(core.call(number)) for number in (4, 5)] == [1, 1]
        configs = core.call_configs(6)
        assert configs == []
        for token in (2, 3):
            core.answer(Answer(token, b"late"))
        core.answer(Answer(4, b"in time"))
        await eventually(lambda: bool(configs), "the next answer")
        assert configs[0].frame == b"in time"
        assert core.call(7) == []
        core.link.close()
        core.end.close()

    on_loop(main())
