"""Calls about client metrics resources: what they do to the subscriptions in force."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from receiver.core import config_calls
from receiver.core.config_calls import ConfigCalls
from receiver.link.messages import Answer, Call
from receiver.metrics import ReceiverMetrics
from receiver.request_log import RequestLog
from receiver.settings.limits import LimitsSettings, PeerLimitsSettings
from receiver.store.files import FileSubscriptionStore
from receiver.store.sqlite import SqliteSubscriptionStore
from receiver.store.store import StoreError, SubscriptionStore
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.current_subscriptions import CurrentSubscriptions
from receiver.telemetry.subscription import Subscription
from receiver.wire import (
    altered_configs,
    config_resources,
    k32_describe_configs,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredConfig, AlteredResource, Operation
from receiver.wire.config_resources import CLIENT_METRICS, Resource, Result
from receiver.wire.errors import WireError
from receiver.wire.headers import (
    RequestHeader,
    decode_response_header,
    response_header_version,
)
from receiver.wire.k32_describe_configs import DescribeConfigsRequest
from receiver.wire.primitives import Reader
from tests.unit.session.support import Clock, connection

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
METRICS = AlteredConfig("metrics", "a.")
Answered = tuple[Answer, bytes]


def resource(name: str) -> Resource:
    return Resource(CLIENT_METRICS, name)


class Core:
    """The calls of one connection, on a store."""

    def __init__(self, store: SubscriptionStore, **peer: int) -> None:
        self.subscriptions = Subscriptions(store, CurrentSubscriptions(), now=lambda: datetime.now(UTC))
        limits = Limits(LimitsSettings(source_address=PeerLimitsSettings(**peer)))
        self._calls = ConfigCalls(
            subscriptions=self.subscriptions,
            limits=limits,
            log=RequestLog(ReceiverMetrics(version="0").limit_exceeded, log_requests=False),
            clock=Clock(),
        )

    async def call(self, key: int, version: int, body: bytes) -> Answered:
        """Return the answer, and the response's body."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        header = RequestHeader(api_key=key, api_version=version, correlation_id=9)
        call = Call(1, 1, header, body)
        self._calls.call(connection(), call, answered.set_result)
        answer = await answered
        reader = Reader(answer.frame, 4)
        assert decode_response_header(reader, response_header_version(key, version)).correlation_id == 9
        return answer, bytes(reader.rest_view())

    async def alter(
        self, *changes: AlteredResource, key: int = INCREMENTAL, validate_only: bool = False
    ) -> list[Result]:
        request = AlterConfigsRequest(resources=changes, validate_only=validate_only)
        _, body = await self.call(key, 1, altered_configs.encode_request(request, key, 1))
        return config_resources.read_results(body, key, 1)

    async def set(self, name: str, *configs: AlteredConfig, validate_only: bool = False) -> Result:
        (result,) = await self.alter(AlteredResource(resource(name), configs), validate_only=validate_only)
        return result

    def names(self) -> list[str]:
        return [subscription.name for subscription in self.subscriptions.in_force.subscriptions]


def run(store: SubscriptionStore, test: Callable[[Core], Coroutine[Any, Any, None]], **peer: int) -> None:
    async def main() -> None:
        core = Core(store, **peer)
        await core.subscriptions.load()
        await test(core)

    try:
        asyncio.run(main())
    finally:
        store.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteSubscriptionStore:
    return SqliteSubscriptionStore(tmp_path / "subscriptions.db")


def test_a_change_is_durable_and_in_force_when_it_is_answered(
    sqlite: SqliteSubscriptionStore, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(core: Core) -> None:
        assert await core.set("s", METRICS) == Result(resource("s"), 0, None)
        assert core.names() == ["s"]
        (stored,) = sqlite.load_all()
        assert stored.metrics == ("a.",)
        assert stored.changed_by == "User:ANONYMOUS"
        assert stored.changed_at is not None
        gone = await core.set("s", AlteredConfig("metrics", None, Operation.DELETE))
        assert gone.error_code == 0
        assert sqlite.load_all() == ()

    run(sqlite, test)
    lines = [line for line in capsys.readouterr().out.splitlines() if "receiver.audit" in line]
    assert ["IncrementalAlterConfigs" in line for line in lines] == [True, True]


def test_a_change_that_is_only_validated_is_not_made(sqlite: SqliteSubscriptionStore) -> None:
    async def test(core: Core) -> None:
        assert (await core.set("s", METRICS, validate_only=True)).error_code == 0
        wrong = await core.set("s", AlteredConfig("interval.ms", "1"), validate_only=True)
        assert wrong.error_code == 42
        assert core.names() == []

    run(sqlite, test)


def test_each_resource_has_a_result_of_its_own(sqlite: SqliteSubscriptionStore) -> None:
    async def test(core: Core) -> None:
        names = ("a", "twice", "", "twice", "b")
        for key in (INCREMENTAL, ALTER):
            changes = [AlteredResource(resource(name), (METRICS,)) for name in names]
            results = await core.alter(*changes, key=key)
            assert [result.resource.name for result in results] == list(names)
            assert [result.error_code for result in results] == [0, 42, 42, 42, 0]
            assert core.names() == ["a", "b"]

    run(sqlite, test)


def test_a_request_with_too_many_changes_changes_nothing(sqlite: SqliteSubscriptionStore) -> None:
    async def test(core: Core) -> None:
        count = config_calls.MAX_CHANGES + 1
        changes = [AlteredResource(resource(str(index)), (METRICS,)) for index in range(count)]
        results = await core.alter(*changes)
        assert {result.error_code for result in results} == {42}
        assert core.names() == []

    run(sqlite, test)


@pytest.mark.parametrize("version", k32_describe_configs.SUPPORTED_VERSIONS)
def test_resources_are_listed_and_described(sqlite: SqliteSubscriptionStore, version: int) -> None:
    async def test(core: Core) -> None:
        await core.subscriptions.edit("s", lambda _: Subscription("s", ("a.",), interval_ms=1000))
        _, body = await core.call(LIST, 0, b"\0")
        assert k74_list_config_resources.decode_response(body) == (0, ("s",))
        request = DescribeConfigsRequest(
            resources=((resource("s"), None), (resource(""), None), (resource("s"), ("metrics", "zz")))
        )
        _, body = await core.call(DESCRIBE, version, k32_describe_configs.encode_request(request, version))
        results = config_resources.read_results(body, DESCRIBE, version)
        assert [result.error_code for result in results] == [0, 42, 0]
        assert body.count(b"interval.ms") == 1
        assert body.count(b"metrics") >= 2

    run(sqlite, test)


def test_a_folder_says_where_its_subscriptions_are_changed(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("metrics: [a.]\n")

    async def test(core: Core) -> None:
        for name in ("s", "new"):
            result = await core.set(name, AlteredConfig("metrics", "b."))
            assert result.error_code == 44
            assert result.error_message is not None
            assert str(tmp_path) in result.error_message
        # What is there already is no change.
        assert (await core.set("s", METRICS)).error_code == 0

    run(FileSubscriptionStore(tmp_path), test)


class Failing(SqliteSubscriptionStore):
    """A store whose disk is full."""

    def put(self, subscription: Subscription) -> None:
        raise StoreError("subscriptions.db", "the disk is full")


def test_a_store_that_fails_changes_nothing(tmp_path: Path) -> None:
    async def test(core: Core) -> None:
        result = await core.set("s", METRICS)
        assert (result.error_code, result.error_message) == (-1, "subscriptions.db: the disk is full")
        assert core.names() == []

    run(Failing(tmp_path / "subscriptions.db"), test)


def test_more_subscriptions_than_clients_can_have_are_refused(
    sqlite: SqliteSubscriptionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.telemetry.subscription.MAX_SUBSCRIPTIONS", 1)

    async def test(core: Core) -> None:
        assert (await core.set("a", METRICS)).error_code == 0
        result = await core.set("b", METRICS)
        assert result.error_code == 44
        assert "too many" in str(result.error_message)

    run(sqlite, test)


def test_a_peer_over_its_limit_is_throttled(sqlite: SqliteSubscriptionStore) -> None:
    async def test(core: Core) -> None:
        for _ in range(10):
            answer, _ = await core.call(LIST, 0, b"\0")
            assert not answer.throttled
        answer, body = await core.call(LIST, 0, b"\0")
        assert answer.throttled
        assert k74_list_config_resources.decode_response(body)[0] == 89

    run(sqlite, test, telemetry_requests_per_second=1)


def test_changes_of_many_connections_wait_up_to_a_bound(sqlite: SqliteSubscriptionStore) -> None:
    async def test(core: Core) -> None:
        count = config_calls.MAX_WAITING + 8
        results = await asyncio.gather(*(core.set(f"s{index}", METRICS) for index in range(count)))
        codes = [result.error_code for result in results]
        assert codes.count(89) == 8
        assert len(core.names()) == codes.count(0) == config_calls.MAX_WAITING

    run(sqlite, test)


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (DESCRIBE, b"\0\0\0\x01\x10\x7f\xff"),
        (ALTER, b"\0\0\0\x01\x10\x7f\xff"),
        (INCREMENTAL, b"\x02\x10\x7f\0\0"),
    ],
)
def test_a_malformed_request_is_refused_at_once(
    sqlite: SqliteSubscriptionStore, key: int, body: bytes
) -> None:
    async def test(core: Core) -> None:
        with pytest.raises(WireError, match="ResourceName"):
            await core.call(key, 1, body)
        assert len(asyncio.all_tasks()) == 1

    run(sqlite, test)


def test_a_defect_is_an_answer_and_a_log_line(
    sqlite: SqliteSubscriptionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(config_calls, "altered", fail)

    async def test(core: Core) -> None:
        result = await core.set("s", METRICS)
        assert (result.error_code, "see its log" in str(result.error_message)) == (-1, True)

    run(sqlite, test)


def test_the_audit_log_has_both_documents(
    sqlite: SqliteSubscriptionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[dict[str, Any]] = []
    monkeypatch.setattr("receiver.audit.write", lambda **fields: written.append(fields))

    async def test(core: Core) -> None:
        await core.set("s", METRICS)
        await core.set("s", AlteredConfig("interval.ms", "1"))

    run(sqlite, test)
    made, failed = json.loads(json.dumps(written))
    assert made["before"] is None
    assert (made["after"]["metrics"], made["who"], made["outcome"]) == (["a."], "User:ANONYMOUS", "changed")
    assert (failed["outcome"], "after" in failed) == ("failed", False)
