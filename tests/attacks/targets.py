"""The targets: a receiver with default limits, and HAProxy in TCP mode as the baseline.

Both are in front of the same broker and have the same ports: a plain and a TLS listener, one for
PROXY headers from the attacker's address, one that rewrites addresses, one for HTTP, and one for
bridges. HAProxy rewrites no addresses, and is no receiver of bridges.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import relays
from benchmarks.processes import Running
from receiver.settings.limits import LimitsSettings
from tests.attacks.attacks import ATTACKER, Attack, Port
from tests.attacks.innocent_bridge import TOKEN
from tests.testbed.certificates import CertificateFiles
from tests.testbed.ports import LOOPBACK, free_port

_PUSH_INTERVAL_MS: Final = 100

_CONSOLE: Final = {"type": "console", "delivery": "memory", "queue": {"max_items": 100}}

_MORE = """\
    bind {tls} ssl crt {keystore}
    bind {rewriting}
    bind {bridge}
    bind {proxy}
    tcp-request connection expect-proxy layer4 if {{ dst_port {proxy_port} }} {{ src {attacker} }}
    stick-table type ip size 1k expire 1m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if {{ sc0_conn_cur gt {connections} }}
frontend http
    mode http
    bind {rest}
    http-request return status 200 content-type text/plain lf-string ok
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A running receiver or HAProxy.

    Attributes:
        name: Its row in the table.
        process: Its process.
        ports: Where each port is, host:port.
        spool: The folder of the receiver's spool_files plugin; None where it has none.
        times: Where the receiver's relays leave their longest callbacks; None for HAProxy.
    """

    name: str
    process: Running
    ports: Mapping[Port, str]
    spool: Path | None = None
    times: Path | None = None


def _ports() -> dict[Port, str]:
    ports: tuple[Port, ...] = ("plain", "tls", "proxy", "rewriting", "rest", "bridge")
    return {port: f"{LOOPBACK}:{free_port()}" for port in ports}


@contextlib.contextmanager
def receiver(attack: Attack, upstream: str, folder: Path, files: CertificateFiles) -> Iterator[Target]:
    """Run ``kafka-telemetry serve`` in front of ``upstream`` (host:port).

    The attack's settings are added to the defaults.
    """
    ports = _ports()
    spool = folder / "files" if attack.spool else None
    # Without a plugin, clients are asked for nothing.
    plugin = {"type": "spool_files", "path": str(spool), "roll_seconds": 1} if spool else _CONSOLE
    tls = {"cert_file": str(files.chain), "key_file": str(files.key)}
    token = folder / "bridge-token"
    token.write_bytes(TOKEN)
    configuration: dict[str, Any] = {
        "listeners": [
            {"name": "PLAIN", "bind": ports["plain"], "upstream": upstream},
            {
                "name": "TLS",
                "bind": ports["tls"],
                "upstream": upstream,
                "security_protocol": "SSL",
                "tls": tls,
            },
            {
                "name": "PROXY",
                "bind": ports["proxy"],
                "upstream": upstream,
                "proxy_protocol": {"from": [ATTACKER]},
            },
            {
                "name": "REWRITING",
                "bind": ports["rewriting"],
                "upstream": upstream,
                "addresses": "rewrite",
                "rewrite": {"host": LOOPBACK, "first_port": free_port() - 1, "nodes": 2},
            },
        ],
        "rest": {"bind": ports["rest"]},
        "bridge": {"bind": ports["bridge"], "token": {"file": str(token)}},
        "plugins": [plugin],
        **attack.settings,
    }
    times = folder / "times"
    times.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.attacks.measured", str(times)]
    with relays.serve(configuration, folder, command=command) as process:
        relays.subscribe(ports["rest"], interval_ms=_PUSH_INTERVAL_MS)
        yield Target(name="receiver", process=process, ports=ports, spool=spool, times=times)


@contextlib.contextmanager
def haproxy(upstream: str, folder: Path, files: CertificateFiles) -> Iterator[Target]:
    """Run HAProxy in front of a broker (host:port), with the receiver's limit on connections."""
    ports = _ports()
    more = _MORE.format(
        tls=ports["tls"],
        keystore=files.keystore,
        proxy=ports["proxy"],
        proxy_port=ports["proxy"].rpartition(":")[2],
        attacker=ATTACKER,
        rewriting=ports["rewriting"],
        bridge=ports["bridge"],
        connections=LimitsSettings().source_address.connections,
        rest=ports["rest"],
    )
    with relays.haproxy(upstream, folder, more=more) as relay:
        assert relay.process is not None
        ports["plain"] = relay.target
        yield Target(name="haproxy", process=relay.process, ports=ports)
