"""Loads a configuration and checks everything in it that can be checked without an effect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from receiver.host.discovery import HostedPlugin, load_plugins
from receiver.settings.errors import SettingsError
from receiver.settings.key_file import hash_key
from receiver.settings.load import load, sourced
from receiver.settings.model import ReceiverSettings
from receiver.telemetry.errors import InvalidValueError
from receiver.telemetry.quirks import Quirks

__all__ = ["load_checked"]


def load_checked(path: Path, environ: Mapping[str, str]) -> tuple[ReceiverSettings, list[HostedPlugin]]:
    """Load and check a configuration file and the variables that override it.

    Returns:
        The settings, and the plugins that were constructed for the check.

    Raises:
        SettingsError: Something is wrong; the error names the file or the variable.
    """
    try:
        settings = load(path, environ)
        hash_key(settings.telemetry.privacy)
        # Building quirks and plugins does no I/O, so it only checks their settings.
        Quirks(settings.telemetry.quirks, compression=())
        return settings, load_plugins(settings.plugins)
    except InvalidValueError as error:
        raise SettingsError(path.name, "", str(error)) from None
    except SettingsError as error:
        raise sourced(error, path, environ) from None
