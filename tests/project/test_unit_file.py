"""The unit file of docs/operations.md, by systemd's own check and the sidecar's defaults."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from receiver.settings.model import DrainSettings

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations.md"
COMMAND: Final = "/opt/kafka-telemetry/bin/kafka-telemetry"


def unit_file() -> str:
    found = re.search(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_unit_restarts_reloads_and_lets_the_sidecar_drain() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # systemd's keys have capitals
    unit.read_string(unit_file())
    service = unit["Service"]
    assert service["ExecStart"].split()[:2] == [COMMAND, "serve"]
    assert service["ExecReload"].split()[1:] == ["-HUP", "$MAINPID"]
    assert (service["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
    assert int(service["TimeoutStopSec"]) > DrainSettings().timeout_s
    assert {"LimitNOFILE", "MemoryMax"} <= service.keys()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not there")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "kafka-telemetry.service"
    file.write_text(unit_file().replace(COMMAND, str(Path(sys.executable).with_name("kafka-telemetry"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if file.name in line]
    assert (done.returncode, ours) == (0, []), done.stderr
