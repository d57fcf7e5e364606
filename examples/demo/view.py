"""What the terminal shows: one row for each client, who it is and what it pushed.

Owns the drawing; knows nothing of how the facts came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from examples.demo.arrivals import Arrivals

__all__ = ["table"]


def table(
    client_ids: Sequence[str], arrivals: Arrivals, clients: Mapping[str, Mapping[str, Any]], caption: str
) -> Table:
    """Draw who pushes what.

    Args:
        client_ids: The clients, in the order of the rows.
        arrivals: What the collector has.
        clients: What the sidecar's REST API says of a client, by client id; missing where it says nothing.
        caption: The line under the table.
    """
    drawn = Table(title="Who pushes what: from the collector and GET /v1/clients", caption=caption)
    for heading in ("client id", "software", "from", "principal"):
        drawn.add_column(heading, no_wrap=heading == "client id")
    for heading in ("pushes", "metrics", "points", "request latency avg"):
        drawn.add_column(heading, justify="right")
    drawn.add_column("labels")
    for client_id in client_ids:
        arrived, known = arrivals[client_id], clients.get(client_id, {})
        labels = arrived.labels
        latency = arrived.latency_ms
        drawn.add_row(
            client_id,
            f"{labels['client_software_name']} {labels['client_software_version']}" if labels else "...",
            f"{labels['client_source_address']}:{labels['client_source_port']}" if labels else "",
            str(labels.get("principal", "")),
            str(known.get("pushes", "")),
            str(len(arrived.names)),
            str(arrived.points),
            "" if latency is None else f"{latency:.2f} ms",
            "all"
            if arrived.complete
            else ("none yet" if not labels else f"without {sorted(arrived.missing)}"),
        )
    return drawn
