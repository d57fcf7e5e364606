"""The sockets of the test kit: what it says of its own lateness."""

from __future__ import annotations

import asyncio

from receiver.settings.hostport import HostPort
from receiver.testkit.endpoint import Endpoint, EndpointOptions, Lateness
from receiver.testkit.recording import Request
from receiver.testkit.script import load_script
from receiver.wire import api_keys
from receiver.wire.headers import RequestHeader, encode_request_header
from tests.testbed.ports import LOOPBACK


def test_lateness_is_the_greatest_of_the_last_second() -> None:
    lateness = Lateness(0.0)
    lateness.look(0.02)
    assert lateness.at(0.03) == 0.0
    assert round(lateness.at(0.5), 2) == 0.46
    lateness.look(0.5)
    lateness.look(0.52)
    assert round(lateness.at(0.53), 2) == 0.46
    for look in range(51):
        lateness.look(0.54 + look * 0.02)
    assert round(lateness.at(1.55), 6) == 0.0


async def late_request() -> Request:
    """A request that came while the kit was busy."""
    options = EndpointOptions(bind=(HostPort(host=LOOPBACK, port=0),))
    frame = encode_request_header(RequestHeader(api_keys.METADATA, 1, 7, "me")) + bytes(4)
    async with Endpoint(load_script("default"), options) as endpoint:
        reader, writer = await asyncio.open_connection(LOOPBACK, endpoint.addresses[0].port)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        until = endpoint.now + 0.3
        while endpoint.now < until:  # the kit is busy
            pass
        await reader.readexactly(4)
        (request,) = endpoint.kit.connections[0].requests
        writer.close()
    return request


def test_a_request_that_waited_for_the_kit_says_so() -> None:
    request = asyncio.run(late_request())
    assert request.late >= 0.2
    assert request.earliest <= request.at - 0.2
