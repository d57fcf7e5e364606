"""Earlier names of keys, which are still taken: TLS files, a password and a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_TLS_SECTIONS: Final = ("tls", "upstream_tls")
#: Earlier names of TLS files, and the present ones.
EARLIER_TLS_FILES: Final[Mapping[str, str]] = {
    "ca": "ca_file",
    "certificate": "cert_file",
    "client_ca": "client_ca_file",
    "key": "key_file",
}
#: Secrets that were given by a path under an earlier name, by their section.
_SECRETS: Final = {"login": "password", "privacy": "key"}
#: Sections whose keys are not ours.
_FOREIGN: Final = ("plugins",)


def with_present_names(document: Any) -> Any:
    """Return a document with the present names of keys, where it has not both."""
    if isinstance(document, list):
        return [with_present_names(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {name: _section(name, value) for name, value in document.items()}


def _section(name: str, value: Any) -> Any:
    if name in _FOREIGN:
        return value
    if isinstance(value, dict) and name in _TLS_SECTIONS:
        return _tls(value)
    if isinstance(value, dict) and name in _SECRETS:
        secret = _SECRETS[name]
        earlier = f"{secret}_file"
        if secret not in value and earlier in value:
            value = {key: item for key, item in value.items() if key != earlier} | {
                secret: {"file": value[earlier]}
            }
    return with_present_names(value)


def _tls(section: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {
        key if (present := EARLIER_TLS_FILES.get(key, key)) in section else present: value
        for key, value in section.items()
    }
    names = renamed.get("server_names")
    if isinstance(names, list):
        renamed["server_names"] = [_tls(item) if isinstance(item, dict) else item for item in names]
    return renamed
