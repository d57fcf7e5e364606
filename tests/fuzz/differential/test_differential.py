"""The differential fuzzer finds differences, and a short run with a fixed seed finds none."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from tests.exploration import SEED
from tests.fuzz.differential import schemas
from tests.fuzz.differential.codec import UNKNOWN_TAGS, MalformedError, Tree, decode, encode
from tests.fuzz.differential.comparison import Comparison, Problem
from tests.fuzz.differential.conversation import End, Transcript
from tests.fuzz.differential.documented import Gateway
from tests.fuzz.differential.generated_answers import GeneratedAnswers
from tests.fuzz.differential.generator import generate
from tests.fuzz.differential.report import finding
from tests.fuzz.differential.rounds import play_rounds
from tests.fuzz.differential.schemas import Api
from tests.fuzz.differential.script import Script, Step, Writer
from tests.fuzz.differential.sides import OWN_TOPIC_ID, SHARED_TOPIC_ID, SIDE, Path, Side, side_name
from tests.fuzz.differential.values import WRITERS
from tests.fuzz.differential.volatile import VOLATILE
from tests.fuzz.differential.world import world

_FETCH, _METADATA, _OFFSET_FETCH, _FIND_COORDINATOR, _API_VERSIONS, _GET = 1, 3, 9, 10, 18, 71
_GATEWAY: Final = Gateway(host="gateway.test", first_port=9000, nodes=2, port=9092)
_SHORT_ROUNDS: Final = 300
_BRIEF_ANSWERS: Final = 100
_MANY_ANSWERS: Final = 20_000


@pytest.fixture(scope="module")
def apis() -> Mapping[int, Api]:
    return schemas.load()


@pytest.fixture
def compare(apis: Mapping[int, Api]) -> Comparison:
    return Comparison(apis, {"CLIENT": _GATEWAY, "SASL": _GATEWAY})


def test_every_version_of_every_rpc_is_generated_and_read(apis: Mapping[int, Api]) -> None:
    assert len(apis) == 91
    for api in apis.values():
        for version in api.versions:
            flexible = version in api.flexible
            for seed in range(3):
                tree = generate(api, version, Random(seed), "name")
                data = encode(api.request, tree, version, flexible=flexible)
                assert decode(api.request, data, version, flexible=flexible) == tree, (api.name, version)


def test_a_body_with_other_bytes_is_malformed(apis: Mapping[int, Api]) -> None:
    api = apis[_FIND_COORDINATOR]
    data = encode(api.request, {"Key": "group", "KeyType": 0}, 3, flexible=True)
    for malformed in (data[:-1], data + b"\0", data[:-1] + b"\1"):
        with pytest.raises(MalformedError):
            decode(api.request, malformed, 3, flexible=True)


def test_the_same_seed_makes_the_same_scripts(apis: Mapping[int, Api]) -> None:
    offered = {key: (api.versions[0], api.versions[-1]) for key, api in apis.items()}
    once, again, other = (Writer(apis, offered, seed) for seed in ("a", "a", "b"))
    scripts = [once.script(number) for number in range(50)]
    assert scripts == [again.script(number) for number in range(50)]
    assert scripts != [other.script(number) for number in range(50)]
    assert {script.ending for script in scripts} == {"close", "half", "cut", "reset"}


def test_marks_are_as_long_as_what_they_stand_for() -> None:
    assert len(side_name(5)) == len(SIDE)
    assert len(OWN_TOPIC_ID) == len(SHARED_TOPIC_ID) == 16
    names = {side_name(number) for number in range(16)}
    assert len(names) == 16
    assert len({_java_hash(f"own-{name}-x") for name in names}) == 1


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFF_FFFF
    return value


def test_the_tables_name_fields_that_there_are(apis: Mapping[int, Api]) -> None:
    for entry in VOLATILE:
        struct_of = apis[entry.api_key].response
        *parents, last = entry.path.split(".")
        for name in parents:
            (field,) = [field for field in struct_of.fields if field.name == name]
            assert field.struct is not None
            struct_of = field.struct
        assert last in {field.name for field in struct_of.fields}, entry
    assert apis.keys() >= WRITERS


# -- the comparison: each difference is found ----------------------------------------------------


def _side(path: Path) -> Side:
    number = ("direct", "kept", "rewritten").index(path)
    ids = {OWN_TOPIC_ID: bytes([number]) * 16, SHARED_TOPIC_ID: b"s" * 16}
    return Side(path=path, name=side_name(number), ports={}, topic_ids=ids)


def _step(key: int, version: int, correlation_id: int, body: Tree | None = None) -> Step:
    return Step(
        template=b"\0\0\0\x08" + struct.pack(">hhi", key, version, correlation_id),
        api_key=key,
        version=version,
        correlation_id=correlation_id,
        body={} if body is None else body,
        what=f"{key} v{version}",
    )


def _script(*steps: Step) -> Script:
    return Script(
        seed="s", number=1, listener="CLIENT", steps=steps, ending="half", cut=None, lockstep=False, pieces=1
    )


def _answer(apis: Mapping[int, Api], step: Step, tree: Tree) -> bytes:
    api = apis[step.api_key or 0]
    flexible = step.version in api.flexible
    head = struct.pack(">i", step.correlation_id)
    if flexible and step.api_key != _API_VERSIONS:
        head += b"\0"
    return head + encode(api.response, tree, step.version, flexible=flexible)


def _found(
    compare: Comparison,
    script: Script,
    direct: list[bytes],
    gateway: list[bytes],
    *,
    path: Path = "kept",
    ends: tuple[End, End] = ("closed", "closed"),
) -> str | None:
    there = Transcript(side=_side("direct"), answers=direct, end=ends[0])
    here = Transcript(side=_side(path), answers=gateway, end=ends[1])
    problem = compare.problem(script, there, here)
    return None if problem is None else problem.what


def _coordinator(port: int, host: str = "broker.test") -> Tree:
    return {"ErrorCode": 0, "NodeId": 1, "Host": host, "Port": port}


_FIND: Final = (_step(_FIND_COORDINATOR, 0, 1), _step(_FIND_COORDINATOR, 0, 2))


def test_equal_answers_are_no_problem(apis: Mapping[int, Api], compare: Comparison) -> None:
    answers = [_answer(apis, step, _coordinator(9092)) for step in _FIND]
    assert _found(compare, _script(*_FIND), answers, answers) is None


def test_a_lost_a_changed_and_a_swapped_answer_are_found(
    apis: Mapping[int, Api], compare: Comparison
) -> None:
    script = _script(*_FIND)
    one, two = (_answer(apis, step, _coordinator(9092)) for step in _FIND)
    other = _answer(apis, _FIND[1], _coordinator(9093))
    assert _found(compare, script, [one, two], [one]) == "only the broker answers; the gateway's end: closed"
    assert _found(compare, script, [one], [one, two]) == "only the gateway answers"
    assert _found(compare, script, [one, two], [one, other]) == ".Port is 9093, not 9092"
    assert "out of turn" in str(_found(compare, script, [one, two], [two, one]))
    assert "out of turn" in str(_found(compare, script, [one, two], [one, two, two]))
    assert "malformed" in str(_found(compare, script, [one, two], [one, two + b"\0"]))


def test_another_end_is_found(apis: Mapping[int, Api], compare: Comparison) -> None:
    answers = [_answer(apis, step, _coordinator(9092)) for step in _FIND]
    found = _found(compare, _script(*_FIND), answers, answers, ends=("closed", "silent"))
    assert found == "the broker's end: closed, the gateway's: silent"


def test_part_of_an_answer_is_found(apis: Mapping[int, Api], compare: Comparison) -> None:
    answers = [_answer(apis, step, _coordinator(9092)) for step in _FIND]
    there = Transcript(side=_side("direct"), answers=answers, end="closed")
    here = Transcript(side=_side("kept"), answers=answers, rest=b"\0", end="closed")
    problem = compare.problem(_script(*_FIND), there, here)
    assert problem is not None
    assert problem.what == "kept: a part of an answer, end: closed"


def test_addresses_must_be_the_gateways_where_they_are_rewritten(
    apis: Mapping[int, Api], compare: Comparison
) -> None:
    script = _script(_FIND[0])
    broker = _answer(apis, _FIND[0], _coordinator(9092))
    rewritten = _answer(apis, _FIND[0], _coordinator(9001, "gateway.test"))
    assert _found(compare, script, [broker], [rewritten], path="rewritten") is None
    assert _found(compare, script, [broker], [broker], path="rewritten") == (
        ".Host is 'broker.test', not 'gateway.test'"
    )
    assert _found(compare, script, [broker], [rewritten]) == ".Host is 'gateway.test', not 'broker.test'"


def _fetched(apis: Mapping[int, Api], endpoints: list[Tree] | None, **more: object) -> bytes:
    partition = {
        "PartitionIndex": 0,
        "ErrorCode": 6,
        "HighWatermark": 1,
        "LastStableOffset": 1,
        "LogStartOffset": 0,
        "AbortedTransactions": None,
        "PreferredReadReplica": -1,
        "Records": bytes(20_000),
    }
    tree = {
        "ThrottleTimeMs": 0,
        "ErrorCode": 0,
        "SessionId": 0,
        "Responses": [{"TopicId": bytes(16), "Partitions": [partition]}],
        **({} if endpoints is None else {"NodeEndpoints": endpoints}),
        **more,
    }
    return _answer(apis, _step(_FETCH, 16, 1), tree)


def test_a_long_response_keeps_its_size(apis: Mapping[int, Api], compare: Comparison) -> None:
    script = _script(_step(_FETCH, 16, 1))

    def found(broker_host: str, answer: bytes) -> str | None:
        broker = _fetched(apis, [{"NodeId": 1, "Host": broker_host, "Port": 9092, "Rack": None}])
        return _found(compare, script, [broker], [answer], path="rewritten")

    rewritten = [{"NodeId": 1, "Host": "gateway.test", "Port": 9001, "Rack": None}]
    assert found("as-long.test", _fetched(apis, rewritten)) is None
    # Shorter by ten bytes: they become a field that no client knows.
    padded = _fetched(apis, rewritten, **{UNKNOWN_TAGS: [(127, bytes(8))]})
    assert found("ten-more-bytes-is.test", padded) is None
    assert found("ten-more-bytes-is.test", _fetched(apis, rewritten)) is not None
    # Longer: the addresses are left out. They had 2 + 1 + 4 + 2 + 4 + 1 + 1 bytes.
    left_out = _fetched(apis, None, **{UNKNOWN_TAGS: [(127, bytes(13))]})
    assert found("b", left_out) is None
    assert found("b", _fetched(apis, None)) is not None


def _names(*topics: str) -> Tree:
    return {
        "ThrottleTimeMs": 0,
        "Topics": [{"Name": topic, "Partitions": []} for topic in topics],
        "ErrorCode": 0,
    }


def test_the_sides_own_names_are_equal(apis: Mapping[int, Api], compare: Comparison) -> None:
    step = _step(_OFFSET_FETCH, 3, 1)
    direct, kept = (_answer(apis, step, _names(f"own-{side_name(number)}")) for number in (0, 1))
    assert _found(compare, _script(step), [direct], [kept]) is None
    assert _found(compare, _script(step), [direct], [_answer(apis, step, _names("own-another"))]) is not None
    # An answer that lists the topics of all sides is the same on each.
    listed = _answer(apis, step, _names(*(f"own-{side_name(number)}" for number in range(3))))
    assert _found(compare, _script(step), [listed], [listed]) is None


def _versions(*ranges: tuple[int, int, int]) -> Tree:
    keys = [{"ApiKey": key, "MinVersion": low, "MaxVersion": high} for key, low, high in ranges]
    return {"ErrorCode": 0, "ApiKeys": keys}


def test_the_offered_versions_must_be_the_documented_ones(
    apis: Mapping[int, Api], compare: Comparison
) -> None:
    step = _step(_API_VERSIONS, 0, 1)
    broker = _answer(apis, step, _versions((17, 0, 1), (18, 0, 4), (58, 0, 0)))
    telemetry = ((71, 0, 1), (72, 0, 1))
    kept = _answer(apis, step, _versions((17, 0, 1), (18, 0, 5), (58, 0, 0), *telemetry))
    rewritten = _answer(apis, step, _versions((17, 1, 1), (18, 0, 5), *telemetry))
    script = _script(step)
    assert _found(compare, script, [broker], [kept]) is None
    assert _found(compare, script, [broker], [rewritten], path="rewritten") is None
    assert _found(compare, script, [broker], [broker]) is not None
    assert _found(compare, script, [broker], [kept], path="rewritten") is not None


def test_software_that_is_not_valid_must_end_the_connection(
    apis: Mapping[int, Api], compare: Comparison
) -> None:
    bad = _step(_API_VERSIONS, 3, 1, {"ClientSoftwareName": "", "ClientSoftwareVersion": "1"})
    script = _script(bad, _FIND[1])
    refused = _answer(apis, bad, {"ErrorCode": 42, "ApiKeys": [], "ThrottleTimeMs": 0})
    after = _answer(apis, _FIND[1], _coordinator(9092))
    assert _found(compare, script, [refused, after], [refused]) is None
    assert _found(compare, script, [refused, after], [refused, after]) is not None
    assert _found(compare, script, [refused, after], [refused], ends=("closed", "silent")) is not None


def test_the_gateways_own_answers_are_checked(apis: Mapping[int, Api], compare: Comparison) -> None:
    step = _step(_GET, 0, 1)
    tree = {
        "ThrottleTimeMs": 0,
        "ErrorCode": 0,
        "ClientInstanceId": bytes(16),
        "SubscriptionId": 1,
        "AcceptedCompressionTypes": [],
        "PushIntervalMs": 300_000,
        "TelemetryMaxBytes": 1,
        "DeltaTemporality": True,
        "RequestedMetrics": [],
    }
    script = _script(step, _FIND[1])
    after = _answer(apis, _FIND[1], _coordinator(9092))
    assert _found(compare, script, [after], [_answer(apis, step, tree), after]) is None
    for wrong in ({"ErrorCode": 35}, {"ThrottleTimeMs": 1}, {"RequestedMetrics": ["x"]}):
        assert _found(compare, script, [after], [_answer(apis, step, tree | wrong), after]) is not None


def test_a_broker_that_does_not_answer_is_not_waited_for(
    apis: Mapping[int, Api], compare: Comparison
) -> None:
    """The gateway soon ends a connection that one side has ended, or whose request it refuses."""
    one, two = (_answer(apis, step, _coordinator(9092)) for step in _FIND)
    unknown = replace(_step(95, 0, 3), body=None)
    waiting: tuple[End, End] = ("silent", "closed")
    to_the_end = replace(_script(*_FIND), ending="close")
    assert _found(compare, _script(*_FIND), [one], [one], ends=waiting) is None
    assert _found(compare, to_the_end, [one], [one], ends=waiting) is not None
    refused = replace(to_the_end, steps=(*_FIND, unknown))
    assert _found(compare, refused, [one], [one], ends=waiting) is None
    # It waits for the answers in front of that request, but not without end.
    there = Transcript(side=_side("direct"), answers=[one, two], end="closed", seconds=7.0)
    here = Transcript(side=_side("kept"), answers=[one], end="closed", seconds=6.0)
    assert compare.problem(refused, there, here) is None
    assert compare.problem(refused, there, replace(here, seconds=1.0)) is not None


def test_a_reset_leaves_the_answers_before_it_to_compare(
    apis: Mapping[int, Api], compare: Comparison
) -> None:
    script = replace(_script(*_FIND), ending="reset", cut=(1, 3))
    one, two = (_answer(apis, step, _coordinator(9092)) for step in _FIND)
    other = _answer(apis, _FIND[0], _coordinator(9093))
    assert _found(compare, script, [one, two], [one], ends=("left", "left")) is None
    assert _found(compare, script, [one, two], [other], ends=("left", "left")) is not None


def test_a_report_says_how_to_repeat_a_round() -> None:
    text = finding(_script(*_FIND), "kept", Problem(what="it differs", step=_FIND[0], direct=b"\1"))
    assert "seed s round 1, listener CLIENT, addresses kept: it differs" in text
    assert "request: 10 v0, correlation id 1" in text
    assert "--seed s --round 1" in text


# -- answers that no real broker gives -----------------------------------------------------------


def test_generated_answers_pass_and_are_rewritten(apis: Mapping[int, Api]) -> None:
    assert _differences(apis, "short", _BRIEF_ANSWERS) == []


@pytest.mark.full
def test_many_generated_answers_pass_and_are_rewritten(apis: Mapping[int, Api]) -> None:
    assert _differences(apis, SEED or "short", _MANY_ANSWERS) == []


def _differences(apis: Mapping[int, Api], seed: str, rounds: int) -> list[str]:
    generated = GeneratedAnswers(apis, seed)
    return [finding(*found) for number in range(rounds) for found in generated.problems(number)]


@pytest.mark.full
def test_a_short_run_finds_no_difference() -> None:
    async def run() -> list[str]:
        with world() as place:
            played = play_rounds(place, SEED or "short", range(_SHORT_ROUNDS))
            found = [
                finding(item.script, path, problem)
                async for item in played
                for path, problem in item.problems.items()
            ]
            return found + place.problems()

    assert asyncio.run(run()) == []
