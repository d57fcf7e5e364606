"""TLS settings of a plugin: the file names of authorities and certificate."""

from __future__ import annotations

from pydantic import model_validator

from receiver.plugin.config import PluginConfig
from receiver.plugin.existing_file import ExistingFile


class TlsConfig(PluginConfig):
    """TLS towards a destination.

    Verification cannot be switched off. To trust one certificate, name it as ``ca_file``.
    """

    ca_file: ExistingFile | None = None
    """Certificate authorities to trust (PEM) in place of the default ones."""
    cert_file: ExistingFile | None = None
    """The sidecar's own certificate (PEM)."""
    key_file: ExistingFile | None = None
    """The private key of `cert_file` (PEM, not encrypted)."""

    @model_validator(mode="after")
    def _pair(self) -> TlsConfig:
        if (self.cert_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "cert_file"
            raise ValueError(f"cert_file and key_file go together: {missing} is missing")
        return self
