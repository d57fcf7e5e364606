"""Fuzzes what a store of subscriptions reads: files, records beside resources, and resources.

The first byte of an input says which. A resource is its three values with a zero byte between.
"""

from __future__ import annotations

import json
from random import Random

from receiver.store.document import Mistake, from_document
from receiver.store.entries import read_entries
from receiver.store.kafka_format import RESOURCE_KEYS, Entry, join, split
from receiver.telemetry.subscription import Subscription, SubscriptionSet
from receiver.telemetry.subscription_document import to_document
from tests.fuzz.target import Target, require
from tests.unit.hostile_values import NUMBERS, PATTERNS, TEXTS, TIMES

_FILE, _RECORD, _RESOURCE = range(3)
_MAX_MISTAKE = 4_000

_DOCUMENTS = (
    {"metrics": ["*"], "interval_ms": 1000, "match": {"client_id!": "orders-[0-9]+"}},
    {"name": "s", "metrics": [], "enabled": False, "expires_at": "2030-01-31T12:00:00.5+02:00"},
    {"metrics": ["a."], "temporality": "delta", "labels": {"team": "a"}, "description": "two\nlines"},
    {"metrics": ["a."], "changed_by": "User:ann", "changed_at": "2026-11-21T09:57:04Z"},
)


def _check(read: Subscription | list[Mistake]) -> None:
    if not isinstance(read, Subscription):
        require(bool(read), "neither a subscription nor a mistake")
        require(all(len(str(item)) < _MAX_MISTAKE for item in read), "a mistake as long as the value")
        return
    document = to_document(read)
    require(from_document(json.loads(json.dumps(document)), is_stored=True) == read, "another comes back")
    kept = join(read.name, split(read))
    require(isinstance(kept, Subscription), f"what Kafka keeps of it can't be read: {kept}")
    require(bool(SubscriptionSet.prepared([read]).version), "it has no version")


def _run(data: bytes) -> None:
    kind, content = data[:1], data[1:]
    if not kind or kind[0] % 3 == _FILE:
        entries, mistakes = read_entries("file.yaml", content, stem="s")
        require(all(len(mistake) < _MAX_MISTAKE for mistake in mistakes), "a mistake as long as the file")
        for entry in entries:
            _check(entry.subscription)
    elif kind[0] % 3 == _RECORD:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict):
            _check(from_document(document, is_stored=True))
            _check(join("s", Entry(configs={"metrics": "a."}, beside=document)))
            _check(join("s", Entry(beside={**document, "complete": True})))
    else:
        values = [part.decode("utf-8", "replace") for part in content.split(b"\0")[: len(RESOURCE_KEYS)]]
        _check(join("s", Entry(configs=dict(zip(RESOURCE_KEYS, values, strict=False)))))


def _seeds() -> list[bytes]:
    documents = [json.dumps(document).encode() for document in _DOCUMENTS]
    files = [bytes((_FILE,)) + document for document in documents]
    files.append(
        b"\0metrics: [a., 'b.']\nmatch: {client_id: &x \"a|b\", client_rack: *x}\nexpires_at: null\n"
    )
    files.append(b"\0- name: a\n  metrics: ['*']\n- {name: b, metrics: [x.]}\n")
    resources = (b"a.,b.\01000\0client_id=a,client_software_name=b.*", b"*\0\0", b"\05000\0")
    records = [bytes((_RECORD,)) + document for document in documents]
    return [*files, *records, *(bytes((_RESOURCE,)) + resource for resource in resources)]


def _reshape(data: bytes, random: Random) -> bytes:
    """Put a hostile value in the place of a field's."""
    kind, content = data[:1], data[1:]
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    hostile = random.choice((*TIMES, *NUMBERS, *TEXTS, *PATTERNS))[: random.choice((20, 1200))]
    if not isinstance(document, dict) or not document:
        parts = content.split(b"\0")
        parts[random.randrange(len(parts))] = hostile.encode("utf-8", "surrogatepass")
        return kind + b"\0".join(parts)
    key = random.choice(sorted(document))
    value = random.choice(
        (hostile, [hostile], {"client_id": hostile}, {hostile: "x"}, 10**30, -1, None, True)
    )
    document[key if random.random() < 0.9 else hostile] = value
    return kind + json.dumps(document).encode()


TARGET = Target(
    name="subscriptions",
    run=_run,
    seeds=_seeds,
    tokens=(
        b"expires_at", b"metrics", b"match", b"labels", b"interval_ms", b"0x", b"!!int ''", b"!!bool x",
        b"!!timestamp ", b"&a ", b"*a", b"<<: ", b"? ", b": ", b"- ", b"[[[[", b"{{",
        b"9999-12-31T23:59:59-23:59", b"1:59:59", b"\\ud800", b"\xc2\xb2", b"client_id=", b",", b"|", b"\n",
    ),
    reshape=_reshape,
    max_bytes=2_000,
    brief=4_000,
)  # fmt: skip
