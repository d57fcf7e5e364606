"""Runs all probes of a setup and collects their findings.

Probes of one step run side by side, each within its time limit. So an examination takes some
seconds, however many listeners and plugins there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from receiver.amounts import duration_text
from receiver.brokers.scattered import brokers_elsewhere
from receiver.catalogue.dropped_versions import DROPPED_VERSIONS
from receiver.checked import Checked
from receiver.doctor.bridge import bridge_findings
from receiver.doctor.bridge_listener import bridge_listener_finding
from receiver.doctor.brokers import (
    Answer,
    advertised_finding,
    ask_broker,
    ask_listener,
    broker_findings,
    known_by_receiver,
    listener_findings,
    received_finding,
    scattered_by,
    shown_certificate,
    with_crossed,
)
from receiver.doctor.certificates import check_tls_files, now_utc, presented_finding
from receiver.doctor.clients import (
    Fleet,
    client_findings,
    one_client,
    owner_findings,
    protocol_findings,
    subscription_findings,
)
from receiver.doctor.configuration import check_file
from receiver.doctor.destinations import check_destinations, delivery_findings
from receiver.doctor.findings import Area, Finding, Report, failed, ok, unknown, warning
from receiver.doctor.limits import all_of
from receiver.doctor.ports import addresses, check_free, check_held
from receiver.doctor.rest_api import Access, AccessError, NotRunningError, RestApi, RestError
from receiver.gateway.upstream.node_id import CLIENT_ID
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ListenerSettings

#: Seconds for everything that is asked of the running receiver.
_RECEIVER_S: Final = 30.0

#: The greatest difference of two clocks that is not reported, in seconds.
_MAX_SKEW_S: Final = 5.0

#: Pages of clients, connections and subscriptions that are read, and items of a page. A client may
#: be asked for many prefixes, and a page must not become long.
_PAGES: Final = 40
_PAGE: Final = 250

_NO_ACCESS: Final = (
    "give --token-file, or name a token's file in rest.tokens, or give --client-certificate and --client-key"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to examine, and from where."""

    before_start: bool = False
    """The receiver is not to run yet: its ports must be free."""
    client: str | None = None
    """The client id or client instance id that must have pushed; None: look at all."""
    access: Access = field(default_factory=Access)
    """Where the receiver is, and what to show to it."""


async def examine(path: Path, environ: Mapping[str, str], options: Options) -> Report:
    """Examine the setup that a configuration describes."""
    checked, findings = check_file(path, environ)
    if checked is None:
        return Report(findings)
    settings, access = checked.settings, options.access
    findings += check_tls_files(settings, access.ca, now_utc())
    try:
        api = RestApi(settings.rest, access)
    except OSError as error:
        fix = "correct the file"
        return Report([*findings, failed(Area.RECEIVER, "runs", "REST API", f"TLS: {error}", fix)])
    try:
        (running, seen), answers, destinations, bridges = await asyncio.gather(
            _is_running(api, options),
            all_of(
                [
                    ask_broker(candidate, reads_resources=settings.subscriptions.store == "kafka")
                    for candidate in settings.listeners
                ]
            ),
            check_destinations(checked.plugins),
            bridge_findings(settings),
        )
        findings += [*seen, *destinations, *bridges]
        answers = with_crossed(settings.listeners, answers)
        for listener, answer in zip(settings.listeners, answers, strict=True):
            findings += broker_findings(listener, answer)
        findings += await _broker_certificates(settings.listeners, answers)
        if running:
            findings += await _of_receiver(api, checked, answers, options)
        else:
            findings += scattered_by(settings, answers, None)
            advertised = [
                advertised_finding(listener, answer.known, direct=answer, there=None)
                for listener, answer in zip(settings.listeners, answers, strict=True)
            ]
            findings += [address for address in advertised if address is not None]
        if running is None:
            checks = [
                asyncio.to_thread(check_free, *address) for address in addresses(settings, checked.plugins)
            ]
            findings += await all_of(checks)
    finally:
        await api.close()
    return Report(findings)


async def _broker_certificates(
    listeners: Sequence[ListenerSettings], answers: Sequence[Answer]
) -> list[Finding]:
    """Return until when the brokers' certificates are valid."""
    answering = [
        candidate for candidate, answer in zip(listeners, answers, strict=True) if answer.problem is None
    ]
    shown = await all_of([shown_certificate(reached) for reached in answering])
    findings = [
        presented_finding(f"broker of listener {listener.name} at {listener.upstream}", reached, now_utc())
        for listener, reached in zip(answering, shown, strict=True)
        if reached is not None
    ]
    return [finding for finding in findings if finding is not None]


async def _is_running(api: RestApi, options: Options) -> tuple[bool | None, list[Finding]]:
    """Tell whether the receiver runs; None: nothing listens at its REST address."""
    subject = f"REST API at {api.address}"
    if not api.address.port:
        if options.before_start:
            return None, []
        seen, fix = (
            "the system chooses its port, which the configuration does not tell",
            "give rest.bind a port",
        )
        return None, [unknown(Area.RECEIVER, "runs", subject, seen, fix)]
    try:
        version = await api.version()
    except NotRunningError as error:
        if options.before_start:
            return None, []
        seen, fix = f"the receiver does not run: {error}", "start it, or give --before-start"
        return (None if options.access.host is None else False), [
            failed(Area.RECEIVER, "runs", subject, seen, fix)
        ]
    except RestError as error:
        fix = "stop what holds the port, or correct rest.bind and rest.tls"
        return False, [failed(Area.RECEIVER, "runs", subject, str(error), fix)]
    if options.before_start:
        fix = "stop it, or leave --before-start out"
        return True, [failed(Area.RECEIVER, "runs", subject, f"version {version} runs already", fix)]
    return True, [ok(Area.RECEIVER, "runs", subject, f"version {version} runs")]


async def _of_receiver(
    api: RestApi, checked: Checked, answers: list[Answer], options: Options
) -> list[Finding]:
    subject = f"REST API at {api.address}"
    try:
        async with asyncio.timeout(_RECEIVER_S):
            return await _ask_receiver(api, checked, answers, options)
    except TimeoutError:
        seen, fix = f"not all was answered within {_RECEIVER_S:g} s", "look at the receiver's log and CPU"
        return [unknown(Area.RECEIVER, "answers", subject, seen, fix)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        seen = f"its documents are not those of this version: {type(error).__name__}: {error}"
        return [unknown(Area.RECEIVER, "answers", subject, seen, "use the receiver's own version of doctor")]


async def _ask_receiver(
    api: RestApi, checked: Checked, answers: list[Answer], options: Options
) -> list[Finding]:
    subject = f"REST API at {api.address}"
    settings, access = checked.settings, options.access
    findings = []
    try:
        await api.get("/readyz")
        findings.append(ok(Area.RECEIVER, "ready", subject, "ready for clients"))
    except AccessError:
        pass  # said once, below
    except RestError as error:
        fix = "correct what it names; clients are served all the same if their broker answers"
        findings.append(failed(Area.RECEIVER, "ready", subject, f"not ready: {error}", fix))
    findings += _clock(subject, api.clock_ahead_s)
    views: dict[str, dict[str, Any]] = {}
    plugins: list[dict[str, Any]] = []
    fleet = None
    try:
        views = {entry["name"]: entry for entry in (await api.get("/v1/listeners"))["items"]}
        plugins = (await api.get("/v1/plugins"))["items"]
        known = [answer.known for answer in answers]
        elsewhere = brokers_elsewhere(zip(settings.listeners, known, strict=True))
        fleet = await _fleet(api, elsewhere, bridges_alone=not settings.listeners)
    except AccessError as error:
        findings.append(unknown(Area.RECEIVER, "access", subject, f"can't be asked: {error}", _NO_ACCESS))
    except RestError as error:
        fix = "look at the receiver's log"
        findings.append(unknown(Area.RECEIVER, "answers", subject, f"can't be asked: {error}", fix))
    if views:
        bound = {name: str(view.get("bind", "")) for name, view in views.items()}
        findings += check_held(settings, checked.plugins, bound)
    findings += await _of_listeners(
        checked, answers, access, views, [str(plugin["name"]) for plugin in plugins]
    )
    if settings.bridge is not None:
        findings.append(await bridge_listener_finding(settings.bridge, access))
    findings += delivery_findings(plugins)
    findings += scattered_by(settings, answers, None if fleet is None else fleet.scattered)
    if fleet is not None:
        findings += subscription_findings(fleet)
        findings += owner_findings(fleet)
        findings += protocol_findings(fleet)
        findings += client_findings(fleet) if options.client is None else one_client(fleet, options.client)
    return findings


def _clock(subject: str, ahead_s: float | None) -> list[Finding]:
    """Return a finding if the receiver's clock is not this machine's."""
    if ahead_s is None or abs(ahead_s) <= _MAX_SKEW_S:
        return []
    seen = (
        f"its clock is {duration_text(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    )
    return [warning(Area.RECEIVER, "clock", subject, seen, "synchronise both with NTP")]


async def _of_listeners(
    checked: Checked,
    answers: list[Answer],
    access: Access,
    views: Mapping[str, Mapping[str, Any]],
    plugins: list[str],
) -> list[Finding]:
    async def ask(listener: ListenerSettings, direct: Answer) -> list[Finding]:
        through = await ask_listener(listener, access.reached(listener.bind), access)
        found: list[Finding | None] = [
            *listener_findings(
                listener,
                through,
                plugins=plugins or [plugin.name for plugin in checked.plugins],
                broker_answers=direct.problem is None,
                shows_certificate=access.certificate is not None,
            )
        ]
        known, view = direct.known, views.get(listener.name)
        if view is not None:
            # Behind a login only the running receiver may know the broker.
            direct = replace(direct, crossed=direct.crossed or view.get("crossed"))
            found.append(received_finding(listener, view))
            known = known if known.advertised is not None else known_by_receiver(view)
        there = None
        if through.offers_telemetry and known.advertised is not None:
            # A broker may advertise what no client can use.
            with suppress(ValueError):
                there = await ask_listener(listener, HostPort.parse(known.advertised), access)
        found.append(advertised_finding(listener, known, direct=direct, there=there))
        return [result for result in found if result is not None]

    pairs = list(zip(checked.settings.listeners, answers, strict=True))
    found = await all_of([ask(*pair) for pair in pairs if pair[0].bind.port])
    unreached = [
        unknown(
            Area.LISTENER,
            "answers",
            f"listener {listener.name}",
            "the system chose its port, which the configuration does not tell",
            "give bind a port",
        )
        for listener, _ in pairs
        if not listener.bind.port
    ]
    return [*(finding for result in found for finding in result), *unreached]


async def _fleet(api: RestApi, elsewhere: int, *, bridges_alone: bool) -> Fleet:
    clients, all_clients = await _pages(api, "/v1/clients")
    connections, all_connections = await _pages(api, "/v1/connections")
    subscriptions, _ = await _pages(api, "/v1/subscriptions")
    status = await api.get("/v1/status")
    # In the whole cluster, because what is expected may be connected to another receiver.
    owners, _ = await _pages(api, "/v1/owners", scope="cluster")
    breaks, _ = await _pages(api, "/v1/upgrade-check", scope="cluster", to=DROPPED_VERSIONS.latest)
    return Fleet(
        clients=clients,
        # Without the sidecar's own, which this command makes too.
        connections=[connection for connection in connections if connection["client_id"] != CLIENT_ID],
        subscriptions=subscriptions,
        owners=owners,
        breaks=[row for row in breaks if row["client_id"] != CLIENT_ID],
        # An earlier receiver has no such field.
        misspelt=status.get("subscriptions", {}).get("misspelt", {}),
        scattered=status.get("subscriptions", {}).get("scattered"),
        complete=all_clients and all_connections,
        bridges_alone=bridges_alone,
        brokers_elsewhere=elsewhere,
    )


async def _pages(api: RestApi, path: str, **fixed: str) -> tuple[list[dict[str, Any]], bool]:
    """Read the first pages of a list; return its items, and whether these are all."""
    items: list[dict[str, Any]] = []
    parameters: dict[str, str | int] = {"limit": _PAGE, **fixed}
    for _ in range(_PAGES):
        page = await api.get(path, **parameters)
        items += page["items"]
        if page["next"] is None:
            return items, True
        parameters["after"] = page["next"]
    return items, False
