"""The expiry of the certificates that a listener shows."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from receiver.gateway.listeners.listener import Listener
from receiver.settings.listeners import ListenerSettings
from tests.testbed.certificates import CertificateAuthority
from tests.testbed.ports import LOOPBACK, free_port
from tests.unit.gateway.support import Gate, on_loop

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def listener(**tls: Any) -> Listener:
    """A listener with these keys of its section, as in the configuration file."""
    section = {"name": "CLIENT", "bind": f"{LOOPBACK}:{free_port()}", "upstream": f"{LOOPBACK}:1", **tls}
    settings = ListenerSettings.model_validate_json(json.dumps(section), strict=True)
    made = Gate().listener_of(settings)
    on_loop(stop(made))
    return made


async def stop(listener: Listener) -> None:
    listener.stop_accepting()


def issue(authority: CertificateAuthority, folder: Path, name: str, days: float) -> dict[str, str]:
    """Write a certificate that ends in so many days, and return its keys in the configuration."""
    files = authority.issue(not_after=NOW + datetime.timedelta(days=days)).write(folder, name)
    return {"cert_file": str(files.chain), "key_file": str(files.key)}


def in_days(days: float) -> float:
    return (NOW + datetime.timedelta(days=days)).timestamp()


def test_the_end_of_each_certificate_in_use_is_shown_and_of_the_next_one_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.watch._EVERY_S", 0.0)
    authority = CertificateAuthority().intermediate()
    server = issue(authority, tmp_path, "server", 20)
    upstream = issue(authority, tmp_path, "upstream", 10)
    running = listener(security_protocol="SSL", tls=server, upstream_tls=upstream)
    assert dict(running.certificates) == {"client": in_days(20), "upstream": in_days(10)}
    issue(authority, tmp_path, "server", 25)
    assert dict(running.certificates) == {"client": in_days(25), "upstream": in_days(10)}
    # What can't be used is not in use.
    key = tmp_path / "upstream.key"
    issue(authority, tmp_path, "upstream", 15)
    renewed = key.read_bytes()
    key.write_bytes((tmp_path / "server.key").read_bytes())
    assert dict(running.certificates) == {"client": in_days(25), "upstream": in_days(10)}
    key.write_bytes(renewed)
    assert dict(running.certificates) == {"client": in_days(25), "upstream": in_days(15)}


def test_of_certificates_for_several_names_the_first_end_is_shown(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    server = issue(authority, tmp_path, "server", 20)
    names = [
        {"name": f"{name}.test", **issue(authority, tmp_path, name, days)}
        for name, days in (("one", 30), ("two", -1))
    ]
    running = listener(security_protocol="SSL", tls={**server, "server_names": names})
    assert dict(running.certificates) == {"client": in_days(-1)}


@pytest.mark.parametrize("more", [{}, {"upstream_tls": {}}])
def test_without_a_certificate_of_ours_there_is_no_end(more: dict[str, Any]) -> None:
    assert listener(**more).certificates == []
