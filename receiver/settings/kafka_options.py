"""Client options of the Kafka store.

They have the names of librdkafka and of Kafka's Java client.

A value is text or a number; that of a login may be ``{file: PATH}``. Such a file is read when the
store connects, so that a new password needs no reload. No error shows a value.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: Accepted options, each with what it sets.
OPTIONS: Final[Mapping[str, str]] = {
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.jaas.config": "jaas",
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.truststore.type": "",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.keystore.type": "",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
}

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: Options whose text may be in a file.
FROM_FILES: Final = ("sasl.username", "sasl.password", "sasl.jaas.config", "ssl.key.password")

#: Options whose text is a secret.
SECRET_OPTIONS: Final = ("sasl.password", "sasl.jaas.config", "ssl.key.password")

#: The values of options that have a choice.
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": MECHANISMS,
    "sasl.mechanisms": MECHANISMS,
    # Java's other types can't be read here.
    "ssl.truststore.type": ("PEM",),
    "ssl.keystore.type": ("PEM",),
    "ssl.endpoint.identification.algorithm": ("https", "none", ""),
}
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, or raise ValueError for an unknown name or a wrong value."""
    targets: dict[str, str] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            close = difflib.get_close_matches(name, OPTIONS, n=1)
            raise ValueError(
                f"{name}: unknown option; "
                + (f"did you mean {close[0]}?" if close else f"known are {', '.join(OPTIONS)}")
            )
        if isinstance(value, dict) and name in FROM_FILES:
            if set(value) != {"file"} or not isinstance(value["file"], str) or not value["file"]:
                raise ValueError(f"{name}: expected text, or {{file: PATH}}")
        elif name == "request.timeout.ms":
            if type(value) is not int or not 1000 <= value <= 60_000:
                raise ValueError(f"{name}: expected an integer, 1000 to 60000")
        elif not isinstance(value, str):
            raise ValueError(f"{name}: expected text{', or {file: PATH}' if name in FROM_FILES else ''}")
        elif name in CHOICES and value not in CHOICES[name]:
            known = ", ".join(choice or '""' for choice in CHOICES[name])
            raise ValueError(f"{name}: expected one of {known}")
        target = OPTIONS[name]
        if target and target in targets:
            raise ValueError(f"{name}: sets the same as {targets[target]}; omit one of them")
        targets[target] = name
    return options


def checked_login(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options.

    Raises ValueError for a login that is incomplete or not used.
    """
    sasl = options.get("security.protocol", "PLAINTEXT") in _SASL
    given = [name for name in options if name.startswith("sasl.")]
    if given and not sasl:
        raise ValueError(
            f"{given[0]}: has no effect with security.protocol "
            f"{options.get('security.protocol', 'PLAINTEXT')}; set that to SASL_SSL"
        )
    if sasl:
        if not {"sasl.mechanism", "sasl.mechanisms"} & options.keys():
            raise ValueError(f"sasl.mechanism: required; give one of {', '.join(MECHANISMS)}")
        if "sasl.jaas.config" in options:
            return options
        for name in ("sasl.username", "sasl.password"):
            if name not in options:
                raise ValueError(f"{name}: required with SASL; give text, or {{file: PATH}}")
    return options


def named_files(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the option and the path of each file that the options name."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield name, str(value.get("file", ""))
        elif name.endswith(".location"):
            yield name, str(value)
