"""POSTs clients' metrics to a URL, for each push one line of JSON: who pushed, and the values."""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
from kafka_client_telemetry import plugin
from pydantic import Field


class WebhookConfig(plugin.PluginConfig):
    """What an operator may set, beside the keys that every plugin has."""

    url: str = Field(pattern="^https?://", description="Where to POST to.")
    token: plugin.Secret | None = Field(default=None, description="Sent as a bearer token.")


class WebhookReceiver(plugin.ClientTelemetryReceiver):
    """The plugin; its calls come one at a time, on a thread of its own."""

    Config = WebhookConfig
    max_batch_items = 500
    config: WebhookConfig

    def start(self) -> None:
        """Open what ``stop`` closes; after a crash both are called again."""
        token = self.config.token
        headers = {"authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        self._http = httpx.Client(headers=headers, timeout=10)

    def export_batch(self, pushes: Sequence[plugin.Push]) -> None:
        """POST the pushes; to raise nothing is to have them delivered."""
        content = "".join(json.dumps(line(push)) + "\n" for push in pushes)
        try:
            answer = self._http.post(self.config.url, content=content)
        except httpx.TransportError as error:
            raise plugin.RetryableError(f"{type(error).__name__}: {error}") from None
        if answer.status_code in {400, 413, 422}:
            # They come again in halves, and at last one by one.
            raise plugin.BatchRefusedError(f"HTTP {answer.status_code}")
        if not answer.is_success:
            # Also 401, 403 and 404, which an operator corrects: the same pushes come again.
            raise plugin.RetryableError(f"HTTP {answer.status_code}")

    def stop(self) -> None:
        """Close the connection."""
        self._http.close()


def line(push: plugin.Push) -> dict[str, Any]:
    """One push as JSON; ``id`` is the same when it is delivered a second time."""
    key = "-".join(map(str, push.identity))
    return {"id": key, **dataclasses.asdict(push.context), "values": list(values(push.payload))}


def values(payload: plugin.ClientTelemetryPayload) -> Iterator[dict[str, Any]]:
    """The points of gauges, sums and histograms; KIP-714's standard metrics are nothing else."""
    for resource in payload.metrics.resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in metric.sum.data_points or metric.gauge.data_points:
                number = point.as_int or point.as_double  # only one is set
                if math.isfinite(number):  # JSON has no other numbers
                    yield {**named(metric, point), "value": number}
            for histogram in metric.histogram.data_points:
                counts = {"bounds": [*histogram.explicit_bounds], "buckets": [*histogram.bucket_counts]}
                yield {**named(metric, histogram), "count": histogram.count, **counts}


def named(metric: Any, point: Any) -> dict[str, Any]:
    """The metric of a point and its attributes."""
    attributes = {a.key: a.value.string_value or a.value.int_value for a in point.attributes}
    return {"name": metric.name, "attributes": attributes}
