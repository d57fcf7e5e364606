"""SECURITY.md names the limits with the defaults that they really have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from deploy.site.reference import PAGES
from plugins.otlp.config import OtlpConfig
from plugins.prometheus.config import PrometheusConfig
from plugins.spool_files.config import SpoolFilesConfig
from receiver.gateway.connection.tls_socket import MAX_RECORDS_IN_A_READ, MAX_RECORDS_WITHOUT_DATA
from receiver.session.session import HEADER_BYTES_IN_A_TURN
from receiver.turns import SHARE_S
from spark_streaming.poison import MAX_ISOLATED
from spark_streaming.rows import MAX_TOTAL
from spark_streaming.settings import RollupSettings

#: The generated configuration reference.
CONFIGURATION_REFERENCE: Final = PAGES["configuration"]()
ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "SECURITY.md").read_text()
ROWS: Final[dict[str, str]] = dict(re.findall(r"^\| (.+?) \| (.+?) \| .*\|$", PAGE, flags=re.MULTILINE))
#: Keys and defaults of the receiver's settings, as their reference has them.
DEFAULTS: Final = {
    key.replace("[0]", "[]"): default
    for key, default in re.findall(
        r"^\| `([^`]+)`<br>`KAFKA_TELEMETRY_[^|]+\|[^|]+\| `([^`]+)` \|",
        CONFIGURATION_REFERENCE,
        flags=re.MULTILINE,
    )
}


def settings_named() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for what, defaults in ROWS.items():
        keys = re.findall(r"`((?:limits|telemetry|listeners\[\]|debug)\.[a-z0-9_.]+)`", what)
        found += zip(keys, defaults.split(", "), strict=True) if keys else []
    return found


@pytest.mark.parametrize(("key", "default"), settings_named())
def test_a_default_is_the_settings(key: str, default: str) -> None:
    assert DEFAULTS[key] == default


def test_every_limit_is_named() -> None:
    named = {key for key, _ in settings_named()}
    assert {key for key in DEFAULTS if key.startswith("limits.")} <= named
    assert {key for key in DEFAULTS if re.match(r"telemetry\.(series\.)?max_", key)} <= named


def test_bounds_that_no_setting_changes_are_the_codes() -> None:
    def row(beginning: str) -> str:
        found: str
        (found,) = [default for what, default in ROWS.items() if what.startswith(beginning)]
        return found

    assert row("share of a turn").startswith(f"{SHARE_S * 1000:g} ms,")
    assert row("TLS records that one read").startswith(f"{MAX_RECORDS_IN_A_READ},")
    assert row("TLS records without data").startswith(f"{MAX_RECORDS_WITHOUT_DATA},")
    assert row("headers that are read").startswith(f"{HEADER_BYTES_IN_A_TURN} bytes")
    assert row("roll-up: pushes that one batch isolates").startswith(f"{MAX_ISOLATED},")
    assert row("roll-up: totals") == "2^62 - 1, saturating, fixed"
    assert MAX_TOTAL == 2**62 - 1
    rollup = RollupSettings()
    assert row("roll-up: `max_value`") == "2^64, 2^40"
    assert (rollup.max_value, rollup.max_count) == (2**64, 2**40)
    for config in (PrometheusConfig, OtlpConfig):
        assert config.model_fields["max_series"].default == 40_000
        assert config.model_fields["max_bytes"].default == 64 << 20
    assert row("`max_series`, `max_bytes` of `prometheus`") == "40,000, 64 MiB"
    assert row("`spool_files.max_bytes`") == "10 GiB"
    assert SpoolFilesConfig.model_fields["max_bytes"].default == 10 << 30
