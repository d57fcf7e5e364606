"""Generates the reference of metrics from the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from spark_streaming.standard_metric import Catalogue, StandardMetric

_PREFIX: Final = "org.apache.kafka."
_DRAFT: Final = _PREFIX + "client."

_HEAD: Final = """\
# Standard metrics

<!-- Made by `python -m receiver.catalogue`; change spark_streaming/standard_metrics.json, not it. -->

The metrics that Kafka clients push. The receiver adds the unit and the description where a client
sends none (`telemetry.normalization`). The roll-up reads how values combine. Any other metric passes
through unchanged. All names begin with `org.apache.kafka.` unless they are written in full.

*Unit* is UCUM's: a count has its thing in braces, `1` is a ratio. *By* has the attributes of a metric's
series. A metric with two levels, such as *all; topic*, counts the same things in both, so add only one
of them. *Combines* is how a roll-up combines values over time and clients:

| combines | over time and clients |
|---|---|
| sum | deltas add up; a rate is the sum divided by the time |
| rate | the mean over time of each client, then the sum over clients |
| last | each client's last value, then the sum over clients |
| max, min | the greatest value, the least |
| distribution | quantiles over clients, never a sum; histograms merge by bucket |
| none | not combined: the value is an id or a point in time |

When clients push less than once a minute, the roll-up shows a *rate* too small. The sum beside it is
exact: each `.rate` has a `.total` ([rollup-tables.md](rollup-tables.md#rates-and-how-often-clients-push)).
"""


def reference(catalogue: Catalogue) -> str:
    """Return the page as Markdown."""
    released = [metric for metric in catalogue if not metric.name.startswith(_DRAFT)]
    draft = [metric for metric in catalogue if metric.name.startswith(_DRAFT)]
    sections: tuple[tuple[str, str, Callable[[StandardMetric], bool]], ...] = (
        (
            "Required by KIP-714",
            "KIP-714 requires these of every producer or consumer; some clients lack some of them.",
            lambda metric: metric.required,
        ),
        ("Producers", "", lambda metric: metric.name.startswith(f"{_PREFIX}producer.")),
        ("Share consumers", "", lambda metric: metric.name.startswith(f"{_PREFIX}consumer.share.")),
        ("Consumers", "", lambda metric: metric.name.startswith(f"{_PREFIX}consumer.")),
        ("Others", "", lambda _: True),
    )
    parts = [_HEAD]
    for title, text, belongs in sections:
        metrics = [metric for metric in released if belongs(metric)]
        released = [metric for metric in released if not belongs(metric)]
        parts.append(_section(title, text, "sent by", metrics, lambda metric: ", ".join(metric.clients)))
    parts.append(
        _section(
            "The draft's metrics",
            "KIP-714's draft had other metrics. No released client sends them; a client built to the "
            "draft may. `.avg60s` is the average that a client may send instead of the histogram; the "
            "number is the period, so `.avg10s` is the same metric. The draft's attribute `broker_id` is "
            "`node_id` here, because the receiver renames it.",
            "released as",
            draft,
            lambda metric: ", ".join(f"`{_short(name)}`" for name in metric.released_names),
        )
    )
    return "".join(parts)


def _section(
    title: str,
    text: str,
    column: str,
    metrics: Iterable[StandardMetric],
    value: Callable[[StandardMetric], str],
) -> str:
    paragraph = f"{text}\n\n" if text else ""
    head = f"| name | kind | unit | by | combines | {column} | description |\n|---|---|---|---|---|---|---|\n"
    rows = "".join(
        _row(
            (
                f"`{_short(metric.name)}`",
                metric.kind,
                _unit(metric),
                _by(metric),
                metric.combines,
                value(metric),
                metric.description,
            )
        )
        for metric in metrics
    )
    return f"\n## {title}\n\n{paragraph}{head}{rows}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _short(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _unit(metric: StandardMetric) -> str:
    return "" if metric.unit is None else f"`{metric.unit}`"


def _by(metric: StandardMetric) -> str:
    if metric.by == ((),):
        return ""
    return "; ".join(", ".join(keys) or "all" for keys in metric.by)
