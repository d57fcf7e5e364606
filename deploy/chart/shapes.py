"""Shapes of values as JSON schema, which the comments of values.yaml refer to by name.

They are Kubernetes' and of the chart's own lists. :mod:`deploy.chart.configurations` has those of
the receiver's and the roll-up's configurations.
"""

from __future__ import annotations

from typing import Any, Final

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_NAME: Final[dict[str, Any]] = {"type": "string", "minLength": 1}
_PORT: Final[dict[str, Any]] = {"type": "integer", "minimum": 1024, "maximum": 65_535}
_QUANTITY: Final[dict[str, Any]] = {
    "type": ["string", "number"],
    "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
}
_SECONDS: Final[dict[str, Any]] = {"type": "integer", "minimum": 1}


def _object(properties: dict[str, Any], *required: str, further: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": further}
    return shape | {"required": list(required)} if required else shape


#: Each shape by its name, as JSON schema.
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "port": _PORT,
    "optionalPort": _PORT | {"type": ["integer", "null"]},
    "labels": {"type": "object", "additionalProperties": _TEXT},
    "secretReference": _object({"name": _NAME}, "name"),
    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "dnsLabel": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
    # The prefix of names of Services.
    "namePrefix": {"type": "string", "pattern": "^([a-z]([a-z0-9-]{0,61}[a-z0-9])?)?$"},
    "quantity": _QUANTITY,
    "duration": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
    "sparkMemory": {"type": "string", "pattern": "^[0-9]+[kmgt]$"},
    # Environment variables, volumes and mounts. Kubernetes checks their other keys.
    "named": _object({"name": _NAME}, "name", further=True),
    "resources": _object(
        {
            name: {"type": "object", "additionalProperties": {"$ref": "quantity"}}
            for name in ("requests", "limits")
        }
        | {"claims": {"type": "array"}}
    ),
    "probe": _object(
        {
            "periodSeconds": _SECONDS,
            "timeoutSeconds": _SECONDS,
            "failureThreshold": _SECONDS,
            "successThreshold": _SECONDS,
            "initialDelaySeconds": {"type": "integer", "minimum": 0},
            "terminationGracePeriodSeconds": _SECONDS,
        }
    ),
    "token": _object(
        {
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_.@-]{1,64}$"},
            "role": {"enum": ["viewer", "editor"]},
            "secretName": _NAME,
            "key": _NAME,
        },
        "name",
        "role",
        "secretName",
        "key",
    ),
    "secretMount": _object(
        {
            "secretName": _NAME,
            "mountPath": {"type": "string", "pattern": "^/"},
            "items": {"type": "array", "items": {"type": "object"}},
        },
        "secretName",
        "mountPath",
    ),
    "broker": _object(
        {
            # A port's name is `broker-` and the id, and has 15 letters at most.
            "id": {"type": "integer", "minimum": 0, "maximum": 99_999_999},
            "upstream": {"type": "string", "pattern": "^.+:[0-9]{1,5}$"},
            "port": _PORT,
            "nodePort": {"type": "integer", "minimum": 1, "maximum": 65_535},
            "listener": {"$ref": "listenerOverrides"},
        },
        "id",
        "upstream",
        "port",
    ),
}
