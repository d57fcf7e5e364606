"""The relays between client and broker: none, HAProxy in TCP mode, and the sidecar.

Each is one process on 127.0.0.1 with its defaults, as it would be deployed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import BenchmarkError, Running, running
from receiver.settings.limits import PeerLimitsSettings
from tests.testbed.certificates import CertificateFiles
from tests.testbed.ports import LOOPBACK, free_port

_HTTP_SECONDS = 60.0
_HAPROXY_CONFIGURATION = """\
global
    nbthread {threads}
    maxconn 7000
defaults
    mode tcp
    timeout connect 5s
    timeout client 10m
    timeout server 10m
listen bench
    bind {listen}{tls}
    server broker {upstream}
{more}
"""

#: All clients of a benchmark have one address, so its limits are off.
UNLIMITED: dict[str, dict[str, None]] = {"source_address": dict.fromkeys(PeerLimitsSettings.model_fields)}

#: A destination that is away, with room for one push: the others are checked, labelled and dropped.
#: A sidecar without a plugin asks clients for nothing.
AWAY = {
    "type": "otlp",
    "endpoint": f"http://{LOOPBACK}:1",
    "delivery": "memory",
    "queue": {"max_items": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A running relay; addresses are host:port."""

    name: str
    target: str
    #: None for a direct connection.
    process: Running | None
    #: The REST API of the sidecar.
    rest: str = ""
    #: PEM file with the CA of its certificate; None without TLS.
    ca: Path | None = None


@contextlib.contextmanager
def haproxy(
    upstream: str, folder: Path, *, tls: CertificateFiles | None = None, more: str = "", threads: int = 1
) -> Iterator[Relay]:
    """Run HAProxy; ``more`` lines are added to its ``listen`` section."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    if program is None:
        raise BenchmarkError("HAProxy is not installed: apt-get install haproxy")
    listen = f"{LOOPBACK}:{free_port()}"
    ends_tls = f" ssl crt {tls.keystore}" if tls else ""
    file = folder / "haproxy.cfg"
    file.write_text(
        _HAPROXY_CONFIGURATION.format(
            listen=listen, tls=ends_tls, upstream=upstream, more=more, threads=threads
        )
    )
    with running("haproxy", [program, "-db", "-f", str(file)], folder=folder, ready=listen) as process:
        yield Relay(name="haproxy", target=listen, process=process, ca=tls.ca if tls else None)


@contextlib.contextmanager
def sidecar(
    upstream: str,
    folder: Path,
    *,
    plugins: list[dict[str, Any]] | None = None,
    tls: CertificateFiles | None = None,
    processes: int = 1,
    program: Path | None = None,
    rewrites: bool = False,
) -> Iterator[Relay]:
    """Run the sidecar in front of a broker (host:port), without limits by source address.

    ``processes`` is the number of its relays; the core is another process. ``program`` is the
    ``kafka-telemetry`` of another version. With ``rewrites`` it replaces the addresses of brokers,
    and is called so.
    """
    listen, rest = f"{LOOPBACK}:{free_port()}", f"{LOOPBACK}:{free_port()}"
    listener: dict[str, Any] = {"name": "CLIENT", "bind": listen, "upstream": upstream}
    if tls:
        files = {"cert_file": str(tls.chain), "key_file": str(tls.key)}
        listener |= {"security_protocol": "SSL", "tls": files}
    if rewrites:
        # The fake broker is node 1.
        rewrite = {"host": LOOPBACK, "first_port": free_port() - 1, "nodes": 2}
        listener |= {"addresses": "rewrite", "rewrite": rewrite}
    configuration = {
        "gateway": {"relays": processes},
        "listeners": [listener],
        "rest": {"bind": rest},
        "plugins": plugins or [],
    }
    limits = UNLIMITED if program is None else _unlimited(program)
    with serve({**configuration, "limits": limits}, folder, program=program) as process:
        name = "rewriting" if rewrites else "sidecar"
        yield Relay(name=name, target=listen, process=process, rest=rest, ca=tls.ca if tls else None)


def _unlimited(program: Path) -> dict[str, dict[str, None]]:
    """Return :data:`UNLIMITED` without the keys that another version does not know."""
    reference = subprocess.run(
        [str(program), "config", "reference"], check=True, capture_output=True, text=True
    ).stdout
    return {
        peer: {key: None for key in keys if f"`limits.{peer}.{key}`" in reference}
        for peer, keys in UNLIMITED.items()
    }


@contextlib.contextmanager
def serve(
    configuration: Mapping[str, Any],
    folder: Path,
    *,
    program: Path | None = None,
    command: Sequence[str] = (),
) -> Iterator[Running]:
    """Run ``kafka-telemetry serve`` until the block ends, once a listener, or REST, is open.

    ``command`` runs in place of ``program``, and gets its arguments.
    """
    ready = (
        configuration["listeners"][0]["bind"] if configuration["listeners"] else configuration["rest"]["bind"]
    )
    program = program or Path(sys.executable).parent / "kafka-telemetry"
    if not program.exists():
        raise BenchmarkError(f"the sidecar is not installed beside {sys.executable}: make setup")
    file = folder / "receiver.yaml"
    store = {"store": "sqlite", "path": str(folder / "subscriptions.db")}
    # JSON is YAML.
    file.write_text(json.dumps({"broker": {"id": "auto"}, "subscriptions": store, **configuration}, indent=1))
    command = [*(command or [str(program)]), "serve", "--config", str(file)]
    with running("sidecar", command, folder=folder, ready=ready) as process:
        yield process


@contextlib.contextmanager
def serve_bridges(
    bind: str, rest: str, token: Path, folder: Path, plugins: Sequence[Mapping[str, Any]]
) -> Iterator[Running]:
    """Run a receiver that lets in bridges alone, without limits by source address."""
    configuration = {
        "listeners": [],
        "bridge": {"bind": bind, "token": {"file": str(token)}},
        "rest": {"bind": rest},
        "plugins": list(plugins),
        "limits": UNLIMITED,
    }
    with serve(configuration, folder) as process:
        yield process


def subscribe(rest: str, *, interval_ms: int) -> None:
    """Ask every client of the sidecar with this REST API for every metric."""
    httpx.put(
        f"http://{rest}/v1/subscriptions/bench",
        json={"metrics": ["*"], "interval_ms": interval_ms},
        trust_env=False,
        timeout=_HTTP_SECONDS,
    ).raise_for_status()


@contextlib.contextmanager
def in_front_of(
    upstream: str, folder: Path, *, tls: CertificateFiles | None = None, cores: int = 1
) -> Iterator[list[Relay]]:
    """Run HAProxy and the sidecar; a direct connection, which has no TLS, comes first.

    ``cores`` is the number of HAProxy's threads and of the sidecar's relays.
    """
    with (
        haproxy(upstream, folder, tls=tls, threads=cores) as one,
        sidecar(upstream, folder, tls=tls, processes=cores) as other,
    ):
        yield [Relay(name="direct", target=upstream, process=None), one, other]
