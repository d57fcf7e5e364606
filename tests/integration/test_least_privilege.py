"""The sidecar needs no root and no capability, and writes only to its own folder."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import yaml

from tests.testbed.broker import KafkaBroker
from tests.testbed.clients import LibrdkafkaClient, Mode
from tests.testbed.collector import Collector
from tests.testbed.cpu import with_descendants
from tests.testbed.process import ChildProcess
from tests.testbed.sidecar import config_for

TREE = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("confined.sh")
NOBODY = 65534
TIMEOUT_S = 300.0
#: From <linux/ptrace.h>: unlike PTRACE_ATTACH, it does not stop the process.
PTRACE_SEIZE = 0x4206


def confined(
    root: Path, writable: Path, readable: Sequence[Path], program: Sequence[str | Path]
) -> list[str]:
    """A command that runs a program as :file:`confined.sh` says, by somebody who is root or not."""
    if os.geteuid() == 0:
        unshare, user = ["unshare"], str(NOBODY)
    else:
        unshare, user = ["unshare", "--user", "--map-current-user", "--keep-caps"], "-"
    command = [*unshare, "--mount", "--propagation", "private", "sh", SCRIPT, root, user, writable]
    return [str(word) for word in (*command, *dict.fromkeys(readable), "--", *program)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may enter, as pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="least-privilege-") as name:
        folder = Path(name)
        for path in (folder, *(folder / below for below in ("root", "config", "state"))):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder / "state", NOBODY, NOBODY)
        yield folder


@pytest.fixture
def readable() -> list[Path]:
    """What the program is made of: this tree, its environment, and Python."""
    return [TREE, Path(sys.prefix), Path(sys.base_prefix)]


@pytest.fixture
def possible(folder: Path, readable: list[Path]) -> None:
    """Skips where the machine lets nobody make a namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is missing (Debian: apt-get install util-linux)")
    command = confined(folder / "root", folder / "state", readable, ["true"])
    tried = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if tried.returncode:
        pytest.skip(f"this machine runs no confined program: {tried.stderr.strip()}")


@pytest.mark.usefixtures("possible")
def test_it_serves_without_any_privilege(
    broker: KafkaBroker, collector: Collector, folder: Path, readable: list[Path]
) -> None:
    config = config_for(broker, collector=collector)
    config["subscriptions"]["path"] = str(folder / "state" / "subscriptions.db")
    spool = folder / "state" / "spool"
    config["plugins"][0] |= {
        "isolation": "process",
        "delivery": "spool_always",
        "spool": {"path": str(spool)},
    }
    (folder / "config" / "receiver.yaml").write_text(yaml.safe_dump(config))
    program: list[str | Path] = [Path(sys.executable).with_name("kafka-telemetry"), "serve", "--config"]
    program.append(folder / "config" / "receiver.yaml")
    command = confined(folder / "root", folder / "state", [*readable, folder / "config"], program)
    sidecar = ChildProcess("sidecar", command, log=folder / "sidecar.log")
    try:
        with httpx.Client(base_url=f"http://{config['rest']['bind']}", trust_env=False, timeout=120) as rest:

            def ready() -> bool:
                try:
                    return rest.get("/readyz").is_success
                except httpx.TransportError:
                    return False

            sidecar.wait_until_ready(ready, timeout_s=TIMEOUT_S)
            assert_confined(sidecar.pid, folder / "state")
            assert_private(sidecar.pid)

            body = {"metrics": ["*"], "interval_ms": 1000, "match": {}}
            rest.put("/v1/subscriptions/all", json=body).raise_for_status()
            broker.create_topic("confined")
            with LibrdkafkaClient(
                Mode.PRODUCER, bootstrap=config["listeners"][0]["bind"], topic="confined"
            ) as producer:
                producer.wait_for_records(1)
                collector.wait_for(
                    lambda exports: any(
                        export.resource["client_id"] == producer.client_id for export in exports
                    )
                )
            # The plugin's process has its secrets by now. It forbids access before it gets them.
            processes = with_descendants(sidecar.pid)
            assert len(processes) >= 4, "the supervisor, the core, its plugin's process, and relays"
            for pid in processes:
                assert_private(pid)
        assert sidecar.terminate() == 0
    finally:
        sidecar.kill()
    log = sidecar.log_text()
    assert "Read-only file system" not in log
    assert "Permission denied" not in log
    assert {path.name for path in (folder / "state").iterdir()} == {"subscriptions.db", "spool"}


def assert_private(pid: int) -> None:
    """No core file, and another process of the very user reads nothing of its memory."""
    (cores,) = re.findall(r"^Max core file size +(\d+)", Path(f"/proc/{pid}/limits").read_text(), re.M)
    assert cores == "0"
    # Who is not root owns the user namespace that the process is in, and so has every capability
    # there.
    if os.geteuid() == 0:
        assert attacked(pid) == "refused mem, refused environ, refused maps, refused ptrace"


def attacked(pid: int) -> str:
    """What a process of the sidecar's user, without a capability, gets at."""
    readable, writable = os.pipe()
    attacker = os.fork()
    if attacker == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        results = []
        for name in ("mem", "environ", "maps"):
            try:
                Path(f"/proc/{pid}/{name}").open("rb").close()
                results.append(f"opened {name}")
            except PermissionError:
                results.append(f"refused {name}")
        refused = ctypes.CDLL(None).ptrace(PTRACE_SEIZE, pid, None, None) != 0
        results.append("refused ptrace" if refused else "traced")
        os.write(writable, ", ".join(results).encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        result = pipe.read()
    os.waitpid(attacker, 0)
    return result


def assert_confined(pid: int, writable: Path) -> None:
    """Ask the kernel what the process may do."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert "0" not in status["Uid"].split()
    assert "0" not in status["Gid"].split()
    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    can_be_written = {mount[4] for mount in mounts if "ro" not in mount[5].split(",")}
    assert can_be_written - {"/dev/null"} == {str(writable)}
