"""Makes the soak's load: clients push numbered metrics and record which are accepted.

They are raw clients, because a real one does not report the answer to each push.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from typing import Self

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from receiver.wire.error_codes import ErrorCode
from receiver.wire.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from receiver.wire.uuid import Uuid
from tests.testbed.ports import LOOPBACK
from tests.unit.session.support import get_subscriptions, push, read_push, read_subscriptions

#: The metric that each push has, and the attribute of its data point that tells pushes apart.
METRIC = "soak.push"
NUMBER = "number"

_ANSWER_WITHIN_S = 5.0
_RECONNECT_S = 0.2
_ASK_AGAIN_S = 0.5


class NumberedClients:
    """Client instances that push at each interval, on a thread of their own.

    Args:
        port: Where the sidecar listens; it may be away for a while.
        clients: How many.

    Attributes:
        accepted: When each push was answered NONE, in seconds since the epoch, by its number.
        refused: Answers that were errors, by code.
    """

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        self._clients = clients
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="numbered-clients")
        self._ended = threading.Event()
        self.accepted: dict[str, float] = {}
        self.refused: dict[int, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop pushing; return after the last answer or its timeout."""
        self._ended.set()
        self._thread.join(2 * _ANSWER_WITHIN_S)

    async def _run(self) -> None:
        await asyncio.gather(*[self._client(number) for number in range(1, self._clients + 1)])

    async def _client(self, number: int) -> None:
        instance = Uuid(struct.pack(">QQ", 0x50AC, number))
        pushes = 0
        while not self._ended.is_set():
            try:
                reader, writer = await asyncio.open_connection(LOOPBACK, self._port)
            except OSError:
                await asyncio.sleep(_RECONNECT_S)
                continue
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                pushes = await self._pushing(instance, pushes, reader, writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _pushing(
        self, instance: Uuid, pushes: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        async def ask(request: bytes) -> bytes:
            writer.write(request)
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                return await reader.readexactly(length)

        async def subscribe() -> GetTelemetrySubscriptionsResponse:
            while True:
                answer = read_subscriptions(await ask(get_subscriptions(instance)))
                if answer.error_code == ErrorCode.NONE:
                    return answer
                await asyncio.sleep(_ASK_AGAIN_S)

        subscribed = await subscribe()
        while not self._ended.is_set():
            pushes += 1
            number = f"{instance.hex()}-{pushes}-{time.time_ns()}"
            code = read_push(await ask(push(instance, subscribed.subscription_id, _metrics(number))))
            if code == ErrorCode.NONE:
                self.accepted[number] = time.time()
            else:
                self.refused[code] = self.refused.get(code, 0) + 1
                if code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
                    subscribed = await subscribe()
            await asyncio.sleep(subscribed.push_interval_ms / 1000)
        return pushes


def _metrics(number: str) -> bytes:
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    metric = scope.metrics.add(name=METRIC)
    point = metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_int=1)
    point.attributes.add(key=NUMBER).value.string_value = number
    return metrics.SerializeToString()
