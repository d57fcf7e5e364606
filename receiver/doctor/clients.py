"""Findings about subscriptions and clients: what matches, and who pushes when.

Pure. It works on the documents of the REST API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from receiver.amounts import count_text
from receiver.doctor.findings import Area, Finding, State, failed, ok, unknown, warning
from receiver.patterns import compile_pattern
from receiver.telemetry.prefixes import unmatched
from receiver.telemetry.selectors import selector_of

_Document = Mapping[str, Any]

#: Clients and subscriptions that are named one by one.
_MAX_NAMED: Final = 10

#: Clients that are compared with all subscriptions, because each comparison costs CPU.
_MAX_COMPARED: Final = 50

#: A client spreads its first push over half an interval to one and a half (KIP-714, "Client
#: behavior"), so this many intervals after a request another one is due.
_SPREAD: Final = 1.5

#: Seconds that a push may come late.
_SLACK_S: Final = 10.0

_FIELDS: Final[Mapping[str, str]] = {
    "client_source_address": "source_address",
    "client_source_port": "source_port",
}

_PAGE: Final = "docs/where-are-my-metrics.md has the steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What the running receiver knows of its clients."""

    clients: Sequence[_Document]
    """Client instances (``/v1/clients``)."""
    connections: Sequence[_Document]
    """Open connections (``/v1/connections``)."""
    subscriptions: Sequence[_Document]
    """All subscriptions (``/v1/subscriptions``)."""
    owners: Sequence[_Document] = ()
    """All owners (``/v1/owners``)."""
    breaks: Sequence[_Document] = ()
    """Clients that the latest known Kafka would not answer (``/v1/upgrade-check``)."""
    misspelt: Mapping[str, str] = field(default_factory=dict)
    """Why pushing clients have nothing for a subscription, by its name (``/v1/status``)."""
    scattered: str | None = None
    """Why a change by Kafka's tools reaches this receiver alone (``/v1/status``)."""
    complete: bool = True
    """Whether these are all clients and connections, and not the first ones."""
    bridges_alone: bool = False
    """Whether the receiver has no listener, so that all clients come by bridges."""
    brokers_elsewhere: int = 0
    """How many brokers of the cluster no listener is in front of. A client connects to many
    brokers, and pushes to one of them (KIP-714, "Client behavior")."""

    @property
    def asked(self) -> list[_Document]:
        """Clients that this receiver asks; those of bridges are asked by their brokers."""
        return [row for row in self.clients if row["via"] == "gateway"]

    @property
    def silent(self) -> list[_Document]:
        """Connections of clients that have sent no telemetry request, one for each client."""
        known = {_who(row) for row in self.clients}
        found = {
            _who(connection): connection for connection in self.connections if _who(connection) not in known
        }
        return list(found.values())


def _who(one: _Document) -> tuple[str, str]:
    return one["client_id"], one["source_address"]


def _label(one: _Document) -> str:
    return f"client {one['client_id'] or '(no client id)'} at {one['source_address']} ({_software(one)})"


def subscription_findings(fleet: Fleet) -> list[Finding]:
    """Return what each subscription matches."""
    if fleet.bridges_alone:
        seen = "the brokers ask clients by their own: kafka-client-metrics.sh --describe shows them"
        return [ok(Area.SUBSCRIPTION, "any", "subscriptions", seen)]
    if not fleet.subscriptions:
        return [
            warning(
                Area.SUBSCRIPTION,
                "any",
                "subscriptions",
                "there are none, so no client is asked for metrics",
                "`kafka-telemetry subscriptions put all --metric '*'`",
            )
        ]
    matched: dict[str, int] = {}
    for client in fleet.asked:
        for name in client["subscriptions"]:
            matched[name] = matched.get(name, 0) + 1
    findings = [
        _subscription(subscription, matched.get(subscription["name"], 0), fleet)
        for subscription in fleet.subscriptions
    ]
    return _bounded(findings, Area.SUBSCRIPTION, "subscriptions")


def owner_findings(fleet: Fleet) -> list[Finding]:
    """Return which clients nobody declares, and what owners expect in vain."""
    if not fleet.owners:
        return []
    findings = [
        warning(
            Area.CLIENT,
            "absent",
            f"owner {owner['team']}",
            f"expects {', '.join(owner['absent'][:_MAX_NAMED])}, of which nothing is connected",
            f"ask {owner['contact'] or 'the team'}, or take it out of expected.principals",
        )
        for owner in fleet.owners
        if owner["absent"]
    ]
    findings += [
        warning(
            Area.CLIENT,
            "absent",
            f"owner {owner['team']}",
            f"expects the topics {', '.join(owner['absent_topics'][:_MAX_NAMED])}, which no metrics of its "
            "clients name",
            f"ask {owner['contact'] or 'the team'}, or take them out of expected.topics",
        )
        for owner in fleet.owners
        if owner["absent_topics"]
    ]
    undeclared = {_who(row): row for row in (*fleet.connections, *fleet.clients) if row["owner"] is None}
    findings += [
        warning(
            Area.CLIENT,
            "undeclared",
            _label(row),
            f"{row['principal']} has no owner",
            "add a match for it to its owner (docs/rest.md#owners)",
        )
        for row in undeclared.values()
    ]
    return _bounded(findings, Area.CLIENT, "owners")


def protocol_findings(fleet: Fleet) -> list[Finding]:
    """Return which clients use API versions that newer brokers lack (KIP-896)."""
    findings = [
        warning(
            Area.CLIENT,
            "old_protocol",
            f"client {row['client_id'] or '(no client id)'} of {row['principal']}",
            f"uses {', '.join(map(_break, row['breaks'][:_MAX_NAMED]))}",
            f"ask {row['owner'] or 'its owner'} to upgrade {_software(row)} before the brokers",
        )
        for row in fleet.breaks
    ]
    return _bounded(findings, Area.CLIENT, "old protocol")


def _software(row: _Document) -> str:
    return f"{row['client_software_name']} {row['client_software_version']}".strip() or "the client"


def _break(broken: _Document) -> str:
    lack = "no longer has it" if broken["needs"] is None else f"needs {broken['needs']}"
    return f"{broken['api']} {broken['lowest']}, and Kafka {broken['dropped_in']} {lack}"


def _subscription(subscription: _Document, count: int, fleet: Fleet) -> Finding:
    name = subscription["name"]
    subject = f"subscription {name}"
    # A metric of an application's own is in no catalogue. The receiver knows what is pushed.
    known = [fleet.misspelt[name]] if name in fleet.misspelt else []
    problems = known if count else unmatched(subscription["metrics"][:_MAX_NAMED], ())
    if problems:
        fix = f"correct it: `kafka-telemetry subscriptions show {name}`"
        return warning(Area.SUBSCRIPTION, "prefixes", subject, problems[0], fix)
    every = f"every {subscription['interval_ms'] / 1000:g} s"
    state = subscription.get("state", "active")
    if state != "active":
        return ok(Area.SUBSCRIPTION, "state", subject, f"is {state}, so it applies to no client")
    total = len(fleet.asked)
    clients = count_text(total, "known client")
    if not total:
        return ok(Area.SUBSCRIPTION, "matches", subject, f"no client is known yet, {every}")
    if count:
        return ok(Area.SUBSCRIPTION, "matches", subject, f"matches {count} of {clients}, {every}")
    reasons = [mismatch(subscription, row) for row in fleet.asked[:_MAX_COMPARED]]
    reason = reasons[0] if reasons else None
    if reason is None or None in reasons:
        return ok(Area.SUBSCRIPTION, "matches", subject, f"will match clients when they ask again, {every}")
    return warning(
        Area.SUBSCRIPTION,
        "matches",
        subject,
        f"matches none of {clients}; for example {reason}",
        "correct match, a regular expression for the whole value; clients ask again within their interval",
    )


def mismatch(subscription: _Document, client: _Document) -> str | None:
    """Return why a subscription does not apply to a client; None: it does."""
    if subscription.get("state", "active") != "active":
        return f"the subscription is {subscription['state']}"
    for condition, pattern in subscription["match"].items():
        selector, negated = selector_of(condition)
        value = client.get(_FIELDS.get(selector, selector))
        text = "" if value is None else str(value)
        try:
            found = _compiled(pattern).fullmatch(text.encode("utf-8", "replace"))
        except ValueError:
            continue
        if (found is not None) is negated:
            verb = "must not match" if negated else "does not match"
            return f"{selector} {text!r} {verb} {pattern!r}"
    return None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Any:
    return compile_pattern(pattern)


def client_findings(fleet: Fleet) -> list[Finding]:
    """Return what is wrong with clients, and how many are well."""
    if not fleet.clients and fleet.bridges_alone:
        seen = "no client has pushed by a bridge"
        fix = "look for `bridge joined` in the log, and let the brokers ask for metrics (docs/bridge.md)"
        return [warning(Area.CLIENT, "any", "clients", seen, fix)]
    if not fleet.clients and not fleet.connections:
        return [
            warning(
                Area.CLIENT,
                "any",
                "clients",
                "no client is connected",
                "start a client at the listener's address and examine again",
            )
        ]
    unmatched_clients = [row for row in fleet.clients if not row["subscriptions"]]
    compared = {item["client_instance_id"] for item in unmatched_clients[:_MAX_COMPARED]}
    found = [
        _instance(row, fleet, fleet.subscriptions if row["client_instance_id"] in compared else ())
        for row in fleet.clients
    ]
    found += [_silent(client, fleet) for client in fleet.silent]
    well = [finding for finding in found if finding.state is State.OK]
    total = f"{'' if fleet.complete else 'the first '}{count_text(len(found), 'client')}"
    pushing = sum(1 for row in fleet.clients if row["pushes"])
    summary = ok(Area.CLIENT, "all", "clients", f"well: {len(well)} of {total}; pushed: {pushing}")
    others = [finding for finding in found if finding.state is not State.OK]
    return [summary, *_bounded(others, Area.CLIENT, "clients")]


def one_client(fleet: Fleet, wanted: str) -> list[Finding]:
    """Return all about the clients with one client id or client instance id.

    That such a client has pushed is part of the proof, so each that has not is unknown or failed.
    """
    clients = [row for row in fleet.clients if wanted in {row["client_id"], row["client_instance_id"]}]
    silent = [connection for connection in fleet.silent if connection["client_id"] == wanted]
    if not clients and not silent:
        seen = "it is not connected" if fleet.complete else "it is not among the first clients"
        fix = "check its bootstrap.servers and client.id; `kafka-telemetry clients list` shows those known"
        return [failed(Area.CLIENT, "known", f"client {wanted}", seen, fix)]
    findings = []
    for client in clients[:_MAX_NAMED]:
        finding = _instance(client, fleet, fleet.subscriptions)
        if not client["pushes"] and finding.state is State.OK:
            finding = unknown(
                Area.CLIENT, finding.check, finding.subject, finding.seen, "wait until then and examine again"
            )
        findings.append(_strict(finding))
        findings += _reasons(client, fleet)
    return findings + [_proven(_silent(client, fleet)) for client in silent[:_MAX_NAMED]]


def _proven(finding: Finding) -> Finding:
    if finding.state is State.OK:
        fix = "examine the sidecars of the other brokers too"
        return unknown(finding.area, finding.check, finding.subject, finding.seen, fix)
    return _strict(finding)


def _strict(finding: Finding) -> Finding:
    if finding.state is not State.WARNING:
        return finding
    return failed(finding.area, finding.check, finding.subject, finding.seen, finding.do)


def _reasons(client: _Document, fleet: Fleet) -> Iterator[Finding]:
    """Yield why subscriptions do not match a client that none matches."""
    if client["subscriptions"] or client["via"] == "bridge":
        return
    for subscription in fleet.subscriptions[:_MAX_NAMED]:
        why = mismatch(subscription, client)
        if why is not None:
            seen = f"does not match the subscription {subscription['name']}: {why}"
            yield warning(Area.CLIENT, "match", _label(client), seen, "correct match, or the client's id")


def _instance(client: _Document, fleet: Fleet, subscriptions: Sequence[_Document]) -> Finding:
    subject = f"{_label(client)}, instance {client['client_instance_id']}"
    if client["via"] == "bridge":
        return _by_bridge(client, subject)
    interval_s = client["push_interval_ms"] / 1000
    quiet_s = client["last_request_age_s"]
    due_s = max(0.0, interval_s * _SPREAD - quiet_s)
    late = quiet_s > interval_s * _SPREAD + _SLACK_S
    next_request = f"its next telemetry request is due within {due_s:.0f} s"
    if client["terminating"]:
        return ok(Area.CLIENT, "pushes", subject, "has ended with a last push")
    if client["last_error"] != "NONE":
        seen = f"its last request was answered with {client['last_error']}"
        fix = f"look at docs/runbooks.md; {_PAGE}"
        return warning(Area.CLIENT, "error", subject, f"{seen}; {next_request}", fix)
    if not client["requested_metrics"]:
        return _asked_for_nothing(client, subscriptions, subject, next_request)
    if late and fleet.brokers_elsewhere:
        return ok(
            Area.CLIENT, "late", subject, f"silent here for {quiet_s:.0f} s; {_elsewhere(fleet)} by now"
        )
    if late:
        seen = f"silent for {quiet_s:.0f} s, though it was asked for a push every {interval_s:g} s"
        fix = f"look whether it still runs, and at its log; {_PAGE}"
        return warning(Area.CLIENT, "late", subject, seen, fix)
    if client["interval_factor"] > 1:
        behind = f"because the plugin {client['plugin_behind']} is behind"
        seen = f"is asked {client['interval_factor']} times less often, {behind}"
        return warning(Area.CLIENT, "backpressure", subject, seen, "make that destination faster")
    if client["reduced"]:
        reduced = client["reduced"]
        seen = f"is asked for {reduced['to']} only, because of {reduced['offence']}"
        fix = f"ask it for less, or raise the limit; it ends in {reduced['relaxes_in_s']:.0f} s by itself"
        return warning(Area.CLIENT, "reduced", subject, seen, fix)
    names = ", ".join(client["subscriptions"][:5]) or "no subscription"
    if not client["pushes"]:
        seen = f"was asked by {names} and has not pushed yet; {next_request}"
        return ok(Area.CLIENT, "pushes", subject, seen)
    pushed = client["last_push_age_s"]
    seen = f"asked by {names}, {client['pushes']} pushes, the last {pushed:.0f} s ago; {next_request}"
    return ok(Area.CLIENT, "pushes", subject, seen)


def _by_bridge(client: _Document, subject: str) -> Finding:
    """Return the finding of a client of which only the pushes are seen."""
    pushed = (
        f"{client['pushes']} pushes by the broker's bridge, the last {client['last_push_age_s']:.0f} s ago"
    )
    if client["state"] == "silent":
        fix = f"look whether it still runs, and what its broker asks of it; {_PAGE}"
        return warning(Area.CLIENT, "late", subject, pushed, fix)
    return ok(Area.CLIENT, "pushes", subject, pushed)


def _asked_for_nothing(
    client: _Document, subscriptions: Sequence[_Document], subject: str, next_request: str
) -> Finding:
    if client["reduced"]:
        seen = f"is asked for nothing, because of {client['reduced']['offence']}; {next_request}"
        return warning(Area.CLIENT, "reduced", subject, seen, "ask it for less, or raise the limit")
    if client["subscriptions"]:
        seen = f"its subscriptions ask for no metrics; {next_request}"
        return warning(Area.CLIENT, "metrics", subject, seen, "give the subscription metrics")
    reasons = []
    for subscription in subscriptions:
        reason = mismatch(subscription, client)
        if reason is None:
            seen = f"will be asked by {subscription['name']}: {next_request}"
            return ok(Area.CLIENT, "pushes", subject, seen)
        reasons.append(reason)
    why = f": {reasons[0]}" if reasons else ""
    return warning(
        Area.CLIENT,
        "match",
        subject,
        f"no subscription matches it{why}; {next_request}",
        "put a subscription that matches it, if its metrics are wanted",
    )


def _elsewhere(fleet: Fleet) -> str:
    count = fleet.brokers_elsewhere
    others = "another broker" if count == 1 else f"one of {count} other brokers"
    return f"it may push through the sidecar of {others}"


def _silent(connection: _Document, fleet: Fleet) -> Finding:
    if fleet.brokers_elsewhere:
        seen = f"is connected and has sent no telemetry request here; {_elsewhere(fleet)}"
        return ok(Area.CLIENT, "asks", _label(connection), seen)
    return warning(
        Area.CLIENT,
        "asks",
        _label(connection),
        "is connected and has sent no telemetry request",
        "Java pushes from 3.7, librdkafka from 2.5; set enable.metrics.push=true. A client that connected "
        "before telemetry was offered asks when it reconnects",
    )


def _bounded(findings: Iterable[Finding], area: Area, subject: str) -> list[Finding]:
    """Keep the first findings, those that are not well first, and count the rest."""
    ordered = sorted(findings, key=lambda one: one.state is State.OK)
    kept, rest = ordered[:_MAX_NAMED], ordered[_MAX_NAMED:]
    if not rest:
        return kept
    problems = [finding for finding in rest if finding.state is not State.OK]
    if problems:
        seen = f"{len(problems)} more, the first of them: {problems[0].subject}: {problems[0].seen}"
        return [*kept, warning(area, "more", subject, seen, "correct those above first, and examine again")]
    return [*kept, ok(area, "more", subject, f"{len(rest)} more are well")]
