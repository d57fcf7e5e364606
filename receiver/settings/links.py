"""Settings of the console's links: a client's dashboards, logs and traces."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema

from receiver.settings.base import KeyMistakeError, Settings

#: The placeholders of a link: fields of a client as REST shows it.
PLACEHOLDERS: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "principal",
    "owner",
    "group_id",
    "transactional_id",
    "application_id",
    "source_address",
)
_EXPECTED: Final = (
    "expected a URL such as https://grafana.example/d/kct-one-client?var-client={client_id}, with "
    f"placeholders {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
)
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_MAX_CHARS: Final = 2_048
#: Words in names of parameters that hold what must not be in a URL.
_SECRET: Final = re.compile(r"(?i)token|passw|secret|api.?key|access.?key|signature|credential|authorization")


def _checked(text: str) -> str:
    for name in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            raise ValueError(f"unknown placeholder {{{name}}}; {_EXPECTED}")
    plain = _PLACEHOLDER.sub("", text)
    if "{" in plain or "}" in plain:
        raise ValueError("write a brace that begins no placeholder as %7B, and one that ends none as %7D")
    if re.search(r"[\x00-\x20\x7f\\]", text) or not text.isascii():
        raise ValueError(f"other characters than those of a URL must be %-encoded; {_EXPECTED}")
    try:
        parts = urlsplit(text)
        _ = parts.port  # a wrong port raises
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(_EXPECTED)
    if parts.username is not None or parts.password is not None:
        # Named as a key, because an error shows the values of keys that there are.
        raise KeyMistakeError("a URL must not hold a password, because browsers keep it", "password")
    if _PLACEHOLDER.search(parts.netloc):
        raise ValueError("a client must not choose the host: write placeholders behind it")
    for parameter, _ in parse_qsl(f"{parts.query}&{parts.fragment}", keep_blank_values=True):
        if _SECRET.search(parameter):
            raise KeyMistakeError(
                f"a URL must not hold a secret, because browsers keep it: omit the parameter {parameter}; "
                "whoever follows the link logs in there",
                parameter,
            )
    return text


# The form is for the JSON schema only; the validator checks it.
_Template = Annotated[
    str,
    AfterValidator(_checked),
    WithJsonSchema({"type": "string", "maxLength": _MAX_CHARS, "pattern": "^https?://[^/?#@{]+([/?#].*)?$"}),
]


class LinkSettings(Settings):
    """A link on a client's page, for example to its logs."""

    name: str = Field(pattern=r"^[^\x00-\x1f\x7f]{1,40}$")
    """Text of the link: `Grafana`, `Logs`, `Traces`."""
    url: _Template = Field(
        max_length=_MAX_CHARS,
        description="URL with placeholders, which become the client's values, %-encoded: "
        f"{', '.join(f'`{{{name}}}`' for name in PLACEHOLDERS)}. A client that lacks one of them does not "
        "have the link.",
    )
