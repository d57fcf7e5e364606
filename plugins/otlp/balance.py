"""Several endpoints as one: exports in turn, and past an endpoint that fails.

Owns the order of endpoints and the circuit of each. How an export is made is a transport's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from plugins.otlp.config import Endpoint
from plugins.otlp.transport import Transport
from receiver.plugin import BatchRefusedError, ExportResult, PermanentError, RetryableError
from receiver.plugin.breaker import CircuitBreaker

__all__ = ["BalancedTransport"]

#: An endpoint that failed so often in a row is left out, as each failure may cost the whole time-out.
_FAILURES: Final = 2

#: For how long, in seconds, and for as many time-outs at least: one trial may cost another time-out.
_OPEN_S: Final = 10.0
_OPEN_TIMEOUTS: Final = 5


@dataclass(frozen=True, slots=True)
class _Way:
    endpoint: Endpoint
    transport: Transport
    circuit: CircuitBreaker


class BalancedTransport:
    """Exports to the next endpoint in turn whose circuit lets it, and to another when that one fails.

    Args:
        transports: A transport for each endpoint.
        timeout_s: How long one attempt may take, in seconds.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        transports: Sequence[tuple[Endpoint, Transport]],
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        open_s = max(_OPEN_S, _OPEN_TIMEOUTS * timeout_s)
        self._ways = [
            _Way(endpoint, transport, CircuitBreaker(_FAILURES, open_s)) for endpoint, transport in transports
        ]
        self._next = 0
        self._clock = clock

    def open(self) -> None:
        """Make each transport ready.

        Raises:
            OSError: A TLS file is missing or wrong.
        """
        for way in self._ways:
            way.transport.open()

    def export(self, body: bytes) -> ExportResult | None:
        """Send to one endpoint; each is asked at most once.

        Returns:
            As the endpoint said that took it, with what others refused before.

        Raises:
            RetryableError: None of them takes it now; the delay is the least of what they ask for.
            BatchRefusedError: As one endpoint said of what is in it: another would say the same.
            PermanentError: Every endpoint refuses, as the first of them says.
        """
        turn = self._next
        self._next = (turn + 1) % len(self._ways)
        said = []
        refused: list[tuple[Endpoint, PermanentError]] = []
        for way in self._ways[turn:] + self._ways[:turn]:
            if not way.circuit.allows(self._clock()):
                continue
            try:
                result = way.transport.export(body)
            except RetryableError as error:
                way.circuit.failed(self._clock(), error.retry_after_s)
                said.append(f"{way.endpoint.text}: {error}")
            except BatchRefusedError:
                way.circuit.succeeded()  # it is there, and has an opinion
                raise
            except PermanentError as error:
                # Of itself: a wrong token or path there, which must not cost its share of all pushes.
                way.circuit.succeeded()
                refused.append((way.endpoint, error))
            else:
                way.circuit.succeeded()
                return _with_refusals(result, refused)
        if len(refused) == len(self._ways):
            raise refused[0][1]
        said += [f"{endpoint.text}: {error}" for endpoint, error in refused]
        now = self._clock()
        raise RetryableError(
            "; ".join(said) or f"none of {len(self._ways)} endpoints answered lately",
            min(way.circuit.retry_in_s(now) for way in self._ways) or None,
        )

    def close(self) -> None:
        """Close every transport."""
        for way in self._ways:
            way.transport.close()


def _with_refusals(
    result: ExportResult | None, refused: Sequence[tuple[Endpoint, PermanentError]]
) -> ExportResult | None:
    if not refused:
        return result
    told = [f"{endpoint.text} refuses what another took: {error}" for endpoint, error in refused]
    if result is None:
        return ExportResult(message="; ".join(told))
    return replace(result, message="; ".join([*filter(None, [result.message]), *told]))
