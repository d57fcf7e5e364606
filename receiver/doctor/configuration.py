"""Findings about the configuration file and the files and ports that it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from receiver.checked import Checked, check_configuration, placed
from receiver.doctor.findings import Area, Finding, failed, ok, warning
from receiver.settings.errors import SettingsError

_FIX = "correct it; `kafka-telemetry config reference` lists all keys"


def check_file(path: Path, environ: Mapping[str, str]) -> tuple[Checked | None, list[Finding]]:
    """Return the configuration, None if it can't be loaded, and a finding per mistake."""
    subject = str(path)
    try:
        checked = check_configuration(path, environ)
    except SettingsError as error:
        return None, [_mistake("valid", path, mistake, _FIX) for mistake in (error, *error.further)]
    findings = [
        _mistake("files_and_ports", path, mistake, "correct it, or create it") for mistake in checked.mistakes
    ]
    findings += [
        warning(
            Area.CONFIGURATION, "secrets", subject, placed(text, path), "move it into a file of mode 0600"
        )
        for text in checked.secrets
    ]
    if not checked.mistakes:
        listeners = ", ".join(listener.name for listener in checked.settings.listeners) or "none"
        plugins = ", ".join(plugin.name for plugin in checked.plugins) or "none"
        seen = f"valid. Listeners: {listeners}. Plugins: {plugins}"
        findings.append(ok(Area.CONFIGURATION, "valid", subject, seen))
    return checked, findings


def _mistake(check: str, path: Path, mistake: SettingsError, fix: str) -> Finding:
    """Return a finding whose subject is the place of the mistake."""
    text = placed(mistake, path)
    place, _, seen = text.partition(": ") if text.startswith(path.name) else (str(path), "", text)
    return failed(Area.CONFIGURATION, check, place, seen, fix)
