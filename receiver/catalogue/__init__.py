"""The catalogue of standard metrics: what each metric that Kafka clients push is, in one place.

Whoever has to know a metric's unit, or how its values combine over clients and time, asks here: the receiver,
the roll-up, dashboards. The data is ``standard_metrics.json``; ``standard_metric`` has its shape, and
``reference`` writes docs/metrics.md from it. It imports nothing of the receiver, and must not know what
becomes of a push.

Units are UCUM's, as OpenTelemetry uses them: a count has its thing in braces (``{request}``), and ``1`` is a
ratio, because that is what consumers of OTLP take it for.

Sources: KIP-714, "Standard producer metrics" and "Standard consumer metrics", and its draft's tables; the
names and meanings in Kafka's, librdkafka's and franz-go's own sources; captured pushes of each.
"""

from __future__ import annotations

from typing import Final

from receiver.catalogue.standard_metric import Catalogue, Combination, MetricKind, StandardMetric, load

__all__ = ["CATALOGUE", "Catalogue", "Combination", "MetricKind", "StandardMetric"]

#: The catalogue that is shipped with the receiver.
CATALOGUE: Final = load()
