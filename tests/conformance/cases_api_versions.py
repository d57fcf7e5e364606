"""Cases of ApiVersions (KIP-35, KIP-511, KIP-1242), on a listener without authentication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.conformance import answers
from tests.conformance.conversation import Case, Request, byte_by_byte, together
from tests.conformance.requests import NO_TAGS, NO_UTF8, UNKNOWN_TAGS
from tests.conformance.words import any_request, api_versions, get, metadata
from tests.testbed.broker import CLUSTER_ID, NODE_ID

_WRONG_CLUSTER: Final = "another-clusterAAAAAAA"
_FRAMES: Final = Path(__file__).parents[1] / "data" / "frames"


def _captured(label: str) -> tuple[Request, ...]:
    """Every ApiVersions request that a real client sent."""
    return tuple(
        any_request(
            f"{label}, ApiVersions v{entry['version']}",
            (_FRAMES / entry["file"]).read_bytes(),
            answers.api_versions(entry["version"]),
        )
        for entry in json.loads((_FRAMES / "index.json").read_text())
        if entry["label"] == label and entry["dir"] == "req" and entry["key"] == 18
    )


_VERSIONS = tuple(
    Case(name=f"ApiVersions v{version}", steps=(api_versions(version),)) for version in (*range(7), 99, 32767)
)

_NAMES = tuple(
    Case(name=f"software {what} {value!r}", steps=(api_versions(3, **{argument: value}),))  # type: ignore[arg-type]
    for what, argument in (("name", "name"), ("version", "software_version"))
    for value in (
        "apache-kafka-java",
        "a.b-C9",
        "x",
        "",
        " ",
        "with space",
        "under_score",
        "-dash-first",
        "dash-last-",
        ".dot",
        "dot.",
        "ümlaut",
        "new\nline",
        "ends-in-newline\n",
        "n" * 1000,
    )
)

_NODES = tuple(
    Case(
        name=f"ApiVersions v5, {what}",
        steps=(api_versions(5, cluster_id=cluster_id, node_id=node_id), api_versions(5), get()),
    )
    for what, cluster_id, node_id in (
        ("neither cluster nor node", None, -1),
        ("both right", CLUSTER_ID, NODE_ID),
        ("only the cluster, right", CLUSTER_ID, -1),
        ("only the cluster, wrong", _WRONG_CLUSTER, -1),
        ("only the node, right", None, NODE_ID),
        ("only the node, wrong", None, 99),
        ("wrong cluster", _WRONG_CLUSTER, NODE_ID),
        ("wrong node", CLUSTER_ID, 99),
        ("both wrong", _WRONG_CLUSTER, 99),
        ("empty cluster", "", NODE_ID),
        ("a node below -1", CLUSTER_ID, -2),
        ("a node below -1 and no cluster", None, -2),
    )
)

_BODIES = (
    Case(
        name="ApiVersions with unknown tagged fields in the body", steps=(api_versions(3, tags=UNKNOWN_TAGS),)
    ),
    Case(
        name="ApiVersions with unknown tagged fields in the header",
        steps=(api_versions(4, header_tags=UNKNOWN_TAGS),),
    ),
    Case(
        name="ApiVersions v5 with unknown tagged fields in both",
        steps=(api_versions(5, tags=UNKNOWN_TAGS, header_tags=UNKNOWN_TAGS),),
    ),
    *(
        Case(
            name=f"ApiVersions v6 with the client instance id {instance_id.hex()} in its header",
            steps=(api_versions(6, header_tags=instance_id + NO_TAGS),),
        )
        for instance_id in (bytes(15) + b"\7", b"\xff" * 16)
    ),
    Case(name="ApiVersions with a null client id", steps=(api_versions(3, client_id=None),)),
    Case(name="ApiVersions v0 with a null client id", steps=(api_versions(0, client_id=None),)),
    Case(name="ApiVersions with an empty client id", steps=(api_versions(3, client_id=""),)),
    Case(name="ApiVersions with a client id that is no UTF-8", steps=(api_versions(3, client_id=NO_UTF8),)),
    Case(name="ApiVersions v0 with bytes after its end", steps=(api_versions(0, trailing=b"more"),)),
    Case(name="ApiVersions v3 with bytes after its end", steps=(api_versions(3, trailing=b"more"),)),
    Case(name="ApiVersions v5 with bytes after its end", steps=(api_versions(5, trailing=b"more"),)),
    Case(name="ApiVersions v99 with bytes after its end", steps=(api_versions(99, trailing=b"more"),)),
    Case(name="ApiVersions v3 cut by a byte", steps=(api_versions(3, cut=1),)),
    Case(name="ApiVersions v3 without a body", steps=(api_versions(3, cut=18),)),
    Case(name="ApiVersions v5 with a body of v3", steps=(api_versions(5, cut=6),)),
    Case(name="ApiVersions with a null software name", steps=(api_versions(3, name=None),)),
    Case(name="ApiVersions with a negative version", steps=(api_versions(-1),)),
    Case(name="ApiVersions with the least version there is", steps=(api_versions(-32768),)),
    Case(name="ApiVersions with a negative correlation id", steps=(api_versions(3, correlation_id=-7),)),
)

_SEVERAL = (
    Case(name="ApiVersions twice", steps=(api_versions(3), api_versions(3))),
    Case(
        name="ApiVersions again under another name",
        steps=(api_versions(3), api_versions(3, name="somebody-else", software_version="2")),
    ),
    Case(name="ApiVersions again with a bad name", steps=(api_versions(3), api_versions(3, name="bad name"))),
    Case(name="ApiVersions of a newer client, which falls back", steps=(api_versions(99), api_versions(5))),
    Case(
        name="ApiVersions of a newer client, which falls back to v0", steps=(api_versions(6), api_versions(0))
    ),
    Case(
        name="ApiVersions pipelined",
        steps=(together(*(api_versions(version) for version in (0, 99, 3, 1, 5, 2, 6, 4))),),
    ),
    Case(
        name="ApiVersions pipelined with others",
        steps=(together(metadata(), api_versions(3), get(), api_versions(99), metadata(), api_versions(0)),),
    ),
    Case(
        name="ApiVersions with a bad name in the middle of a pipeline",
        steps=(together(metadata(), api_versions(3, name="bad name"), metadata(), api_versions(3)),),
    ),
    Case(
        name="ApiVersions byte by byte",
        steps=(byte_by_byte(api_versions(5), api_versions(99), api_versions(0)),),
    ),
)

_CLIENTS = tuple(
    Case(name=f"ApiVersions as {client} sent it", steps=_captured(label))
    for client, label in (
        ("aiokafka", "aiokafka-av"),
        ("kafkajs", "kafkajs-av"),
        ("kcat", "kcat-av"),
        ("confluent-kafka", "ck-consumer-star"),
        ("kafka-clients, with the cluster of somebody else,", "java44-producer-star"),
    )
)

CASES: Final = _VERSIONS + _NAMES + _NODES + _BODIES + _SEVERAL + _CLIENTS
