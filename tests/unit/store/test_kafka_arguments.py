"""Client options become kafka-python's arguments, with the content of files."""

from pathlib import Path
from typing import Any

import pytest

from receiver.settings.subscriptions import KafkaStoreSettings
from receiver.store.kafka_cluster import client_arguments
from receiver.store.store import StoreError


def arguments(**options: Any) -> dict[str, Any]:
    return client_arguments(
        KafkaStoreSettings.model_validate({"bootstrap_servers": "a:1, [::1]:2", "options": options})
    )


def test_the_login_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    made = arguments(
        **{
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": {"file": str(tmp_path / "password")},
            "ssl.ca.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
            "request.timeout.ms": 9000,
        }
    )
    assert made["bootstrap_servers"] == ["a:1", "[::1]:2"]
    assert made["security_protocol"] == "SASL_SSL"
    assert (made["sasl_plain_username"], made["sasl_plain_password"]) == ("alice", "s3cret")
    assert made["ssl_cafile"] == "/ca.pem"
    assert made["ssl_check_hostname"] is False
    assert made["request_timeout_ms"] == 9000


def test_javas_login_is_read() -> None:
    made = arguments(
        **{
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="al\\"ice" password="a=b;c";',
        }
    )
    assert (made["sasl_plain_username"], made["sasl_plain_password"]) == ('al"ice', "a=b;c")


def test_a_login_that_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    with pytest.raises(StoreError, match=r"options.sasl.jaas.config: expected '\.\.\. required") as refused:
        arguments(**login, **{"sasl.jaas.config": "username=hunter2"})
    assert "hunter2" not in str(refused.value)
    for content, problem in ((None, "cannot be read: No such file"), (b"\xff", "is not UTF-8 text")):
        file = tmp_path / "password"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(StoreError, match=problem):
            arguments(**login, **{"sasl.username": "a", "sasl.password": {"file": str(file)}})
    file.write_bytes(b"x" * 70_000)
    with pytest.raises(StoreError, match="is larger than 65536 bytes"):
        arguments(**login, **{"sasl.username": "a", "sasl.password": {"file": str(file)}})
