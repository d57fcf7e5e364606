"""How many Python calls a get and a push take, from the relay's socket to the queue of a plugin.

The relay, the link and the core run on one event loop, so that one profile sees all of them. Calls
are counted and no time is measured, so the counts are the same on each machine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

import receiver
from benchmarks.captured import JAVA_PRODUCER
from receiver.core import telemetry_calls
from receiver.gateway import core_link
from receiver.host.discovery import load_plugins
from receiver.host.host import PluginHost
from receiver.telemetry.compression import CODECS
from receiver.wire import k71_get_telemetry_subscriptions, k72_push_telemetry
from receiver.wire.api_keys import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from receiver.wire.error_codes import ErrorCode
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import RequestHeader, encode_request_header
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from receiver.wire.k72_push_telemetry import PushTelemetryRequest
from receiver.wire.primitives import Reader
from receiver.wire.uuid import ZERO_UUID, Uuid
from receiver.wire.walk import compiled
from tests.testbed.scripted_broker import Answers, framed, produce_frame
from tests.unit.gateway.support import Gate, Relayed, on_loop, receive_frame, relayed, send

_SOURCE = f"{Path(receiver.__file__).parent}/"

#: The turns of the event loop depend on how the kernel hands over the bytes.
_EXCEPT = ("event_loop.py", "turns.py")


class Calls:
    """The calls of the receiver's functions, by file and name."""

    def __init__(self) -> None:
        self.by_function: Counter[tuple[str, str]] = Counter()

    def __call__(self, called: FrameType, event: str, _: object) -> None:
        name = called.f_code.co_filename
        if event == "call" and name.startswith(_SOURCE) and not name.endswith(_EXCEPT):
            self.by_function[name.removeprefix(_SOURCE), called.f_code.co_qualname] += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


class Client:
    """A client that gets and pushes over one connection, and the broker behind it."""

    def __init__(self, wire: Relayed, gate: Gate) -> None:
        self._wire = wire
        self._gate = gate
        self._broker = Answers()
        self._instance: Uuid = ZERO_UUID
        self._subscription = 0
        self._requests = 0
        self.calls = Calls()  # of the latest request

    async def get(self, *, marker: bool = False) -> None:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._instance)
        body = k71_get_telemetry_subscriptions.encode_request(request, 0)
        answer = await self._ask(GET_TELEMETRY_SUBSCRIPTIONS, body, marker=marker)
        response = k71_get_telemetry_subscriptions.decode_response(answer, 0)
        assert response.error_code == ErrorCode.NONE
        self._instance, self._subscription = response.client_instance_id, response.subscription_id

    async def push(self, *, marker: bool = False) -> None:
        request = PushTelemetryRequest(
            client_instance_id=self._instance,
            subscription_id=self._subscription,
            terminating=False,
            compression_type=CODECS["zstd"],
            metrics=JAVA_PRODUCER.zstd(),
        )
        answer = await self._ask(PUSH_TELEMETRY, k72_push_telemetry.encode_request(request, 0), marker=marker)
        assert k72_push_telemetry.decode_response(answer, 0).error_code == ErrorCode.NONE

    async def produce_without_answer(self) -> None:
        """From now on each request needs a marker."""
        await send(self._wire.client, produce_frame(1, acks=0))
        await receive_frame(self._wire.broker)

    async def _ask(self, api_key: int, body: bytes, *, marker: bool) -> Reader:
        self._requests += 1
        self._gate.clock.now += 5.0
        header = RequestHeader(
            api_key=api_key, api_version=0, correlation_id=self._requests, client_id="a client"
        )
        request = frame(encode_request_header(header), body)
        self.calls = calls = Calls()
        with calls.counting():
            await send(self._wire.client, request)
        if marker:
            with calls.counting():
                question = await receive_frame(self._wire.broker)
            response = self._broker.to(question)
            assert response is not None
            with calls.counting():
                await send(self._wire.broker, framed(response))
        with calls.counting():
            answer = await receive_frame(self._wire.client)
        reader = Reader(answer)
        assert reader.int32("correlation id") == self._requests
        reader.tagged_fields("tagged fields")
        return reader


#: Requests of each kind; the first also fills the caches.
_TRIES: Final = 12
#: The most calls and the most files of each path. Raise them only for a reason.
MOST = {"get": (186, 34), "push": (262, 55), "push behind a marker": (388, 61)}


async def fewest(client: Client, ask: Callable[[], Awaitable[None]]) -> Calls:
    """Return the fewest calls of some requests: what arrives in pieces takes more."""
    counted = []
    for _ in range(_TRIES):
        await ask()
        counted.append(client.calls)
    return min(counted, key=lambda calls: calls.by_function.total())


@pytest.fixture(scope="module")
def paths() -> dict[str, Calls]:
    """The calls of each path, once the caches are warm."""
    counted: dict[str, Calls] = {}
    host = PluginHost(load_plugins([{"type": "console", "delivery": "memory"}]))

    async def main() -> None:
        gate = Gate(max_push_bytes=1 << 20, deliver=host.offer)
        async with relayed(gate) as wire:
            client = Client(wire, gate)
            await client.get(marker=True)
            counted["push"] = await fewest(client, client.push)
            counted["get"] = await fewest(client, client.get)
            await client.produce_without_answer()
            counted["push behind a marker"] = await fewest(client, lambda: client.push(marker=True))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(core_link, "_REPORT_EVERY_S", 3600.0)  # no report between two counts
        # No deadline ends a call, on any machine.
        patched.setattr(core_link, "_ASK_AFTER_S", 3600.0)
        patched.setattr(telemetry_calls, "_STORED_S", 3600.0)
        on_loop(main())
    return counted


@pytest.mark.skipif(compiled is None, reason="in Python, moving the bytes takes calls too")
@pytest.mark.parametrize("path", MOST)
def test_a_path_takes_few_calls(paths: dict[str, Calls], path: str) -> None:
    functions = paths[path].by_function
    calls, files = MOST[path]
    assert functions.total() <= calls, functions.most_common(20)
    assert len({file for file, _ in functions}) <= files


def test_a_push_is_read_once_and_only_a_queue_looks_up_its_address_block(paths: dict[str, Calls]) -> None:
    functions = paths["push"].by_function
    # The header by the relay, and the body by the core.
    assert functions["wire/headers.py", "decode_request_header"] == 1
    assert functions["wire/k72_push_telemetry.py", "decode_request"] == 1
    assert {name: count for (file, name), count in functions.items() if file.startswith("peers/sources")} == {
        "block_of": 1
    }
