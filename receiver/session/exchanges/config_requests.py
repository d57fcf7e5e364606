"""Requests about client metrics resources, for a broker that keeps none.

Kafka's tools and clients read and write subscriptions by DescribeConfigs, AlterConfigs,
IncrementalAlterConfigs and ListConfigResources (KIP-714, "Client metrics configuration"). The
receiver answers for resources of the type CLIENT_METRICS. Resources of other types are the
broker's, also in the same request: it gets a request for them alone, and the results are merged.

**Rights.** The broker decides what the caller may do. On the caller's own connection it gets a
*question*: a request of the same kind about the brokers' default configuration, for which Kafka
demands the same right of the same resource as for client metrics (DESCRIBE_CONFIGS or ALTER_CONFIGS
on the cluster). The question changes nothing: it asks for one config, or only to validate no
change. Any error in its response is the caller's answer. The question is also the request's marker
(:mod:`receiver.session.session`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Final

from receiver.brokers.upstream import Upstream
from receiver.session.call import OpenCall
from receiver.session.effects import ConfigRequestAllowed, ConfigRequestHidden, ConfigRequestRefused
from receiver.session.exchange import Connection, Exchange, Kind, Request, held_memory
from receiver.session.messages import answer_frame
from receiver.wire import (
    altered_configs,
    api_keys,
    config_resources,
    k32_describe_configs,
    k74_list_config_resources,
)
from receiver.wire.altered_configs import AlterConfigsRequest, AlteredResource
from receiver.wire.config_resources import BROKER, CLIENT_METRICS, Resource, Result
from receiver.wire.error_codes import ErrorCode
from receiver.wire.frame_rewriter import frame
from receiver.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from receiver.wire.k32_describe_configs import DescribeConfigsRequest, DescribedResource
from receiver.wire.primitives import Reader

_SUPPORTED: Final = {
    api_keys.DESCRIBE_CONFIGS: k32_describe_configs.SUPPORTED_VERSIONS,
    **altered_configs.SUPPORTED_VERSIONS,
    api_keys.LIST_CONFIG_RESOURCES: k74_list_config_resources.SUPPORTED_VERSIONS,
}

#: The longest request that is read. A longer one passes, and the broker refuses its
#: client metrics resources.
_MAX_READ_BYTES: Final = 131_072

#: Longest response of the broker to a request for other resources.
_MAX_OTHERS_BYTES: Final = 4_194_304

#: Memory of a resource, besides its name.
_RESOURCE_BYTES: Final = sys.getsizeof(Resource(0, "")) + 24

#: The brokers' default configuration.
_ALL_BROKERS: Final = Resource(BROKER, "")

#: A config that every broker has, so that the response to a question stays short.
_ONE_KEY: Final = "log.retention.ms"

_NO_ANSWER: Final = (
    "The telemetry receiver's core does not answer, and a change may or may not have been made: describe the "
    "resource, and repeat the request."
)

_NO_LOGIN: Final = "Log in first: this listener needs SASL."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A request with client metrics resources: what the broker gets of it."""

    header: RequestHeader
    own: bytes
    """The body of a request for its client metrics resources, which the receiver answers."""
    asked: tuple[Resource, ...]
    others: bytes | None
    """The body of a request for the other resources; None: there are none."""
    question: tuple[int, int, bytes]
    """The header's API key and version, and the body, of the question for the right."""

    @property
    def held_bytes(self) -> int:
        """Their memory."""
        _, _, question = self.question
        kept = held_memory(self.header, self.own, self.others or b"", question)
        return kept + sum(_RESOURCE_BYTES + sys.getsizeof(resource.name) for resource in self.asked)

    def question_frame(self, correlation_id: int, client_id: str | None) -> bytes:
        api_key, api_version, body = self.question
        return _request(api_key, api_version, correlation_id, client_id, body)

    def others_frame(self, correlation_id: int, client_id: str | None) -> bytes:
        """Write the request for the other resources as a frame; nothing if there are none."""
        if self.others is None:
            return b""
        header = self.header
        return _request(header.api_key, header.api_version, correlation_id, client_id, self.others)

    def judgement(self, response: bytes) -> tuple[int, Result | None]:
        """Read the broker's response to the question.

        Returns:
            For how many milliseconds the broker throttles the client (KIP-124), and the error; None
            if the caller has the right.

        Raises:
            WireError: The response is malformed.
        """
        api_key, api_version, _ = self.question
        body = _body(response, api_key, api_version)
        results = config_resources.read_results(body, api_key, api_version)
        refused = next((result for result in results if result.error_code != ErrorCode.NONE), None)
        if not results:
            refused = Result(_ALL_BROKERS, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        return config_resources.throttle_time_ms(body), refused

    def check_others(self, response: bytes) -> None:
        """Check the broker's response to :attr:`others`, which comes without its length.

        Raises:
            WireError: The response is malformed.
        """
        api_key, version = self.header.api_key, self.header.api_version
        config_resources.check_response(_body(response, api_key, version), api_key, version)

    def answer(self, own: bytes, others: bytes | None, throttle_time_ms: int) -> bytes:
        """Return the client's answer as a frame.

        Args:
            own: The answer to :attr:`own` as a frame.
            others: The broker's response to :attr:`others`, which was checked; None: there is none.
            throttle_time_ms: For how long the broker throttles the client.
        """
        header = self.header
        api_key, version = header.api_key, header.api_version
        body = _body(own[4:], api_key, version)
        if others is not None:
            body = config_resources.merge(self.asked, api_key, version, body, _body(others, api_key, version))
        longest = max(throttle_time_ms, config_resources.throttle_time_ms(body))
        return answer_frame(header, config_resources.with_throttle_time(body, longest))


class _State(Enum):
    """What a :class:`ConfigExchange` waits for.

    JUDGEMENT, then OTHERS if there are any, then CALL unless the caller has no right.
    """

    JUDGEMENT = auto()
    OTHERS = auto()
    CALL = auto()


class ConfigExchange(Exchange, OpenCall):
    """A request with client metrics resources.

    The broker judges, and the core answers.
    """

    __slots__ = (
        "_others",
        "_parts",
        "_refused",
        "_state",
        "_throttle_time_ms",
        "body",
        "cut_beyond",
        "header",
    )

    answer_within_s: ClassVar[float] = 12.0
    waits_for_others: ClassVar[bool] = True

    def __init__(self, parts: _Parts) -> None:
        self.header = parts.header
        self.body = parts.own  # without other resources
        self.cut_beyond = None
        self._parts = parts
        self._state = _State.JUDGEMENT
        self._throttle_time_ms = 0
        self._refused: Result | None = None
        self._others: bytes | None = None

    def begin(self, request: Request, connection: Connection) -> bytes:
        """Return the question, and the request for the other resources if there are any."""
        parts, client_id = self._parts, request.client_id
        has_others = parts.others is not None
        question = connection.expect(
            self, held_bytes=0 if has_others else parts.held_bytes, decides=not has_others
        )
        sent = parts.question_frame(question, client_id)
        if has_others:
            others = connection.expect(
                self,
                held_bytes=parts.held_bytes,
                max_read_bytes=_MAX_OTHERS_BYTES,
                client_correlation_id=request.header.correlation_id,
                decides=True,
                further=True,
            )
            sent += parts.others_frame(others, client_id)
        return sent

    def responded(self, response: bytes, connection: Connection) -> bytes:
        """See the base class; the responses are those to the question and to the others."""
        if self._state is _State.JUDGEMENT:
            self._throttle_time_ms, self._refused = self._parts.judgement(response)
            if not connection.login.authenticated:
                self._refused = _not_logged_in()
            if self._parts.others is not None:
                self._state = _State.OTHERS
                return b""
        else:
            self._parts.check_others(response)
            self._others = response
        return self._decide(connection)

    def answered(self, answer: bytes) -> bytes:
        """See the base class; the core's answer is merged with the broker's."""
        return self._parts.answer(answer, self._others, self._throttle_time_ms)

    def unanswered(self) -> bytes:
        """See the base class."""
        return config_error(self.header, self._parts.own, ErrorCode.REQUEST_TIMED_OUT, _NO_ANSWER)

    def _decide(self, connection: Connection) -> bytes:
        parts, refused = self._parts, self._refused
        if refused is not None:
            connection.emit(ConfigRequestRefused(parts.header, refused.error_code))
            return self.answered(
                config_error(parts.header, parts.own, refused.error_code, refused.error_message)
            )
        self._state = _State.CALL
        connection.emit(ConfigRequestAllowed(parts.header))
        connection.open_call(self, parts.held_bytes + len(self._others or b""))
        return b""


def _begin(request: Request, connection: Connection) -> bytes:
    header, upstream = request.header, connection.upstream
    body = request.data[request.reader.offset :]
    if upstream.answers_for_resources:
        parts = _read_parts(header, body, upstream)
        if parts is not None:
            return ConfigExchange(parts).begin(request, connection)
    elif upstream.hides_resources and _is_about_resources(header, body):
        connection.emit(ConfigRequestHidden(header))
    return frame(request.data)


KIND: Final = Kind(
    keys=frozenset(_SUPPORTED),
    begin=_begin,
    watched=lambda upstream: upstream.watched_config_keys,
    longest=dict.fromkeys(_SUPPORTED, _MAX_READ_BYTES),
)


def _is_about_resources(header: RequestHeader, body: bytes) -> bool:
    """Return whether a request changes or lists client metrics resources.

    Raises:
        WireError: The body is malformed.
    """
    version = header.api_version
    if version not in _SUPPORTED[header.api_key]:
        return False
    if header.api_key == api_keys.LIST_CONFIG_RESOURCES:
        return k74_list_config_resources.asks_for(body, version, CLIENT_METRICS)
    return config_resources.split(body, header.api_key, version) is not None


def _read_parts(header: RequestHeader, body: bytes, upstream: Upstream) -> _Parts | None:
    """Read a request; None if it is the broker's alone.

    That holds for a request without client metrics resources, for an unknown version, and for a
    request with more resources than :data:`receiver.wire.config_resources.MAX_ITEMS`.

    Raises:
        WireError: The body is malformed.
    """
    api_key, version = header.api_key, header.api_version
    if version not in _SUPPORTED[api_key]:
        return None
    if api_key == api_keys.LIST_CONFIG_RESOURCES:
        is_asked = k74_list_config_resources.asks_for(body, version, CLIENT_METRICS)
        if version != k74_list_config_resources.LIST_ONLY or not is_asked:
            return None
        spoken = upstream.common_version(api_keys.DESCRIBE_CONFIGS, _SUPPORTED[api_keys.DESCRIBE_CONFIGS])
        question = _describe_question(spoken or 0)
        return _Parts(header=header, own=body, asked=(), others=None, question=question)
    parts = config_resources.split(body, api_key, version)
    if parts is None:
        return None
    # The split skips names and values of configs. They are read now, so that nobody fails at them
    # later, when the answer is due.
    if api_key == api_keys.DESCRIBE_CONFIGS:
        k32_describe_configs.decode_request(parts.own, version)
        question = _describe_question(version)
    else:
        altered_configs.decode_request(parts.own, api_key, version)
        question = _alter_question(version, upstream)
    return _Parts(header=header, own=parts.own, asked=parts.asked, others=parts.others, question=question)


def config_error(header: RequestHeader, own: bytes, error_code: int, message: str | None) -> bytes:
    """Write the frame that answers :attr:`_Parts.own` with an error.

    Args:
        own: The body, which was read as a whole.
        message: Its message, where the response has one.
    """
    api_key, version = header.api_key, header.api_version
    if api_key == api_keys.LIST_CONFIG_RESOURCES:
        body = k74_list_config_resources.encode_response((), error_code=error_code)
    elif api_key == api_keys.DESCRIBE_CONFIGS:
        request = k32_describe_configs.decode_request(own, version)
        described = [
            DescribedResource(Result(resource, error_code, message)) for resource, _ in request.resources
        ]
        body = k32_describe_configs.encode_response(described, version, request)
    else:
        changes = altered_configs.decode_request(own, api_key, version).resources
        results = [Result(change.resource, error_code, message) for change in changes]
        body = altered_configs.encode_response(results, api_key, version)
    return answer_frame(header, body)


def _not_logged_in() -> Result:
    """Return the error of a caller who has not logged in where that is needed."""
    return Result(_ALL_BROKERS, ErrorCode.ILLEGAL_SASL_STATE, _NO_LOGIN)


def _describe_question(version: int) -> tuple[int, int, bytes]:
    request = DescribeConfigsRequest(resources=((_ALL_BROKERS, (_ONE_KEY,)),))
    return api_keys.DESCRIBE_CONFIGS, version, k32_describe_configs.encode_request(request, version)


def _alter_question(version: int, upstream: Upstream) -> tuple[int, int, bytes]:
    # AlterConfigs without a config would reset them all, which brokers may refuse to validate.
    nothing = AlterConfigsRequest(resources=(AlteredResource(_ALL_BROKERS),), validate_only=True)
    key = api_keys.INCREMENTAL_ALTER_CONFIGS
    spoken = upstream.common_version(key, _SUPPORTED[key])
    if spoken is None:  # Kafka before 2.3
        key, spoken = api_keys.ALTER_CONFIGS, version
    return key, spoken, altered_configs.encode_request(nothing, key, spoken)


def _request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    header = RequestHeader(
        api_key=api_key, api_version=api_version, correlation_id=correlation_id, client_id=client_id
    )
    return frame(encode_request_header(header), body)


def _body(response: bytes, api_key: int, api_version: int) -> bytes:
    reader = Reader(response)
    decode_response_header(reader, response_header_version(api_key, api_version))
    return response[reader.offset :]
