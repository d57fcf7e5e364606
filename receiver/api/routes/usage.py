"""``/v1/usage``: what clients have used, day by day."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from receiver.api.background import in_background
from receiver.api.cluster import Cluster, ClusterPage, ScopedPageQuery, answer_list, cluster_page
from receiver.api.dependencies import Dependencies
from receiver.api.filters import Pattern, matches, pattern_field
from receiver.api.pages import MAX_LIMIT, first_page
from receiver.api.problems import InvalidError, ProblemError, field_error, problem_answers
from receiver.cluster.merge import Item, Order
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.identity import recorded_identity
from receiver.telemetry.owners import Owners
from receiver.traffic.order import UsageGroup
from receiver.traffic.usage_store import Amounts, UsageRow

router = APIRouter(prefix="/v1/usage", tags=["usage"], responses=problem_answers(422, 503))

#: Day, value of the group, and what was used.
_Used: TypeAlias = tuple[str, str, Amounts]

#: Days that are shown unless ``since`` is given.
_DEFAULT_DAYS: Final = 30


def _day(value: Any) -> Any:
    """Take a time for its day in UTC, and an empty text for none."""
    if value == "":
        return None
    if isinstance(value, str) and len(value) > len("2026-11-29"):
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
        except (ValueError, OverflowError):
            return value
    return value


_Date = Annotated[date, Field(ge=date(2000, 1, 1))]
_Day = Annotated[_Date | None, BeforeValidator(_day, json_schema_input_type=str | None)]


class UsageQuery(ScopedPageQuery):
    """The query parameters of ``/v1/usage``."""

    by: UsageGroup = Field(default=UsageGroup.PRINCIPAL, description="What to add the usage of a day up by.")
    since: _Day = Field(
        default=None,
        description="The first day (`2026-11-29`, UTC), or a time in it; omitted or empty: 30 days ago.",
    )
    until: _Day = Field(default=None, description="The last day; omitted or empty: today.")
    principal: Pattern | None = pattern_field("principal")
    client_id: Pattern | None = pattern_field("client id")


class UsageView(BaseModel):
    """What was used in a day. Bytes are those of Kafka's protocol, without TLS."""

    day: str = Field(description="The day in UTC.")
    principal: str | None = Field(default=None, description="With `by=principal`.")
    client_id: str | None = Field(default=None, description="With `by=client_id`.")
    owner: str | None = Field(
        default=None,
        description="With `by=owner`: whose the principal and client id are by `owners`; empty: nobody's.",
    )
    bytes_in: int = Field(description="Bytes from clients.")
    bytes_out: int = Field(description="Bytes to clients.")
    requests: int = Field(description="Requests of clients.")
    connections: int = Field(description="Connections that began.")


_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": ClusterPage[UsageView], "description": "A page; with `Accept: text/csv` all rows as CSV."},
}


@router.get("", summary="Show what clients have used, day by day", responses=_RESPONSES)
async def list_usage(
    dependencies: Dependencies, query: Annotated[UsageQuery, Query()], request: Request
) -> Response:
    """Show what each principal, or each client id, has used in each day (UTC).

    Everything that was counted before the request is in it.
    """
    today = dependencies.now().date()
    until = query.until or today
    since = query.since or until - timedelta(days=_DEFAULT_DAYS)
    if since > until:
        raise InvalidError(field_error(("since",), since.isoformat(), f"must not be after until ({until})"))
    rows = await dependencies.traffic.read(lambda store: store.usage(since.isoformat(), until.isoformat()))
    grouped = partial(_grouped, rows, owners=dependencies.telemetry.owners)
    if not _wants_csv(request):
        order = _order(query.by)
        return await answer_list(
            dependencies.cluster, "/v1/usage", query, lambda asked: _page(grouped(asked), asked), order
        )
    found = (
        await in_background(grouped, query)
        if query.scope is AnswerScope.RECEIVER
        else await _of_cluster(dependencies.cluster, query, rows, since, until, dependencies.telemetry.owners)
    )
    return Response(_csv(found, query.by), media_type="text/csv; charset=utf-8")


async def _of_cluster(
    cluster: Cluster, query: UsageQuery, rows: Iterable[UsageRow], since: date, until: date, owners: Owners
) -> list[_Used]:
    """Return the usage of all receivers, read day by day.

    Raises:
        ProblemError: A receiver did not answer, without which the sums are too small.
    """
    own: dict[str, list[UsageRow]] = {}
    for row in rows:
        own.setdefault(row.day, []).append(row)
    found: list[_Used] = []
    day, after = since, None
    while day <= until:
        asked = query.model_copy(update={"since": day, "until": day, "after": after, "limit": MAX_LIMIT})
        used = await in_background(_grouped, own.get(day.isoformat(), ()), asked, owners=owners)
        page = await cluster_page(cluster, "/v1/usage", asked, partial(_page, used), _order(query.by))
        missing = [f"{member['url']}: {member['problem']}" for member in page["members"] if member["problem"]]
        if missing:
            raise ProblemError(503, f"the usage of the cluster is not complete: {'; '.join(missing)}")
        for item in page["items"]:
            amounts = Amounts(*(item[name] for name in Amounts._fields))
            found.append((item["day"], item[query.by.value], amounts))
        after = page["next"]
        if after is None:
            day += timedelta(days=1)
    return found


def _order(by: UsageGroup) -> Order:
    def position(item: Item) -> tuple[str, str]:
        return str(item["day"]), str(item[by.value])

    def combine(items: Sequence[Item]) -> Item:
        sums = {name: sum(int(item[name]) for item in items) for name in Amounts._fields}
        return {"day": items[0]["day"], by.value: items[0][by.value], **sums}

    return Order(position=position, cursor=lambda item: "/".join(position(item)), combine=combine)


def _grouped(rows: Iterable[UsageRow], query: UsageQuery, *, owners: Owners) -> list[_Used]:
    """Return day, value and amounts, in order."""
    sums: dict[tuple[str, str], Amounts] = {}
    wants_principal, wants_client_id = matches(query.principal), matches(query.client_id)
    for row in rows:
        if wants_principal(row.principal) and wants_client_id(row.client_id):
            value = _value(row, query.by, owners)
            known = sums.get((row.day, value))
            sums[row.day, value] = row.amounts if known is None else known.plus(row.amounts)
    return [(*key, sums[key]) for key in sorted(sums)]


def _value(row: UsageRow, by: UsageGroup, owners: Owners) -> str:
    if by is UsageGroup.OWNER:
        return owners.team_of(recorded_identity(row.principal, row.client_id)) or ""
    return row.principal if by is UsageGroup.PRINCIPAL else row.client_id


def _page(rows: Sequence[_Used], query: UsageQuery) -> dict[str, Any]:
    if query.after is not None:
        day, _, value = query.after.partition("/")
        rows = [row for row in rows if row[:2] > (day, value)]
    page, following = first_page(rows, query.limit, lambda row: f"{row[0]}/{row[1]}", lambda row: row[:2])
    items = [{"day": day, query.by.value: value, **used._asdict()} for day, value, used in page]
    return {"items": items, "next": following}


def _wants_csv(request: Request) -> bool:
    accepted = [part.partition(";")[0].strip() for part in request.headers.get("accept", "").split(",")]
    return "text/csv" in accepted and "application/json" not in accepted


def _csv(rows: Sequence[_Used], by: UsageGroup) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("day", by.value, *Amounts._fields))
    writer.writerows((day, _cell(value), *used) for day, value, used in rows)
    return text.getvalue()


def _cell(text: str) -> str:
    """Return a text, which a client chose, that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
