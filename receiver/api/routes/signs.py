"""``/v1/signs``: which clients' latest pushes say that something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias, cast

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from receiver.api.background import in_background, json_response
from receiver.api.cluster import Cluster, MemberView, ScopeQuery, use_answers
from receiver.api.dependencies import Dependencies
from receiver.api.filters import client_owner
from receiver.api.pages import MAX_LIMIT, LimitQuery
from receiver.api.problems import problem_answers
from receiver.catalogue import CATALOGUE
from receiver.clock import wall_time
from receiver.cluster.members import MemberAnswer
from receiver.settings.cluster import AnswerScope
from receiver.telemetry.instance import ClientInstance
from receiver.telemetry.latest_pushes import KeptPush
from receiver.telemetry.owners import Owners
from receiver.telemetry.signs import RULES, Sign, SignKind, signs
from receiver.telemetry.subscription_document import time_to_text
from receiver.wire.uuid import Uuid

router = APIRouter(prefix="/v1/signs", tags=["clients"], responses=problem_answers(422))

_Pushed: TypeAlias = tuple[ClientInstance, KeptPush]

_ORDER: Final = {kind: number for number, kind in enumerate(SignKind)}


class SignView(BaseModel):
    """A sign of a client instance."""

    kind: SignKind
    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    principal: str
    owner: str | None = Field(description="The name of its owner (`owners`); null: nobody declares it.")
    group_id: str | None
    metric: str = Field(description="The metric that shows it.")
    value: float
    unit: str | None = Field(description="Of the value, in UCUM.")
    since: str = Field(
        description="The first of the pushes in a row that have it, of those that were read here (RFC 3339)."
    )
    received_at: str = Field(description="When the latest push arrived (RFC 3339).")
    meaning: str
    advice: str
    receiver: str | None = Field(
        default=None, description="With `scope=cluster`: the receiver that had the latest push."
    )


class SignsView(BaseModel):
    """The signs, the most urgent first."""

    items: list[SignView]
    read: int = Field(description="Client instances whose latest push is kept, and was read.")
    clients: int = Field(description="All known client instances.")
    members: list[MemberView] | None = Field(
        default=None,
        description="With `scope=cluster`: as in a list. `read` and `clients` are the sums of all receivers.",
    )


class SignsQuery(LimitQuery, ScopeQuery):
    """The query parameters of ``/v1/signs``."""


class SignReader:
    """Reads each push once, in the thread for long reads, and remembers its signs."""

    def __init__(self) -> None:
        self._known: dict[Uuid, tuple[int, dict[SignKind, tuple[Sign, int]]]] = {}

    def read(self, pushed: Sequence[_Pushed], owners: Owners, limit: int) -> list[dict[str, Any]]:
        """Return the documents of the signs, at most ``limit``."""
        known, self._known = self._known, {}
        found = []
        for client, push in pushed:
            at, before = known.get(client.id, (0, {}))
            if at != push.received_at_ns:
                before = {
                    sign.kind: (sign, before[sign.kind][1] if sign.kind in before else push.received_at_ns)
                    for sign in signs(push.data)
                }
            self._known[client.id] = push.received_at_ns, before
            found += [(client, push, sign, since) for sign, since in before.values()]
        found.sort(key=lambda entry: (_ORDER[entry[2].kind], entry[3], entry[0].text_id))
        return [_document(*entry, owners) for entry in found[:limit]]


@router.get(
    "",
    summary="List the clients whose latest push shows that something is wrong",
    responses={200: {"model": SignsView, "description": "The signs."}},
)
async def list_signs(
    dependencies: Dependencies, request: Request, query: Annotated[SignsQuery, Query()]
) -> Response:
    """List what clients' latest pushes show: throttling, errors, slowness, rebalances.

    Pushes are read when somebody asks, so `since` goes back to the first request that saw the sign.
    """
    now = dependencies.monotonic()
    clients = [client for client in dependencies.telemetry.instances if not client.is_expired(now)]
    latest = dependencies.telemetry.latest_pushes
    pushed = [(client, push) for client in clients if (push := latest.latest(client.id)) is not None]
    reader = cast("SignReader", request.app.state.sign_reader)
    is_cluster = query.scope is AnswerScope.CLUSTER
    limit = MAX_LIMIT if is_cluster else query.limit
    items = await in_background(reader.read, pushed, dependencies.telemetry.owners, limit)
    document = {"items": items, "read": len(pushed), "clients": len(clients)}
    if is_cluster:
        answers = await dependencies.cluster.ask("/v1/signs", {"limit": limit})
        document = await in_background(_together, dependencies.cluster, document, answers, query.limit)
    return json_response(document)


def _together(
    cluster: Cluster, own: dict[str, Any], answers: Sequence[MemberAnswer], limit: int
) -> dict[str, Any]:
    """Put the receivers' signs together.

    Of a client that several know, the latest push counts.
    """
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    sums = {"read": 0, "clients": 0}

    def read(receiver: str, document: object) -> None:
        match document:
            case {"items": list(items), "read": int(with_push), "clients": int(clients)}:
                pass
            case _:
                raise ValueError("it has no signs")
        try:
            found = [({**item, "receiver": receiver}, _position(item), item["received_at"]) for item in items]
        except (KeyError, TypeError, ValueError):
            raise ValueError("a sign lacks what the list is ordered by") from None
        for item, *_ in found:
            key = item["client_instance_id"], item["kind"]
            if key not in latest or latest[key]["received_at"] < item["received_at"]:
                latest[key] = item
        sums["read"] += with_push
        sums["clients"] += clients

    read(cluster.receiver_id, own)
    members = use_answers(cluster, answers, read)
    return {"items": sorted(latest.values(), key=_position)[:limit], **sums, "members": members}


def _position(item: dict[str, Any]) -> tuple[int, str, str]:
    """Return the place of a sign in the list."""
    # Without the zone, a whole second comes before its parts.
    since = str(item["since"]).removesuffix("Z")
    return _ORDER[SignKind(item["kind"])], since, str(item["client_instance_id"])


def _document(
    client: ClientInstance, push: KeptPush, sign: Sign, since_ns: int, owners: Owners
) -> dict[str, Any]:
    identity, rule, metric = client.identity, RULES[sign.kind], CATALOGUE.metric(sign.metric)
    return {
        "kind": sign.kind,
        "client_instance_id": client.text_id,
        "client_id": identity.client_id,
        "client_software_name": identity.client_software_name,
        "client_software_version": identity.client_software_version,
        "principal": identity.principal,
        "owner": client_owner(client, owners),
        "group_id": client.revealed.group_id,
        "metric": sign.metric,
        "value": sign.value,
        "unit": None if metric is None else metric.unit,
        "since": time_to_text(wall_time(since_ns)),
        "received_at": time_to_text(wall_time(push.received_at_ns)),
        "meaning": rule.meaning,
        "advice": rule.advice,
    }
