"""TLS in a plugin's settings: the certificates towards its destination, and the rule between them.

Owns the settings' names and the check that what belongs together is there. Opens none of the files.
"""

from __future__ import annotations

from pydantic import Field, FilePath, model_validator

from receiver.plugin import PluginConfig

__all__ = ["TlsConfig"]


class TlsConfig(PluginConfig):
    """TLS towards a destination. A plugin refuses it where its destination is spoken to in plaintext.

    There is no switch to skip verification: name the destination's own certificate as ``ca_file`` instead.
    """

    ca_file: FilePath | None = Field(
        default=None, description="Certificate authorities to trust (PEM) in place of the default ones."
    )
    cert_file: FilePath | None = Field(default=None, description="The sidecar's own certificate (PEM).")
    key_file: FilePath | None = Field(
        default=None, description="The private key of `cert_file` (PEM, not encrypted)."
    )

    @model_validator(mode="after")
    def _pair(self) -> TlsConfig:
        if (self.cert_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "cert_file"
            raise ValueError(f"cert_file and key_file go together: {missing} is missing")
        return self
