"""The console plugin: writes one text to stdout for each push."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from plugins.console.config import ConsoleConfig
from plugins.console.points import FlatPoint, flat_points
from receiver.plugin import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ClientTelemetryReceiver,
    PermanentError,
)

#: Values that need no quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]+")


class ConsoleReceiver(ClientTelemetryReceiver):
    """Prints pushes on stdout."""

    Config: ClassVar[type[ConsoleConfig]] = ConsoleConfig

    def __init__(self, config: ConsoleConfig) -> None:
        super().__init__(config)
        self._text = _json if config.format == "json" else _line
        self._with_points = config.metrics

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Print one push."""
        points = list(flat_points(payload.metrics))
        text = self._text(_summary(context, payload, points), points if self._with_points else None)
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            raise PermanentError(f"stdout cannot be written: {error}") from None

    def check_destination(self, timeout_s: float) -> str:
        """Stdout is always there."""
        return "prints on stdout"


def _summary(
    context: ClientTelemetryContext, payload: ClientTelemetryPayload, points: list[FlatPoint]
) -> dict[str, str | int | bool]:
    received = datetime.fromtimestamp(context.received_at_ns / 1e9, UTC)
    return {
        "time": received.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "client_id": context.client_id,
        "client_instance_id": payload.client_instance_id,
        "client_software_name": context.client_software_name,
        "client_software_version": context.client_software_version,
        "principal": context.principal,
        **({} if context.sasl_mechanism is None else {"sasl_mechanism": context.sasl_mechanism}),
        "listener": context.listener,
        "source": f"{context.source_address}:{context.source_port}",
        "metrics": len({point.name for point in points}),
        "points": len(points),
        "bytes": len(payload.data),
        "terminating": payload.terminating,
        **({"disconnected": True} if payload.disconnected else {}),
    }


def _line(summary: Mapping[str, str | int | bool], points: list[FlatPoint] | None) -> str:
    lines = ["push " + " ".join(f"{key}={_quoted(value)}" for key, value in summary.items())]
    for point in points or ():
        labels = ",".join(f"{_quoted(key)}={json.dumps(value)}" for key, value in point.attributes.items())
        value = "no value" if point.value is None else point.value
        count = "" if point.count is None else f" count={point.count}"
        lines.append(f"  {_quoted(point.name)}{{{labels}}} {value}{count}")
    return "\n".join(lines) + "\n"


def _json(summary: Mapping[str, str | int | bool], points: list[FlatPoint] | None) -> str:
    document: dict[str, Any] = dict(summary)
    if points is not None:
        document["data_points"] = [
            {
                "name": point.name,
                "attributes": {key: _number(value) for key, value in point.attributes.items()},
                "value": _number(point.value),
                **({} if point.count is None else {"count": point.count}),
            }
            for point in points
        ]
    return json.dumps(document) + "\n"


def _number(value: str | float | None) -> str | float | None:
    # JSON has no NaN and no infinity.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _quoted(value: str | int) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    # ASCII only, so that a client's name cannot send control characters to the terminal.
    return json.dumps(value)
