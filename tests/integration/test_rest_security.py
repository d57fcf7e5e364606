"""The installed command with a REST API off loopback, which requires authentication."""

from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import LOOPBACK, free_port
from tests.testbed.process import StartError
from tests.testbed.scripted_broker import ScriptedBroker
from tests.testbed.sidecar import Sidecar

EDITOR, VIEWER = "an-editor-of-the-integration-tests", "a-viewer-of-the-integration-tests"


@pytest.fixture(scope="module")
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def config(broker: ScriptedBroker, **rest: Any) -> dict[str, Any]:
    return {
        "broker": {"id": 1},
        "listeners": [
            {"name": "CLIENT", "bind": f"{LOOPBACK}:{free_port()}", "upstream": f"{LOOPBACK}:{broker.port}"}
        ],
        "rest": {"bind": f"0.0.0.0:{free_port()}", **rest},
        "log": {"level": "error"},
    }


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("kafka-telemetry")
    environ = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def audit(sidecar: Sidecar) -> list[dict[str, Any]]:
    return [line for line in sidecar.logged_objects() if line.get("logger") == "receiver.audit"]


def test_off_loopback_it_does_not_start_without_authentication(broker: ScriptedBroker) -> None:
    with pytest.raises(StartError, match="requires authentication"), Sidecar(config(broker)):
        pass


def test_a_missing_token_file_prevents_the_start(broker: ScriptedBroker) -> None:
    tokens = [{"name": "ops", "role": "editor", "file": "absent"}]
    with (
        pytest.raises(StartError, match=r"rest\.tokens\[0\]\.file: absent: cannot be read: No such file"),
        Sidecar(config(broker, tokens=tokens)),
    ):
        pass


def test_tokens_off_loopback(broker: ScriptedBroker, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{VIEWER}\n")
    tokens = [
        {"name": "ops", "role": "editor", "sha256": hashlib.sha256(EDITOR.encode()).hexdigest()},
        {"name": "eyes", "role": "viewer", "file": str(file)},
    ]
    settings = config(broker, tokens=tokens)
    with Sidecar(settings) as sidecar:
        url = f"http://{LOOPBACK}:{settings['rest']['bind'].rpartition(':')[2]}"
        answers = [
            httpx.get(f"{url}/{path}", headers=headers, trust_env=False, timeout=60)
            for path in ("livez", "readyz", "metrics", "v1/clients", "openapi.json", "nothing")
            for headers in ({}, {"authorization": f"Bearer {VIEWER}", "host": "telemetry.example"})
        ]
        assert [answer.status_code for answer in answers] == [
            *(200, 200),
            *(200, 200),
            *(401, 200),
            *(401, 200),
            *(401, 200),
            *(401, 404),
        ]
        assert all(answer.headers["x-content-type-options"] == "nosniff" for answer in answers)

        put = ("subscriptions", "put", "s", "--metric", "a.", "--url", url)
        made = [command(*put)]
        made += [command(*put, KAFKA_TELEMETRY_TOKEN=token) for token in ("wrong-token", VIEWER, EDITOR)]
        made.append(command("subscriptions", "show", "s", "--token-file", str(file), "--url", url))
        assert [item.returncode for item in made] == [1, 1, 1, 0, 0], made
        assert "--token-file" in made[0].stderr

        metrics = httpx.get(
            f"{url}/metrics", headers={"authorization": f"Bearer {EDITOR}"}, trust_env=False, timeout=60
        )
        counted = 'kafka_telemetry_rest_requests_refused_total{reason="%s"} %d.0'
        for reason, count in (("no_credentials", 5), ("unknown_token", 1), ("role", 1)):
            assert counted % (reason, count) in metrics.text
        # log.level is error, and the audit log is there all the same.
        assert [
            (line["who"], line["method"], line["outcome"], line["status"]) for line in audit(sidecar)
        ] == [
            ("eyes", "PUT", "refused", 403),
            ("ops", "PUT", "changed", 201),
        ]
        output = (
            sidecar.log_text() + str(made) + "".join(answer.text + str(answer.headers) for answer in answers)
        )
        assert all(secret not in output for secret in (EDITOR, VIEWER, "wrong-token"))


def test_certificates_off_loopback(broker: ScriptedBroker, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    server = authority.issue().write(tmp_path, "server")
    ops = authority.issue(common_name="ops", organization="Example", client=True).write(tmp_path, "ops")
    settings = config(
        broker,
        tls={
            "cert_file": str(server.chain),
            "key_file": str(server.key),
            "client_ca_file": str(server.ca),
            "client_auth": "requested",
        },
        clients=[{"name": "ops", "role": "editor", "subject": "CN=ops,O=Example"}],
    )
    port = settings["rest"]["bind"].rpartition(":")[2]

    class OverTls(Sidecar):
        def is_ready(self) -> bool:
            try:
                return httpx.get(
                    f"https://{LOOPBACK}:{port}/readyz",
                    verify=trusted,
                    trust_env=False,
                    timeout=60,
                ).is_success
            except httpx.TransportError:
                return False

    trusted = ssl.create_default_context(cafile=server.ca)
    trust = ("--ca-file", str(server.ca), "--url", f"https://{LOOPBACK}:{port}")
    shown = ("--client-certificate", str(ops.chain), "--client-key", str(ops.key))
    with OverTls(settings) as sidecar:
        assert command("subscriptions", "put", "s", "-m", "a.", *trust).returncode == 1
        assert command("subscriptions", "put", "s", "-m", "a.", *trust, *shown).returncode == 0
        assert command("subscriptions", "delete", "s", *trust, *shown).returncode == 0
        assert [(line["who"], line["method"], line["authenticated_by"]) for line in audit(sidecar)] == [
            ("ops", "PUT", "certificate"),
            ("ops", "DELETE", "certificate"),
        ]
