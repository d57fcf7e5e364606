"""The catalogue of standard metrics that Kafka clients push.

It has units, descriptions and how to add them up.

:mod:`spark_streaming.standard_metric` has it, because the roll-up is shipped without the receiver.
``reference`` generates the reference page.

Units are UCUM's, as in OpenTelemetry: a count has its thing in braces (``{request}``), and ``1`` is
a ratio.

Sources: KIP-714, "Standard producer metrics" and "Standard consumer metrics", and the tables of its
draft; the source code of Kafka, librdkafka and franz-go; captured pushes of each.
"""

from __future__ import annotations

from typing import Final

from spark_streaming.standard_metric import Catalogue, Combination, MetricKind, StandardMetric, load

__all__ = ["CATALOGUE", "Catalogue", "Combination", "MetricKind", "StandardMetric"]

#: The catalogue of this release.
CATALOGUE: Final = load()
