"""``/v1/clients/{id}/values``: the values of a client's latest pushes.

Pushes are decoded here, in the thread for long reads, and nowhere before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Query, Response
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData
from pydantic import BaseModel, Field

from receiver.api.background import in_background, json_response
from receiver.api.cluster import MemberView, ScopeQuery, use_answers
from receiver.api.dependencies import ApiDependencies, Dependencies
from receiver.api.problems import ProblemError, problem_answers
from receiver.api.routes.clients import ClientInstanceId, require_client
from receiver.catalogue import CATALOGUE
from receiver.clock import wall_time
from receiver.numbers import whole_number
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.latest_pushes import MAX_PUSHES, KeptPush
from receiver.telemetry.subscription_document import time_to_text

router = APIRouter(prefix="/v1/clients", tags=["clients"], responses=problem_answers(422))

#: Nanoseconds since the epoch fit in so many bits.
_MAX_NS: Final = 2**63 - 1
#: Most data points of an answer's push. A push may have thousands; a person reads fewer.
_MAX_POINTS: Final = 2_000


class PointView(BaseModel):
    """A data point."""

    attributes: dict[str, str]
    value: float | None = Field(description="Of a histogram or a summary, its sum; null: it has none.")
    count: int | None = Field(description="Of a histogram or a summary, how many were observed; else null.")


class MetricView(BaseModel):
    """A metric of a push."""

    name: str
    kind: str = Field(description="`gauge`, `sum`, `histogram`, `exponential_histogram` or `summary`.")
    unit: str | None = Field(description="In UCUM; null: neither the client nor the catalogue has one.")
    description: str | None = Field(description="The catalogue's; null: it does not know the metric.")
    delta: bool = Field(description="Whether each value counts from the push before.")
    points: list[PointView]


class PushView(BaseModel):
    """A push and its values, normalised as destinations get them."""

    received_at: str = Field(description="RFC 3339, UTC.")
    bytes: int = Field(description="Bytes of OTLP.")
    cut: bool = Field(description=f"Whether it has more data points than the {_MAX_POINTS:,} that are shown.")
    metrics: list[MetricView]


class ValuesView(BaseModel):
    """The latest pushes of a client instance, the oldest first."""

    items: list[PushView]
    next: str | None = Field(description="Send it as `after` for the pushes that follow; null: none is kept.")
    members: list[MemberView] | None = Field(default=None, description="With `scope=cluster`: as in a list.")


class _ValuesQuery(ScopeQuery):
    after: str | None = Field(
        default=None,
        max_length=20,
        description="`next` of an earlier answer; omitted: all pushes that are kept.",
    )


@router.get(
    "/{client_instance_id}/values",
    summary="Show the values of a client's latest pushes",
    responses={
        200: {"model": ValuesView, "description": "The pushes that are kept."},
        **problem_answers(404),
    },
)
async def show_values(
    dependencies: Dependencies, client_instance_id: ClientInstanceId, query: Annotated[_ValuesQuery, Query()]
) -> Response:
    """Show the values of the latest push that is kept.

    For two minutes after each such request, the receiver keeps the last 60 pushes of this client
    instance. `telemetry.latest_pushes_bytes` bounds the pushes of all of them.
    """
    if query.scope is AnswerScope.CLUSTER:
        return json_response(await _in_cluster(dependencies, client_instance_id, query))
    return json_response(await _own(dependencies, client_instance_id, query))


async def _own(dependencies: ApiDependencies, client_instance_id: str, query: _ValuesQuery) -> dict[str, Any]:
    client = require_client(dependencies, client_instance_id)
    after = whole_number(query.after or "", _MAX_NS) or 0
    kept = dependencies.telemetry.latest_pushes.look(client.id, dependencies.monotonic())
    return await in_background(_document, kept, after)


async def _in_cluster(
    dependencies: ApiDependencies, client_instance_id: str, query: _ValuesQuery
) -> dict[str, Any]:
    """Return the pushes that the receivers of the cluster keep, the oldest first."""
    unknown: ProblemError | None = None
    documents: list[dict[str, Any]] = []
    try:
        documents.append(await _own(dependencies, client_instance_id, query))
    except ProblemError as error:
        if error.response.status_code != 404:
            raise
        unknown = error
    parameters = query.model_dump(mode="json", exclude_none=True, exclude={"scope"})
    answers = await dependencies.cluster.ask(f"/v1/clients/{client_instance_id}/values", parameters)

    def read(_: str, document: object) -> None:
        match document:
            case {"items": list(items), "next": None | str()} if all(_has_time(item) for item in items):
                documents.append(cast("dict[str, Any]", document))
            case {"status": 404}:
                pass
            case _:
                raise ValueError("it has no pushes")

    members = use_answers(dependencies.cluster, answers, read)
    if unknown is not None and not documents:
        raise unknown
    items = [item for document in documents for item in document["items"]]
    ends = [whole_number(document["next"] or "", _MAX_NS) or 0 for document in documents]
    return {
        "items": sorted(items, key=_received_at)[-MAX_PUSHES:],
        "next": str(max(ends)) if any(ends) else None,
        "members": members,
    }


def _received_at(item: dict[str, Any]) -> str:
    # Without the zone, a whole second comes before its parts.
    return str(item["received_at"]).removesuffix("Z")


def _has_time(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("received_at"), str)


def _document(kept: Sequence[KeptPush], after: int) -> dict[str, Any]:
    return {
        "items": [_push(push) for push in kept if push.received_at_ns > after],
        "next": str(kept[-1].received_at_ns) if kept else None,
    }


def _push(push: KeptPush) -> dict[str, Any]:
    metrics: list[dict[str, Any]] = []
    left = _MAX_POINTS
    data = MetricsData.FromString(push.data)
    for metric in _metrics(data):
        view = _metric(metric)
        points = view["points"]
        view["points"] = points[: max(left, 0)]
        if view["points"]:
            metrics.append(view)
        left -= len(points)
    return {
        "received_at": time_to_text(wall_time(push.received_at_ns)),
        "bytes": len(push.data),
        "cut": left < 0,
        "metrics": metrics,
    }


def _metrics(data: MetricsData) -> Iterable[Metric]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


def _metric(metric: Metric) -> dict[str, Any]:
    known = CATALOGUE.metric(metric.name)
    kind = metric.WhichOneof("data") or "gauge"
    data = getattr(metric, kind)
    delta = (
        getattr(data, "aggregation_temporality", 0) == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    )
    return {
        "name": metric.name,
        "kind": kind,
        "unit": metric.unit or (None if known is None else known.unit),
        "description": None if known is None else known.description,
        "delta": delta,
        "points": [_point(point, kind) for point in data.data_points],
    }


def _point(point: Any, kind: str) -> dict[str, Any]:
    attributes = {attribute.key: _text(attribute.value) for attribute in point.attributes}
    if kind in {"gauge", "sum"}:
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        return {"attributes": attributes, "value": _finite(float(value)), "count": None}
    has_sum = kind == "summary" or point.HasField("sum")
    return {"attributes": attributes, "value": _finite(point.sum) if has_sum else None, "count": point.count}


def _text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind)).strip()


def _finite(value: float) -> float | None:
    """Return a value that JSON has; NaN and infinities are no numbers there."""
    return value if value - value == 0 else None
