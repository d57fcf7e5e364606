"""Whether bridges reach the running receiver, by a Hello of doctor's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from receiver.doctor.bridge_listener import bridge_listener_finding
from receiver.doctor.findings import Finding, State
from receiver.doctor.rest_api import Access
from receiver.settings.bridge import BridgeSettings
from tests.testbed.certificates import CertificateAuthority, CertificateFiles
from tests.testbed.ports import LOOPBACK, free_port
from tests.unit.bridge.test_listener import Receiver
from tests.unit.gateway.support import on_loop


def served(folder: Path, shown: CertificateFiles | None, expected: CertificateFiles | None) -> Finding:
    """Ask a receiver that shows a certificate while the configuration names another one."""

    def tls(files: CertificateFiles | None) -> dict[str, Any]:
        return {} if files is None else {"tls": {"cert_file": str(files.chain), "key_file": str(files.key)}}

    async def ask() -> Finding:
        receiver = Receiver(folder, **tls(shown))
        receiver.listener.start()
        try:
            settings = {"bind": f"{LOOPBACK}:{receiver.port}", "token": {"file": str(receiver.token)}}
            configured = BridgeSettings.model_validate(settings | tls(expected))
            finding = await bridge_listener_finding(configured, Access())
            assert receiver.counted("connections") == 0
            return finding
        finally:
            await receiver.listener.stop()

    return on_loop(ask())


def issued(folder: Path, name: str) -> CertificateFiles:
    return CertificateAuthority().issue(dns_names=["bridge.example"]).write(folder, name)


@pytest.mark.parametrize("tls", [False, True])
def test_a_receiver_answers_and_counts_no_bridge(tls: bool, tmp_path: Path) -> None:
    files = issued(tmp_path, "server") if tls else None
    finding = served(tmp_path, files, files)
    transport = "with TLS" if tls else "without TLS"
    assert (finding.state, finding.seen) == (State.OK, f"answers bridges {transport}, protocol version 1")


def test_a_receiver_with_another_certificate(tmp_path: Path) -> None:
    finding = served(tmp_path, issued(tmp_path, "shown"), issued(tmp_path, "expected"))
    assert (finding.state, finding.seen[:5]) == (State.FAILED, "TLS: ")


def test_a_receiver_without_tls(tmp_path: Path) -> None:
    finding = served(tmp_path, None, issued(tmp_path, "expected"))
    assert finding.state is State.FAILED


def test_what_is_no_receiver(tmp_path: Path) -> None:
    async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def state(bind: str, access: Access | None = None) -> State:
        settings = BridgeSettings.model_validate({"bind": bind, "token": {"file": str(tmp_path / "token")}})
        return (await bridge_listener_finding(settings, access or Access())).state

    async def ask() -> None:
        assert await state(f"{LOOPBACK}:{free_port()}") is State.FAILED
        assert await state(f"unix:{tmp_path}/bridge.sock") is State.FAILED
        assert await state(f"unix:{tmp_path}/bridge.sock", Access(host="example.org")) is State.UNKNOWN
        assert await state(f"{LOOPBACK}:0") is State.UNKNOWN
        async with await asyncio.start_server(web, LOOPBACK, 0) as server:
            assert await state(f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}") is State.FAILED

    on_loop(ask())
