"""Judges a recording: sorts it by client, and runs every check on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from receiver.testkit.checks.check import Check
from receiver.testkit.checks.judged import Judged, Judgement
from receiver.testkit.checks.table import CHECKS
from receiver.testkit.recording import CLIENT, ClientRecording, Connection, Get, Push, Request
from receiver.wire.uuid import RESERVED_UUIDS, Uuid, uuid_to_text

#: A client that was there for less than this sent no more than a probe.
PROBE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientJudgement(Judged):
    """The verdicts on one client."""

    client: ClientRecording

    @property
    def title(self) -> str:
        """Software and client id."""
        return f"{self.client.software or 'unknown'} (client id {self.client.client_id!r})"

    def description(self) -> dict[str, Any]:
        """Return software, ids, brokers, pushes and the steps that the client met."""
        client = self.client
        name, _, version = client.software.partition(" ")
        return {
            "software": client.software or "unknown",
            "software_name": name,
            "software_version": version,
            "client_id": client.client_id,
            "client_instance_ids": list(dict.fromkeys(uuid_to_text(get.assigned) for get in client.gets)),
            "brokers": sorted({connection.node_id for connection in client.connections}),
            "pushes": len(client.pushes),
            "unrecorded_requests": sum(connection.unrecorded for connection in client.connections),
            "steps": list(dict.fromkeys(r.step for r in client.telemetry if r.step)),
        }


def judge(
    connections: Iterable[Connection],
    *,
    ended: float,
    brokers: int,
    script: Sequence[str] = (),
    checks: Sequence[Check] = CHECKS,
    wanted: Callable[[str], bool] = lambda _: True,
) -> list[ClientJudgement]:
    """Judge every client of a recording.

    Args:
        ended: When it ended, in monotonic seconds.
        brokers: The number of brokers that the kit offered.
        script: The names of the script's steps.
        wanted: Says of a client id whether to judge the client.
    """
    judged = []
    for client in clients(connections, ended=ended, brokers=brokers, script=script):
        probe = not client.telemetry and client.lasted_until - client.connections[0].opened < PROBE_S
        if wanted(client.client_id) and not probe:
            verdicts = tuple(Judgement(check, check.judge(client)) for check in checks)
            judged.append(ClientJudgement(client=client, judgements=verdicts))
    return judged


def clients(
    connections: Iterable[Connection], *, ended: float, brokers: int, script: Sequence[str] = ()
) -> list[ClientRecording]:
    """Sort connections by client.

    Connections with the same software and client id are one client, until it has closed all of
    them; the next is another one, unless it has the same client instance id. Clients that have the
    same client id at the same time are told apart by their client instance ids.
    """
    used = [connection for connection in connections if connection.requests or connection.problem]
    known = {connection.client_id: _software(connection) for connection in used if connection.hello}
    groups: dict[tuple[str, str], list[list[Connection]]] = {}
    for connection in sorted(used, key=lambda c: (c.opened, c.number)):
        # A connection may end before the client has named its software.
        software = _software(connection) or known.get(connection.client_id, "")
        lives = groups.setdefault((software, connection.client_id or ""), [])
        if not lives or _is_over(lives[-1], connection.opened):
            lives.append([])
        lives[-1].append(connection)
    found = []
    for (software, client_id), lives in groups.items():
        for life in _continued(lives):
            for part in _apart(life):
                requests = sorted((r for c in part for r in c.requests), key=lambda r: r.at)
                found.append(
                    ClientRecording(
                        software=software,
                        client_id=client_id,
                        connections=part,
                        requests=requests,
                        ended=ended,
                        brokers=brokers,
                        script=tuple(script),
                    )
                )
    return sorted(found, key=lambda client: client.connections[0].opened)


def _software(connection: Connection) -> str:
    hello = connection.hello
    return "" if hello is None else f"{hello.software_name} {hello.software_version}".strip()


def _is_over(life: Sequence[Connection], now: float) -> bool:
    """Return whether a client had closed all its connections by itself."""
    closed = [connection.closed for connection in life if connection.closed is not None]
    if len(closed) < len(life) or max(closed) > now:
        return False
    last = max(life, key=lambda connection: connection.closed or 0.0)
    return last.closed_by == CLIENT


def _continued(lives: Iterable[list[Connection]]) -> list[list[Connection]]:
    """Join lives in which the same instance id was used, with those between."""
    joined: list[list[Connection]] = []
    for life in lives:
        ids = _used_ids(life)
        same = next((index for index, earlier in enumerate(joined) if ids & _used_ids(earlier)), len(joined))
        joined[same:] = [[connection for part in [*joined[same:], life] for connection in part]]
    return joined


def _used_ids(life: Iterable[Connection]) -> set[Uuid]:
    telemetry = (r for c in life for r in c.requests if isinstance(r, Get | Push))
    return {_id(request) for request in telemetry} - RESERVED_UUIDS


def _apart(life: list[Connection]) -> list[list[Connection]]:
    """Tell clients with the same client id apart, if they were there at the same time.

    A client that changes its id never returns to the earlier one. Clients that alternate do.
    """
    ids: list[Uuid] = []
    telemetry = sorted(
        (r for c in life for r in c.requests if isinstance(r, Get | Push)), key=lambda request: request.at
    )
    for request in telemetry:
        if not ids or ids[-1] != _id(request):
            ids.append(_id(request))
    distinct = list(dict.fromkeys(ids))
    if len(ids) == len(distinct):
        return [life]
    parts: dict[Uuid, list[Connection]] = {instance_id: [] for instance_id in distinct}
    for connection in life:
        # A connection without telemetry could be of any of them, and is left out.
        owner = next((_id(r) for r in connection.requests if isinstance(r, Get | Push)), None)
        if owner is not None:
            parts[owner].append(connection)
    return [part for part in parts.values() if part]


def _id(request: Request) -> Uuid:
    return request.assigned if isinstance(request, Get) else request.instance_id  # type: ignore[attr-defined]
