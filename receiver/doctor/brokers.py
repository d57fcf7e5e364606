"""Findings about a listener as clients see it, and about the broker behind it.

Both are asked by the sidecar's own probe (:mod:`receiver.gateway.upstream.probe`). It logs in only
where the configuration says so, and asks nothing that changes the broker or the receiver.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from receiver.brokers.bypass import bypass_problem
from receiver.brokers.crossed import crossed_upstreams
from receiver.brokers.hidden_telemetry import hidden_telemetry
from receiver.brokers.listener_broker import KnownBroker, ListenerBroker
from receiver.brokers.listener_state import ListenerState
from receiver.brokers.scattered import scattered_subscriptions
from receiver.brokers.upstream import Upstream
from receiver.doctor.findings import Area, Finding, failed, ok, unknown, warning
from receiver.doctor.limits import PROBE_S
from receiver.doctor.rest_api import Access
from receiver.gateway.connection.tls_socket import TlsSocket
from receiver.gateway.handshake import HandshakeTurns
from receiver.gateway.upstream.address import Endpoint, UpstreamAddress
from receiver.gateway.upstream.broker_login import BrokerLoginError
from receiver.gateway.upstream.probe import ProbeError, probe
from receiver.session.exchanges.api_versions import TELEMETRY_KEYS
from receiver.settings.broker import BrokerSettings
from receiver.settings.hostport import HostPort, HostPorts
from receiver.settings.listeners import ListenerSettings, UpstreamTlsSettings
from receiver.settings.model import ReceiverSettings
from receiver.telemetry.identity import Broker
from receiver.tls import TlsFilesError
from receiver.wire.k03_metadata import Cluster

#: Most nodes that a finding names.
_SHOWN_NODES: Final = 10

#: The PROXY protocol's header for a connection of the sender's own (version 2, section 2.2, LOCAL).
_LOCAL_HEADER: Final = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a broker, or of a listener in front of it."""

    broker: ListenerBroker
    ranges: Mapping[int, tuple[int, int]]
    """The version ranges that it offers, by API key."""
    problem: str | None = None
    """Why it does not answer; None: it does."""
    login_problem: str | None = None
    """Why it refuses the sidecar's login; None: it does not."""
    hides_resources: bool = False
    """Whether it keeps client metrics resources that the sidecar does not read."""
    crossed: str | None = None
    """Why the upstream is probably that of another listener; None: nothing says so."""

    @property
    def known(self) -> KnownBroker:
        """What was learned of the broker."""
        return self.broker.known

    @property
    def offers_telemetry(self) -> bool:
        """Whether clients are offered the telemetry RPCs (KIP-714, "ApiVersions")."""
        return self.ranges.keys() >= TELEMETRY_KEYS


async def ask_broker(listener: ListenerSettings, *, reads_resources: bool = True) -> Answer:
    """Ask the broker behind a listener.

    Args:
        reads_resources: Whether the subscriptions are the brokers' client metrics resources.
    """
    return await _ask(listener, listener, UpstreamAddress, reads_resources=reads_resources)


async def ask_listener(listener: ListenerSettings, address: HostPort, access: Access) -> Answer:
    """Ask the running receiver's listener, like a client.

    It must show the certificate of the configuration, or with ``access.ca`` one of that authority.
    """
    tls = None
    if listener.tls is not None:
        tls = UpstreamTlsSettings(
            ca_file=access.ca or listener.tls.cert_file,
            cert_file=access.certificate,
            key_file=access.key,
            verify_hostname=access.ca is not None,
            server_name=None if listener.advertised is None else listener.advertised.host,
        )
    reached = listener.model_copy(update={"upstream": HostPorts((address,)), "upstream_tls": tls})
    return await _ask(listener, reached, _ListenerAddress)


async def _ask(
    listener: ListenerSettings,
    reached: ListenerSettings,
    kind: type[UpstreamAddress],
    *,
    reads_resources: bool = True,
) -> Answer:
    configured = listener.broker or BrokerSettings()
    first = next(iter(listener.upstream))
    broker = ListenerBroker(
        Broker(id=None if configured.id == "auto" else configured.id, cluster_id=configured.cluster_id),
        (first.host, first.port),
        listener.bind.port,
        machine=socket.gethostname(),
        is_one=listener.rewrite is None,
    )
    upstream = Upstream(reads_resources=reads_resources)
    upstream.learned_keys = frozenset((*upstream.learned_keys, *TELEMETRY_KEYS))
    problem = login_problem = None
    try:
        await probe(
            kind(reached, HandshakeTurns()),
            upstream,
            broker,
            needs_login=listener.speaks_sasl,
            # Through the listener the password would pass the sidecar, which need not see it.
            login=configured.login if kind is UpstreamAddress else None,
            timeout_s=PROBE_S,
        )
    except (ProbeError, TlsFilesError) as error:
        problem = str(error)
    except BrokerLoginError as error:
        login_problem = str(error)
    return Answer(
        broker=broker,
        ranges=upstream.ranges,
        problem=problem,
        login_problem=login_problem,
        hides_resources=upstream.hides_resources,
    )


def with_crossed(listeners: Sequence[ListenerSettings], answers: Sequence[Answer]) -> list[Answer]:
    """Add to the brokers' own answers which upstreams are crossed."""
    pairs = list(zip(listeners, answers, strict=True))
    states = [ListenerState(settings=pair, known=answer.known, connections=0) for pair, answer in pairs]
    crossed = crossed_upstreams(states)
    return [replace(answer, crossed=crossed.get(pair.name)) for pair, answer in pairs]


def scattered_by(
    settings: ReceiverSettings, answers: Sequence[Answer], received: str | None
) -> list[Finding]:
    """Return whether Kafka's tools change the subscriptions of one sidecar alone.

    Args:
        settings: The receiver's settings.
        answers: The brokers' own answers.
        received: What the running receiver says of it, which may have a login of clients to know
            the cluster by.
    """
    states = [
        ListenerState(settings=listener, known=answer.known, connections=0)
        for listener, answer in zip(settings.listeners, answers, strict=True)
    ]
    problem = scattered_subscriptions(
        settings.subscriptions, states, has_members=settings.cluster is not None
    )
    if (problem := problem or received) is None:
        return []
    seen, fix = _advice(problem)
    return [warning(Area.SUBSCRIPTION, "scattered", "subscriptions", seen, fix)]


async def shown_certificate(listener: ListenerSettings) -> bytes | None:
    """Return the broker's certificate (DER) if it can be trusted, else None."""
    if listener.upstream_tls is None:
        return None
    try:
        async with asyncio.timeout(PROBE_S):
            broker = await UpstreamAddress(listener, HandshakeTurns()).connect()
    except (OSError, TimeoutError, TlsFilesError):
        return None
    with broker:
        return broker.certificate() if isinstance(broker, TlsSocket) else None


class _ListenerAddress(UpstreamAddress):
    """A listener's address, with a PROXY header where it wants one from this machine."""

    def __init__(self, settings: ListenerSettings, turns: HandshakeTurns) -> None:
        super().__init__(settings, turns)
        proxies = () if settings.proxy_protocol is None else settings.proxy_protocol.from_
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]

    async def _open(self, endpoint: Endpoint) -> socket.socket:
        connected = await super()._open(endpoint)
        own = ipaddress.ip_address(connected.getsockname()[0])
        if any(own in network for network in self._proxies):
            connected.send(_LOCAL_HEADER)
        return connected


def broker_findings(listener: ListenerSettings, answer: Answer) -> list[Finding]:
    """Return what the broker's own answer shows."""
    subject = f"broker of listener {listener.name} at {listener.upstream}"
    if answer.problem is not None:
        seen, fix = _advice(answer.problem)
        advice = fix or "start the broker, or correct listeners[].upstream"
        return [failed(Area.BROKER, "answers", subject, seen, advice)]
    transport = "without TLS" if listener.upstream_tls is None else "with TLS"
    findings = [ok(Area.BROKER, "answers", subject, f"answers {transport}")]
    login = None if listener.broker is None else listener.broker.login
    if answer.login_problem is not None:
        seen, fix = _advice(answer.login_problem)
        fix = fix or "correct broker.login, or its user at the broker"
        findings.append(failed(Area.BROKER, "login", subject, seen, fix))
    elif listener.speaks_sasl and login is not None:
        findings.append(ok(Area.BROKER, "login", subject, f"accepts the login of {login.username}"))
    findings.append(_identity(listener, subject, answer))
    if (hidden := hidden_telemetry(answer.known)) is not None:
        seen, _, fix = hidden.partition(": ")
        findings.append(warning(Area.BROKER, "own_telemetry", subject, seen, fix))
    elif answer.hides_resources:
        seen = (
            "keeps client metrics resources itself: kafka-client-metrics.sh changes them, and the sidecar "
            "reads them with subscriptions.store: kafka only"
        )
        findings.append(ok(Area.BROKER, "own_telemetry", subject, seen))
    return findings


def _identity(listener: ListenerSettings, subject: str, answer: Answer) -> Finding:
    known = answer.known
    if answer.broker.problem is not None:
        seen, fix = _advice(answer.broker.problem)
        return failed(Area.BROKER, "identity", subject, seen, fix)
    if listener.rewrite is not None and answer.broker.cluster is not None:
        return _nodes(listener, subject, answer.broker.cluster)
    if known.proven and known.broker.id is not None:
        seen = f"is {_listed([known.broker.id])}{_of_cluster(known.broker.cluster_id)}"
        return ok(Area.BROKER, "identity", subject, seen)
    if listener.speaks_sasl:
        return unknown(
            Area.BROKER,
            "identity",
            subject,
            "the broker proves its node id only after a login. So broker_id is only likely, and in front of "
            "a broker before Kafka 4.4 no client is told that it has reached another node (KIP-1242)",
            "configure broker.login with a user that may describe the cluster's configuration",
        )
    likely = "" if known.broker.id is None else f"; it is probably node {known.broker.id}"
    return unknown(
        Area.BROKER,
        "identity",
        subject,
        f"the broker does not prove its node id{likely}",
        "give the principal of this connection the right DescribeConfigs on the cluster",
    )


def _nodes(listener: ListenerSettings, subject: str, cluster: Cluster) -> Finding:
    ids = sorted(broker.node_id for broker in cluster.brokers)
    hidden = [node_id for node_id in ids if node_id not in listener.node_ids]
    seen = f"names {_listed(ids)}{_of_cluster(cluster.id)}"
    if hidden:
        fix = f"set rewrite.nodes of listener {listener.name} to more than {hidden[-1]}"
        return failed(Area.BROKER, "identity", subject, f"{seen}; clients can't reach {_listed(hidden)}", fix)
    return ok(Area.BROKER, "identity", subject, seen)


def _of_cluster(cluster_id: str | None) -> str:
    """Return the words for a cluster, whose id brokers before Kafka 0.10.1 don't tell."""
    return "" if cluster_id is None else f" of cluster {cluster_id}"


def _listed(node_ids: Sequence[int]) -> str:
    shown = ", ".join(str(node_id) for node_id in node_ids[:_SHOWN_NODES])
    more = f" and {len(node_ids) - _SHOWN_NODES} more" if len(node_ids) > _SHOWN_NODES else ""
    return f"{'node' if len(node_ids) == 1 else 'nodes'} {shown}{more}"


def advertised_finding(
    listener: ListenerSettings, known: KnownBroker, *, direct: Answer, there: Answer | None
) -> Finding | None:
    """Return whether the address that clients are told leads to the sidecar.

    None: it is not known.

    Args:
        direct: The broker's own answer.
        there: The answer at the advertised address while the receiver runs; None: not asked.
    """
    advertised = known.advertised
    if advertised is None:
        return None
    subject = f"address that clients of listener {listener.name} are told"
    correct = "correct the broker's advertised.listeners, and restart the broker"
    if direct.crossed is not None:
        seen, fix = _advice(direct.crossed)
        return failed(Area.BROKER, "advertised", subject, seen, fix)
    bypass = bypass_problem(listener, known)
    if bypass is not None:
        seen, fix = _advice(bypass)
        return failed(Area.BROKER, "advertised", subject, seen, fix or correct)
    expected = listener.advertised is not None or advertised.endswith(f":{listener.bind.port}")
    if there is not None and there.problem is None and not direct.offers_telemetry:
        if there.offers_telemetry:
            return ok(Area.BROKER, "advertised", subject, f"{advertised}, which leads to the sidecar")
        seen = f"{advertised}, where telemetry is not offered, so it does not lead to this listener"
        return failed(Area.BROKER, "advertised", subject, seen, correct)
    if not expected:
        seen = f"{advertised}, whose port is neither the listener's ({listener.bind.port}) nor the broker's"
        fix = (
            f"if it leads to the sidecar, set advertised: {advertised} for listener {listener.name}; if not, "
            f"{correct}"
        )
        return unknown(Area.BROKER, "advertised", subject, seen, fix)
    if there is not None and there.problem is not None:
        seen = f"{advertised}, which can't be used from this machine: {_advice(there.problem)[0]}"
        fix = f"look from a client's machine whether it leads to the sidecar; if not, {correct}"
        return warning(Area.BROKER, "advertised", subject, seen, fix)
    return ok(Area.BROKER, "advertised", subject, f"{advertised}, which is the listener's")


def listener_findings(
    listener: ListenerSettings,
    answer: Answer,
    *,
    plugins: Collection[str],
    broker_answers: bool,
    shows_certificate: bool,
) -> list[Finding]:
    """Return what clients get from the running listener.

    Args:
        broker_answers: Whether the broker behind it answered when it was asked directly.
    """
    subject = f"listener {listener.name}"
    if answer.problem is not None:
        seen, _ = _advice(answer.problem)
        if not broker_answers:
            fix = "first make the broker answer"
        elif listener.tls is not None and listener.tls.client_auth == "required" and not shows_certificate:
            seen = "clients need a certificate, and none was shown"
            fix = "give --client-certificate and --client-key"
            return [unknown(Area.LISTENER, "answers", subject, seen, fix)]
        elif listener.tls is not None:
            fix = "compare listeners[].tls.cert_file with what the listener shows (openssl s_client)"
        else:
            fix = "look at the receiver's log and at /readyz"
        return [failed(Area.LISTENER, "answers", subject, f"no usable response: {seen}", fix)]
    findings = [ok(Area.LISTENER, "answers", subject, "passes requests to the broker and back")]
    if answer.offers_telemetry:
        seen = "offers GetTelemetrySubscriptions and PushTelemetry"
        findings.append(ok(Area.LISTENER, "offers_telemetry", subject, seen))
    else:
        seen = "does not offer GetTelemetrySubscriptions and PushTelemetry, so no client pushes"
        if plugins:
            fix = "the receiver has plugins: look at its log, and restart it"
        else:
            seen += ", because no plugin takes metrics"
            fix = "add a plugin, for example {type: otlp, endpoint: http://127.0.0.1:4317}"
        findings.append(failed(Area.LISTENER, "offers_telemetry", subject, seen, fix))
    return findings


def received_finding(listener: ListenerSettings, view: Mapping[str, Any]) -> Finding | None:
    """Return what the receiver knows of a listener's broker (``/v1/listeners``)."""
    if listener.rewrite is not None:
        return _received_nodes(listener, view["nodes"])
    broker = view["broker"]
    if broker["proven"]:
        return ok(
            Area.LISTENER,
            "broker",
            f"listener {listener.name}",
            f"the receiver has proven node {broker['id']} of cluster {broker['cluster_id']}",
        )
    if listener.speaks_sasl and (listener.broker is None or listener.broker.login is None):
        return None  # the broker's own finding says so
    return warning(
        Area.LISTENER,
        "broker",
        f"listener {listener.name}",
        "the receiver has not proven its broker's node id",
        "wait a minute and examine again; then look at the receiver's log",
    )


def _received_nodes(listener: ListenerSettings, nodes: Sequence[Mapping[str, Any]]) -> Finding:
    subject = f"listener {listener.name}"
    proven = [int(node["broker"]["id"]) for node in nodes if node["broker"]["proven"]]
    others = [str(node["address"]) for node in nodes if not node["broker"]["proven"]]
    if nodes and not others:
        return ok(Area.LISTENER, "broker", subject, f"the receiver has proven {_listed(proven)}")
    if others:
        seen = f"the receiver has not proven the node behind {', '.join(others[:_SHOWN_NODES])}"
        fix = "configure broker.login if the listener has SASL; if a broker is away, start it"
        return warning(Area.LISTENER, "broker", subject, seen, fix)
    fix = "connect a client, or configure broker.login"
    return warning(Area.LISTENER, "broker", subject, "the receiver knows no node yet", fix)


def known_by_receiver(view: Mapping[str, Any]) -> KnownBroker:
    """Return the broker that the receiver knows, perhaps from clients' traffic."""
    broker = view["broker"]
    return KnownBroker(
        broker=Broker(id=broker["id"], cluster_id=broker["cluster_id"]),
        proven=bool(broker["proven"]),
        advertised=broker["advertised"],
    )


def _advice(problem: str) -> tuple[str, str]:
    """Split a problem into what was seen and what to do, which may be empty."""
    seen, *fix = re.split(r"; |: (?=set )", problem, maxsplit=1)
    return seen, "".join(fix)
