"""Runs the test kit until it is stopped, and judges what it recorded."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from receiver.testkit.endpoint import Endpoint, EndpointOptions
from receiver.testkit.judge import ClientJudgement, judge
from receiver.testkit.script import Script


def judged(endpoint: Endpoint, wanted: Callable[[str], bool] = lambda _: True) -> list[ClientJudgement]:
    """Judge what an endpoint has recorded so far."""
    kit = endpoint.kit
    return judge(
        kit.connections,
        ended=endpoint.now,
        brokers=len(endpoint.addresses),
        script=[step.name for step in kit.script.steps],
        wanted=wanted,
    )


async def run(
    script: Script,
    options: EndpointOptions,
    *,
    seconds: float | None,
    started: Callable[[Endpoint], None],
    wanted: Callable[[str], bool] = lambda _: True,
) -> list[ClientJudgement]:
    """Serve until SIGINT, SIGTERM or the end of the time, and judge every client.

    Args:
        seconds: How long; None for no end.
        started: Called once, when clients can connect.
        wanted: Says of a client id whether to judge the client.

    Raises:
        OSError: An address can't be bound.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with Endpoint(script, options) as endpoint:
        started(endpoint)
        try:
            async with asyncio.timeout(seconds):
                await stopped.wait()
        except TimeoutError:
            pass
        return judged(endpoint, wanted)
