"""The table of names in docs/prometheus.md, by the function that names; ``python -m`` this writes it anew."""

from __future__ import annotations

from pathlib import Path

from plugins._shared.cumulative import Kind
from plugins.prometheus.names import metric_name
from receiver.catalogue import CATALOGUE, MetricKind

PAGE = Path(__file__).parents[4] / "docs" / "prometheus.md"
BEGIN = "<!-- names: made by `python -m tests.unit.plugins.prometheus.name_table` -->\n"
END = "<!-- end of names -->\n"

_KINDS = {
    MetricKind.GAUGE: Kind.GAUGE,
    MetricKind.SUM: Kind.COUNTER,
    MetricKind.HISTOGRAM: Kind.HISTOGRAM,
}


def table() -> str:
    """Markdown: each standard metric with its unit and its name in Prometheus."""
    rows = ["| metric | unit | in Prometheus |\n", "|---|---|---|\n"]
    for metric in CATALOGUE:
        if metric.clients == ("rollup",):  # made by the roll-up, which the plugin never sees
            continue
        named = metric_name(metric.name, metric.unit or "", _KINDS[metric.kind])
        unit = f"`{metric.unit}`" if metric.unit else ""
        short, name = metric.name.removeprefix("org.apache.kafka."), named.name
        rows.append(f"| `{short}` | {unit} | `{name.removeprefix('org_apache_kafka_')}` |\n")
    return "".join(rows)


def page_with_table(page: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
