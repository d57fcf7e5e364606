"""What the terminal shows: each client and what it pushed, then what the roll-up made of it.

Owns the drawing; knows nothing of how the facts came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from examples.demo.arrivals import Arrivals, ClientArrivals
from examples.demo.rolled_up import Summary


def view(
    client_ids: Sequence[str],
    arrivals: Arrivals,
    clients: Mapping[str, Mapping[str, Any]],
    summary: Summary,
    hints: Sequence[str],
    signs: Sequence[str],
) -> Group:
    """Draw who pushes what and what it comes to, in eighty columns.

    Args:
        client_ids: The clients, in the order of the rows.
        arrivals: What the collector has.
        clients: What the sidecar's REST API says of a client, by client id; missing where it says
            nothing.
        summary: What PostgreSQL has.
        signs: What the latest pushes showed to be wrong, a line each.
        hints: Lines under the tables: where to look, how to stop.
    """
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, title="Who pushes what", title_justify="left")
    drawn.add_column("client id", no_wrap=True)
    drawn.add_column("software, from", overflow="fold")
    for heading in ("pushes", "metrics", "latency"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("labels")
    for client_id in client_ids:
        arrived, known = arrivals[client_id], clients.get(client_id, {})
        labels = arrived.labels
        latency = arrived.latency_ms
        drawn.add_row(
            client_id,
            _origin(labels) if labels else "...",
            str(known.get("pushes", "")),
            str(len(arrived.names)),
            "" if latency is None else f"{latency:.1f} ms",
            _verdict(arrived),
        )
    shown = [Text(sign, style="bold", overflow="fold") for sign in signs]
    return Group(drawn, *shown, *_rolled_up(summary), *(Text(hint, overflow="fold") for hint in hints))


def _rolled_up(summary: Summary) -> list[Table | Text]:
    title = "What is rolled up in PostgreSQL"
    if not summary.software:
        return [Text(f"{title}: nothing yet, Spark starts", style="italic"), Text()]
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    drawn.add_column("software", overflow="fold")
    for heading in ("clients", "pushes", "points", "metrics", "sent", "consumed", "latency"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for item in summary.software:
        drawn.add_row(
            f"{item.name} {item.version}",
            *(str(count) for count in (item.clients, item.pushes, item.points, item.metrics)),
            *("" if records is None else f"{records:.0f}" for records in (item.sent, item.consumed)),
            "" if item.latency_ms is None else f"{item.latency_ms:.0f} ms",
        )
    findings = [
        Text(f"{finding.severity}: {finding.summary}", overflow="fold") for finding in summary.findings
    ]
    return [drawn, *(findings or [Text("no findings")]), Text()]


def _origin(labels: Mapping[str, object]) -> str:
    software = f"{labels.get('client_software_name')} {labels.get('client_software_version')}"
    return f"{software}\n{labels.get('client_source_address')}:{labels.get('client_source_port')}"


def _verdict(arrived: ClientArrivals) -> str:
    if arrived.complete:
        return "all"
    return f"without {sorted(arrived.missing)}" if arrived.labels else "none yet"
