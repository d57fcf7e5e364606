"""TLS settings of plugins: the same keys and the same rule for all."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from receiver.host.discovery import PluginConfigError, load_plugins
from receiver.plugin.tls import TlsConfig

OTLP = {"type": "otlp", "endpoint": "https://h:1"}
KAFKA = {"type": "kafka_topic", "bootstrap_servers": "h:1", "topic": "t", "security_protocol": "SSL"}


def test_a_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.touch()
    assert TlsConfig(cert_file=file, key_file=file).ca_file is None
    with pytest.raises(ValidationError, match="go together: cert_file is missing"):
        TlsConfig(key_file=file)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (OTLP, "tls"),
        (KAFKA, "tls"),
        ({"type": "prometheus", "remote_write": {"url": "https://h/w"}}, "remote_write.tls"),
    ],
)
def test_every_plugin_checks_the_pair(config: dict[str, Any], key: str) -> None:
    tls = {"cert_file": __file__}
    given = {**config, "tls": tls}
    if key != "tls":
        given = {**config, "remote_write": {**config["remote_write"], "tls": tls}}
    with pytest.raises(PluginConfigError) as caught:
        load_plugins([given])
    problem = f"plugins[0].{key}: cert_file and key_file go together: key_file is missing"
    assert str(caught.value).startswith(problem)
