"""Spreads exports over several endpoints, and skips an endpoint that fails.

:class:`Transport` is the interface of one endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from plugins.otlp.config import Endpoint
from receiver.plugin import BatchRefusedError, ExportResult, RetryableError, UnclearError
from receiver.plugin.breaker import CircuitBreaker

#: After this many consecutive failures an endpoint is skipped, because each may cost a whole
#: timeout.
_MAX_FAILURES: Final = 2

#: How long it is skipped: this many seconds, and at least this many timeouts, because the next
#: trial may cost another timeout.
_OPEN_S: Final = 10.0
_OPEN_TIMEOUTS: Final = 5


class Transport(Protocol):
    """A connection to a destination. Not thread-safe."""

    def open(self) -> None:
        """Create the client or channel. The first export connects it.

        Raises:
            OSError: A TLS file is missing or invalid.
        """

    def export(self, body: bytes) -> ExportResult | None:
        """Send an ``ExportMetricsServiceRequest``; return what the destination rejected.

        Raises:
            RetryableError: The same request may succeed later.
            UnclearError: It may succeed later, or never.
            BatchRefusedError: The same request will always fail. A part of it may succeed.
        """

    def close(self) -> None:
        """Close what :meth:`open` opened."""


@dataclass(frozen=True, slots=True)
class _Route:
    endpoint: Endpoint
    transport: Transport
    circuit: CircuitBreaker


class BalancedTransport:
    """Exports to the next working endpoint, and to another one if that fails.

    ``timeout_s`` is the timeout of one attempt. ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        transports: Sequence[tuple[Endpoint, Transport]],
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        open_s = max(_OPEN_S, _OPEN_TIMEOUTS * timeout_s)
        self._routes = [
            _Route(endpoint, transport, CircuitBreaker(_MAX_FAILURES, open_s))
            for endpoint, transport in transports
        ]
        self._next = 0
        self._clock = clock

    def open(self) -> None:
        """Open each transport."""
        for route in self._routes:
            route.transport.open()

    def export(self, body: bytes) -> ExportResult | None:
        """Send to the first endpoint that accepts; each is tried at most once.

        Raises:
            RetryableError: No endpoint accepts it now. The delay is the shortest that one asks for.
            UnclearError: No endpoint accepts it, and none says why.
            BatchRefusedError: An endpoint refused the content. Another would refuse it too.
        """
        first = self._next
        self._next = (first + 1) % len(self._routes)
        failures: list[str] = []
        unclear = 0
        for route in self._routes[first:] + self._routes[:first]:
            if not route.circuit.allows(self._clock()):
                continue
            try:
                result = route.transport.export(body)
            except RetryableError as error:
                route.circuit.failed(self._clock(), error.retry_after_s)
                failures.append(f"{route.endpoint.text}: {error}")
            except UnclearError as error:
                route.circuit.failed(self._clock())
                failures.append(f"{route.endpoint.text}: {error}")
                unclear += 1
            except BatchRefusedError:
                route.circuit.succeeded()  # the endpoint works, the content is at fault
                raise
            else:
                route.circuit.succeeded()
                return _with_failures(result, failures)
        if unclear == len(self._routes):
            raise UnclearError("; ".join(failures))
        now = self._clock()
        raise RetryableError(
            "; ".join(failures) or f"none of {len(self._routes)} endpoints answered lately",
            min(route.circuit.retry_in_s(now) for route in self._routes) or None,
        )

    def close(self) -> None:
        """Close every transport."""
        for route in self._routes:
            route.transport.close()


def _with_failures(result: ExportResult | None, failures: Sequence[str]) -> ExportResult | None:
    """Report the endpoints that failed when the push arrived at another one."""
    if not failures:
        return result
    messages = [f"another endpoint accepted what failed at {failure}" for failure in failures]
    if result is None:
        return ExportResult(message="; ".join(messages))
    return replace(result, message="; ".join([*filter(None, [result.message]), *messages]))
