"""Answers requests about client metrics resources (KIP-714).

The resources are the receiver's subscriptions. A change is durable and in force before it is
answered, like one over REST, and is written to the audit log with the caller's principal.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from receiver import audit
from receiver.clock import Clock
from receiver.core.answering import Reply
from receiver.link.messages import Answer, Call
from receiver.request_log import RequestLog
from receiver.session.exchanges.config_requests import KIND, config_error
from receiver.session.messages import answer_frame
from receiver.store.client_metrics import ResourceError, altered, described, replaced
from receiver.store.kafka_cluster import RefusedError
from receiver.store.store import ReadOnlyError, StoreError
from receiver.store.subscriptions import Subscriptions
from receiver.telemetry.control.limits import Limits
from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.identity import ClientIdentity
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_document import to_document
from receiver.wire import altered_configs, api_keys, k32_describe_configs, k74_list_config_resources
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredResource
from receiver.wire.config_resources import Result
from receiver.wire.error_codes import ErrorCode
from receiver.wire.headers import RequestHeader
from receiver.wire.k32_describe_configs import DescribedResource
from receiver.workers import start_task

#: Most resources that a request may change, because each change is written to the disk.
MAX_CHANGES: Final = 100

#: Most requests whose changes wait for each other. Each connection has one at most.
MAX_WAITING: Final = 32

_MAX_MESSAGE: Final = 2000
_NOT_EMPTY: Final = "Client metrics subscription name must not be empty"
_ONCE: Final = "Each resource must appear at most once."
_THROTTLED: Final = "This client sends too many requests to the telemetry receiver: wait, and repeat it."
_BUSY: Final = "Too many changes wait for the telemetry receiver: wait, and repeat the request."
_TOO_MANY: Final = f"A request may change at most {MAX_CHANGES} client metrics resources: send several."
_INTERNAL: Final = "Internal error of the telemetry receiver: see its log."

_log = structlog.get_logger("receiver.core")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, and who gets the answer."""

    token: int
    header: RequestHeader
    body: bytes
    reply: Reply

    def answer(self, answer: bytes, *, throttled: bool) -> None:
        self.reply(Answer(self.token, answer, throttled=throttled))


class ConfigCalls:
    """Answers calls about client metrics resources.

    Not thread-safe; runs on the event loop.
    """

    keys = KIND.keys

    def __init__(
        self, *, subscriptions: Subscriptions, limits: Limits, log: RequestLog, clock: Clock
    ) -> None:
        self._subscriptions = subscriptions
        self._limits = limits
        self._log = log
        self._clock = clock
        self._changes: set[asyncio.Task[None]] = set()

    def call(self, identity: ClientIdentity, call: Call, reply: Reply) -> None:
        """Answer a call of a client to which the broker gives the right.

        Raises:
            WireError: The request is malformed, although the session has read it.
        """
        asked = _Asked(call.token, call.header, call.body, reply)
        now, started = self._clock.monotonic(), self._clock.cpu()
        exceeded = self._limits.telemetry_request(identity, now)
        if exceeded is not None:
            self._log.limit_exceeded(identity, exceeded)
            self._refuse(identity, asked, _THROTTLED, throttled=True)
        elif asked.header.api_key == api_keys.LIST_CONFIG_RESOURCES:
            self._list(identity, asked)
        elif asked.header.api_key == api_keys.DESCRIBE_CONFIGS:
            self._describe(identity, asked)
        elif len(self._changes) >= MAX_WAITING:
            self._refuse(identity, asked, _BUSY, throttled=False)
        else:
            header = asked.header
            request = altered_configs.decode_request(asked.body, header.api_key, header.api_version)
            task = start_task("config-change", self._alter(identity, asked, request))
            self._changes.add(task)
            task.add_done_callback(self._changes.discard)
        self._limits.spent(identity, self._clock.cpu() - started, self._clock.monotonic())

    def _refuse(self, identity: ClientIdentity, asked: _Asked, message: str, *, throttled: bool) -> None:
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self._log.answered(identity, asked.header, code)
        asked.answer(config_error(asked.header, asked.body, code, message), throttled=throttled)

    def _answer(self, identity: ClientIdentity, asked: _Asked, body: bytes, error_code: int) -> None:
        self._log.answered(identity, asked.header, error_code)
        asked.answer(answer_frame(asked.header, body), throttled=False)

    def _list(self, identity: ClientIdentity, asked: _Asked) -> None:
        names = [subscription.name for subscription in self._subscriptions.in_force.subscriptions]
        body = k74_list_config_resources.encode_response(names, error_code=ErrorCode.NONE)
        self._answer(identity, asked, body, ErrorCode.NONE)

    def _describe(self, identity: ClientIdentity, asked: _Asked) -> None:
        version = asked.header.api_version
        request = k32_describe_configs.decode_request(asked.body, version)
        results = []
        for resource, keys in request.resources:
            if not resource.name:
                result = Result(resource, ErrorCode.INVALID_REQUEST, _NOT_EMPTY)
                results.append(DescribedResource(result))
                continue
            configs = described(self._subscriptions.in_force.get(resource.name))
            if keys:
                configs = tuple(config for config in configs if config.name in keys)
            # Kafka's message is empty here, and null after a change.
            results.append(DescribedResource(Result(resource, ErrorCode.NONE, ""), configs))
        body = k32_describe_configs.encode_response(results, version, request)
        self._answer(identity, asked, body, _first_error([outcome.result for outcome in results]))

    async def _alter(self, identity: ClientIdentity, asked: _Asked, request: AlterConfigsRequest) -> None:
        try:
            body, error_code = await self._altered(identity, asked, request)
        except Exception as error:  # a bug must end this request only
            _log.error("internal error, a change of subscriptions is not answered", exc_info=error)
            error_code = ErrorCode.UNKNOWN_SERVER_ERROR
            asked.answer(config_error(asked.header, asked.body, error_code, _INTERNAL), throttled=False)
        else:
            self._answer(identity, asked, body, error_code)

    async def _altered(
        self, identity: ClientIdentity, asked: _Asked, request: AlterConfigsRequest
    ) -> tuple[bytes, int]:
        """Make the changes of a request, one by one, and return the response's body."""
        times = Counter(change.resource for change in request.resources)
        results = []
        for change in request.resources:
            if len(request.resources) > MAX_CHANGES:
                results.append(Result(change.resource, ErrorCode.INVALID_REQUEST, _TOO_MANY))
            elif times[change.resource] > 1:
                results.append(Result(change.resource, ErrorCode.INVALID_REQUEST, _ONCE))
            else:
                results.append(await self._change(identity, asked, request, change))
        header = asked.header
        body = altered_configs.encode_response(results, header.api_key, header.api_version)
        return body, _first_error(results)

    async def _change(
        self,
        identity: ClientIdentity,
        asked: _Asked,
        request: AlterConfigsRequest,
        change: AlteredResource,
    ) -> Result:
        name = change.resource.name
        edit = partial(
            altered if _is_incremental(asked) else replaced,
            name,
            changes=change.configs,
            changed_by=identity.principal,
            changed_at=datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC),
        )
        documents: list[object] = []

        def make(existing: Subscription | None) -> Subscription | None:
            started = self._clock.cpu()
            try:
                made = edit(existing)
            finally:
                self._limits.spent(identity, self._clock.cpu() - started, self._clock.monotonic())
            documents[:] = [None if state is None else to_document(state) for state in (existing, made)]
            return made

        try:
            await self._subscriptions.edit(name, make, only_check=request.validate_only)
        except (ResourceError, SubscriptionError, StoreError) as error:
            result = Result(change.resource, _error_code(error), str(error)[:_MAX_MESSAGE])
        else:
            result = Result(change.resource, ErrorCode.NONE, None)
        if not request.validate_only:
            _audit(identity, asked, name, result, documents)
        return result


def _is_incremental(asked: _Asked) -> bool:
    return asked.header.api_key == api_keys.INCREMENTAL_ALTER_CONFIGS


def _error_code(error: ResourceError | SubscriptionError | StoreError) -> ErrorCode:
    match error:
        case ResourceError(error_code=code):
            return code
        case RefusedError():
            return ErrorCode.INVALID_CONFIG
        case ReadOnlyError() | SubscriptionError():  # too many subscriptions
            return ErrorCode.POLICY_VIOLATION
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def _first_error(results: list[Result]) -> int:
    return next(
        (outcome.error_code for outcome in results if outcome.error_code != ErrorCode.NONE), ErrorCode.NONE
    )


def _audit(
    identity: ClientIdentity, asked: _Asked, name: str, result: Result, documents: list[object]
) -> None:
    fields: dict[str, object] = {}
    if result.error_code == ErrorCode.NONE:
        fields = dict(zip(("before", "after"), documents, strict=True))
    audit.write(
        who=identity.principal,
        authenticated_by="kafka",
        source_address=identity.source_address,
        listener=identity.listener,
        api=api_keys.api_name(asked.header.api_key),
        subscription=name,
        outcome="failed" if result.error_code else "changed",
        **fields,
    )
