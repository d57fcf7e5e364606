"""The scripted client judges a broker: the test kit does all that it claims to do."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from receiver.gateway.upstream.broker_login import BrokerLoginError
from receiver.settings.hostport import HostPort
from receiver.testkit.broker_checks import BROKER_CHECKS, judge_broker
from receiver.testkit.broker_client import Access
from receiver.testkit.kit import Credentials
from receiver.testkit.report import as_json, has_failed
from receiver.testkit.script import parse_script
from receiver.testkit.threaded import TestKit
from receiver.wire.errors import WireError
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import LOOPBACK

#: The kit judges clients, and does not refuse what it judges.
NOT_OF_THE_KIT = {"BK-020", "BK-021", "BK-044", "BK-045"}


def address(kit: TestKit) -> HostPort:
    return HostPort.parse(kit.bootstrap_servers)


def failures(kit: TestKit) -> dict[str, str]:
    judged = judge_broker(address(kit))
    return {j.check.id: j.verdict.seen for j in judged.judgements if j.verdict.passed is False}


def test_the_kit_is_a_broker_but_for_what_it_leaves_to_its_checks() -> None:
    script = parse_script("subscription: {interval_ms: 100}\nsteps: [{name: all, pushes: 9}]", "here")
    with TestKit(script, brokers=1) as kit:
        assert set(failures(kit)) == NOT_OF_THE_KIT


def test_a_broker_with_another_error_fails() -> None:
    script = parse_script(
        "subscription: {interval_ms: 100}\nsteps: [{name: all, error: INVALID_RECORD}, {name: rest}]", "here"
    )
    with TestKit(script, brokers=1) as kit:
        found = failures(kit)
    assert found["BK-030"] == "INVALID_RECORD, not NONE"
    assert found["BK-043"] == "INVALID_RECORD, not TELEMETRY_TOO_LARGE"


def test_a_broker_is_asked_over_tls_and_after_a_login(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    server = authority.issue().write(tmp_path, "server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(server.chain, server.key)
    script = parse_script("subscription: {interval_ms: 100}\nsteps: [{name: all, pushes: 9}]", "here")
    alice = Credentials("alice", "wonder")
    trusts = ssl.create_default_context(cadata=authority.ca_pem)
    with TestKit(script, brokers=1, credentials=alice, tls=tls) as kit:
        judged = judge_broker(address(kit), Access(tls=trusts, credentials=alice))
        assert {j.check.id for j in judged.judgements if j.verdict.passed is False} == NOT_OF_THE_KIT
        with pytest.raises(BrokerLoginError, match="refuses the login with SASL_AUTHENTICATION_FAILED"):
            judge_broker(address(kit), Access(tls=trusts, credentials=Credentials("alice", "land")))
        with pytest.raises(BrokerLoginError, match=r"refuses SCRAM-SHA-512 with .*; it offers PLAIN"):
            judge_broker(address(kit), Access(tls=trusts, mechanism="SCRAM-SHA-512", credentials=alice))
        with pytest.raises(ssl.SSLCertVerificationError):
            judge_broker(address(kit), Access(tls=ssl.create_default_context(), credentials=alice))


def test_without_a_subscription_there_is_nothing_to_try() -> None:
    with TestKit(
        parse_script("steps: [{name: none, subscription: {metrics: []}}]", "here"), brokers=1
    ) as kit:
        judged = judge_broker(address(kit))
    untried = [j for j in judged.judgements if j.verdict.passed is None]
    assert {j.verdict.seen for j in untried} == {
        "not tried: no subscription matches software name kafka-telemetry-testkit"
    }
    assert not has_failed([judged])
    (broker,) = json.loads(as_json([judged], "brokers"))["brokers"]
    assert [check["id"] for check in broker["checks"]] == [check.id for check in BROKER_CHECKS]


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\4\0\0\0\x63", b"\x7f\xff\xff\xff"])
def test_what_is_no_broker_is_an_error(answer: bytes) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((EOFError, WireError), match=r"ended the connection|correlation id|16 MiB"):
            judge_broker(HostPort(host=LOOPBACK, port=server.getsockname()[1]))
        thread.join()
