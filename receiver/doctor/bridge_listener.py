"""Asks the listener for bridges of the running receiver, up to the Challenge.

The probe proves nothing to the receiver, so that no bridge seems to join.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Final

from receiver.bridge import frames
from receiver.bridge.frames import BRIDGE_ID_BYTES, LENGTH_BYTES, NONCE_BYTES, FrameError, FrameType, Hello
from receiver.doctor.findings import Area, Finding, failed, ok, unknown
from receiver.doctor.limits import PROBE_S
from receiver.doctor.rest_api import Access, pinned_context
from receiver.settings.bridge import BridgeSettings
from receiver.settings.socket_path import SocketPath

#: The longest answer to a Hello is a Refused.
_MAX_ANSWER_BYTES: Final = 1024


async def bridge_listener_finding(settings: BridgeSettings, access: Access) -> Finding:
    """Return whether bridges reach the running receiver."""
    subject = f"bridge.bind {settings.bind}"
    if isinstance(settings.bind, SocketPath):
        if access.host is not None:
            seen, fix = "a Unix socket of another machine", "run doctor on the receiver's machine"
            return unknown(Area.LISTENER, "bridge", subject, seen, fix)
    elif not settings.bind.port:
        seen = "the system chooses its port, which the configuration does not tell"
        return unknown(Area.LISTENER, "bridge", subject, seen, "give bridge.bind a port")
    fix = "look at the receiver's log, and compare its bridge.bind and bridge.tls with this configuration"
    try:
        async with asyncio.timeout(PROBE_S):
            version = await _ask(settings, access)
    except TimeoutError:
        return failed(Area.LISTENER, "bridge", subject, f"no answer within {PROBE_S:g} s", fix)
    except ssl.SSLCertVerificationError as error:
        return failed(Area.LISTENER, "bridge", subject, f"TLS: {error.verify_message}", fix)
    except (OSError, EOFError, FrameError) as error:
        seen = f"bridges get no answer: {error}"[:300]
        return failed(Area.LISTENER, "bridge", subject, seen, fix)
    transport = "without TLS" if settings.tls is None else "with TLS"
    return ok(Area.LISTENER, "bridge", subject, f"answers bridges {transport}, protocol version {version}")


async def _ask(settings: BridgeSettings, access: Access) -> int:
    """Return the version of the protocol that the receiver chooses.

    Raises:
        OSError, EOFError: The receiver can't be reached, or ends the connection.
        FrameError: The answer is no Challenge.
    """
    if isinstance(settings.bind, SocketPath):
        reader, writer = await asyncio.open_unix_connection(str(settings.bind.path))
    else:
        address = access.reached(settings.bind)
        context = None if settings.tls is None else pinned_context(settings.tls, access)
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    try:
        writer.write(frames.frame(frames.encode_hello(_hello())))
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if not 0 < length <= _MAX_ANSWER_BYTES:
            raise FrameError(f"a frame of {length} bytes is not from 1 to {_MAX_ANSWER_BYTES}")
        answer = await reader.readexactly(length)
    finally:
        writer.transport.abort()
    if answer[0] == FrameType.REFUSED:
        raise FrameError(f"refused: {frames.decode_refused(answer)}")
    if answer[0] != FrameType.CHALLENGE:
        raise FrameError(f"a frame of type {answer[0]} is no Challenge")
    return frames.decode_challenge(answer).version


def _hello() -> Hello:
    return Hello(
        min_version=frames.VERSION,
        max_version=frames.VERSION,
        bridge_id=os.urandom(BRIDGE_ID_BYTES),
        nonce=os.urandom(NONCE_BYTES),
        node_id=-1,
        cluster_id="",
        software_version="doctor",
    )
