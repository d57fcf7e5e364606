"""Table of the differences between the gateway's answers and the broker's that are documented.

Each entry changes the broker's answer into what the gateway has to answer by the protocol notes.
The comparison then demands exactly that, so an entry that no longer holds is a finding, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.fuzz.differential.codec import UNKNOWN_TAGS, Tree, encode, uvarint
from tests.fuzz.differential.schemas import Api
from tests.fuzz.differential.script import API_VERSIONS, PUSH_TELEMETRY, Step
from tests.fuzz.differential.sides import Path

#: Requests to controllers.
CONTROLLER_KEYS: Final = frozenset({52, 53, 54, 58, 59, 82})
_NONE: Final = 0
_ADDED: Final[Mapping[int, tuple[int, int]]] = {18: (0, 5), 71: (0, 1), 72: (0, 1)}
#: NONE and THROTTLING_QUOTA_EXCEEDED.
_GET_ERRORS: Final = frozenset({0, 89})
#: Also INVALID_REQUEST, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, UNKNOWN_SUBSCRIPTION_ID and
#: TELEMETRY_TOO_LARGE.
_PUSH_ERRORS: Final = frozenset({0, 42, 76, 87, 89, 117, 118})
#: Responses with addresses at their end, of which longer ones keep their size.
_AT_END: Final = frozenset({0, 1, 78, 79})
_KEPT_WHOLE: Final = 16_384
#: Those of them that have the addresses in a tagged field.
_TAGGED_ENDPOINTS: Final = frozenset({0, 1})
_PADDING_TAGS: Final = (127, 16_383, 2_097_151)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The addresses that the rewriting listener gives out.

    Attributes:
        host: The host.
        first_port: The port of node 0.
        nodes: How many nodes have ports.
        port: The port of all other nodes.
    """

    host: str
    first_port: int
    nodes: int
    port: int

    def address(self, node_id: int) -> tuple[str, int]:
        """Return the host and port of a node; a negative id is no node's."""
        if node_id < 0:
            return "", -1
        return self.host, self.first_port + node_id if node_id < self.nodes else self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer of the broker.

    Attributes:
        step: The request.
        api: Its definition.
        tree: The answer's body.
        size: The answer's bytes.
        path: How the other side reaches the broker.
        gateway: The addresses there.
    """

    step: Step
    api: Api
    tree: Tree
    size: int
    path: Path
    gateway: Gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One way in which the gateway differs.

    Attributes:
        name: What differs.
        reason: Why, and where that is written.
        api_keys: The RPCs whose answers differ.
        paths: The listeners where they do.
        change: Returns the gateway's answer for the broker's.
    """

    name: str
    reason: str
    api_keys: frozenset[int]
    paths: frozenset[Path]
    change: Callable[[Answer], Tree]


def _offer(answer: Answer) -> Tree:
    tree = dict(answer.tree)
    if tree["ErrorCode"] != _NONE:
        return tree
    ranges = {entry["ApiKey"]: entry for entry in tree["ApiKeys"]}
    if answer.path == "rewritten":
        ranges = {key: entry for key, entry in ranges.items() if key not in CONTROLLER_KEYS}
        if 17 in ranges:
            ranges[17] = ranges[17] | {"MinVersion": 1}
    for key, (low, high) in _ADDED.items():
        ranges[key] = {"ApiKey": key, "MinVersion": low, "MaxVersion": high}
    tree["ApiKeys"] = [ranges[key] for key in sorted(ranges)]
    return tree


def _with_gateway_addresses(answer: Answer) -> Tree:
    tree: Tree = _rewritten(answer.tree, answer.gateway)
    if answer.step.api_key in _AT_END and answer.size > _KEPT_WHOLE:
        return _in_as_many_bytes(tree, answer)
    return tree


def _rewritten(value: Any, gateway: Gateway) -> Any:
    if isinstance(value, list):
        return [_rewritten(inner, gateway) for inner in value]
    if not isinstance(value, dict):
        return value
    tree = {name: _rewritten(inner, gateway) for name, inner in value.items()}
    node_id = tree.get("NodeId", tree.get("BrokerId"))
    if node_id is not None and "Host" in tree:
        tree["Host"], tree["Port"] = gateway.address(node_id)
    return tree


def _in_as_many_bytes(tree: Tree, answer: Answer) -> Tree:
    """Return a long answer in as many bytes as the broker's (Addresses of brokers).

    If the new addresses do not fit, they are left out. Unused bytes are an unknown tagged field.
    """
    if not answer.tree.get("NodeEndpoints"):
        return tree
    size = len(_body(answer.tree, answer))
    without = dict(tree)
    if answer.step.api_key in _TAGGED_ENDPOINTS:
        del without["NodeEndpoints"]
    else:
        without["NodeEndpoints"] = []
    for candidate in (tree, without):
        padded = _padded(candidate, size - len(_body(candidate, answer)))
        if padded is not None:
            return padded
    raise AssertionError("an answer without addresses is shorter")


def _body(tree: Tree, answer: Answer) -> bytes:
    return encode(answer.api.response, tree, answer.step.version, flexible=True)


def _padded(tree: Tree, unused: int) -> Tree | None:
    if unused == 0:
        return tree
    fields = tree.get(UNKNOWN_TAGS, ())
    for tag in _PADDING_TAGS:
        if any(used == tag for used, _ in fields):
            continue
        for length in range(max(0, unused - 8), unused):
            if len(uvarint(tag)) + len(uvarint(length)) + length == unused:
                return tree | {UNKNOWN_TAGS: sorted([*fields, (tag, bytes(length))])}
    return None


def _without_controllers(answer: Answer) -> Tree:
    tree = dict(answer.tree)
    if "Nodes" in tree:
        tree["Nodes"] = [node | {"Listeners": []} for node in tree["Nodes"]]
    return tree


_BOTH: Final[frozenset[Path]] = frozenset({"kept", "rewritten"})
_REWRITTEN: Final[frozenset[Path]] = frozenset({"rewritten"})

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        name="the versions that are offered",
        reason="Clients are offered telemetry, and where addresses are rewritten no RPC that names a broker "
        "in another place (docs/protocol.md, ApiVersions and Addresses of brokers).",
        api_keys=frozenset({API_VERSIONS}),
        paths=_BOTH,
        change=_offer,
    ),
    Difference(
        name="the addresses of brokers",
        reason="Clients get the gateway's (docs/protocol.md, Addresses of brokers).",
        api_keys=frozenset({0, 1, 3, 10, 60, 78, 79}),
        paths=_REWRITTEN,
        change=_with_gateway_addresses,
    ),
    Difference(
        name="the listeners of controllers",
        reason="No client connects to them (docs/protocol.md, Addresses of brokers).",
        api_keys=frozenset({55}),
        paths=_REWRITTEN,
        change=_without_controllers,
    ),
)


def differs(api_key: int | None, path: Path) -> bool:
    """Return whether the answers of an RPC may differ on a path."""
    return any(api_key in difference.api_keys and path in difference.paths for difference in DIFFERENCES)


def expected(answer: Answer) -> Tree:
    """Return what the gateway has to answer where the broker gives this answer."""
    tree = answer.tree
    for difference in DIFFERENCES:
        if answer.step.api_key in difference.api_keys and answer.path in difference.paths:
            tree = difference.change(answer)
    return tree


def telemetry_problem(step: Step, tree: Tree) -> str | None:
    """Return what is wrong with the gateway's answer to a telemetry request; None: nothing.

    The broker has no telemetry, so it is not asked. There is no subscription.
    """
    errors = _PUSH_ERRORS if step.api_key == PUSH_TELEMETRY else _GET_ERRORS
    if tree["ErrorCode"] not in errors:
        return f"the error {tree['ErrorCode']}"
    if tree["ThrottleTimeMs"] != 0:
        return f"a throttle time of {tree['ThrottleTimeMs']} ms"
    if tree.get("RequestedMetrics"):
        return f"the metrics {tree['RequestedMetrics']}, to which nothing subscribes"
    return None
