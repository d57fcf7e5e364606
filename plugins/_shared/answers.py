"""What becomes of an export that a destination did not accept.

The rule: an operator can correct whatever is wrong with a destination, its address or its login, so
such an export is retried. Only an answer about the *content* of the export ends the retries,
because the same bytes would get the same answer for ever. Where an answer does not say which of the
two is at fault, the host compares with other pushes. ``docs/delivery.md`` shows the table, and a
test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from receiver.plugin import BatchRefusedError, ExportError, RetryableError, UnclearError

#: HTTP statuses about the content, for OTLP and remote write.
REFUSED_HTTP_STATUSES: Final[Mapping[int, str]] = {
    400: "bad data",
    409: "samples that conflict with stored ones (Thanos)",
    413: "too large",
    422: "bad data",
}

#: gRPC codes about the content.
REFUSED_GRPC_CODES: Final[Mapping[str, str]] = {
    "INVALID_ARGUMENT": "bad data",
}

#: HTTP statuses that do not say whether the content is at fault.
UNCLEAR_HTTP_STATUSES: Final[Mapping[int, str]] = {
    500: "an error of the destination, perhaps with this content only",
}

#: gRPC codes that do not say whether the content is at fault.
UNCLEAR_GRPC_CODES: Final[Mapping[str, str]] = {
    "INTERNAL": "the Collector's answer to a message that it can't read, and a proxy's error",
    "RESOURCE_EXHAUSTED": "too large, or over a quota; with RetryInfo it is retried",
    "UNKNOWN": "an exception in the destination",
}

#: Kafka's errors about the content (Kafka's protocol guide, "Error codes").
REFUSED_KAFKA_ERRORS: Final[Mapping[int, str]] = {
    10: "MESSAGE_TOO_LARGE",
    18: "RECORD_LIST_TOO_LARGE",
    32: "INVALID_TIMESTAMP",
    87: "INVALID_RECORD",
}


def http_error(status: int, reason: str, retry_after_s: float | None) -> ExportError:
    """Map the status of an export that was not accepted to an error.

    ``reason`` must not contain a secret.
    """
    if status in REFUSED_HTTP_STATUSES:
        return BatchRefusedError(reason)
    if status in UNCLEAR_HTTP_STATUSES and retry_after_s is None:
        return UnclearError(reason)
    return RetryableError(reason, retry_after_s=retry_after_s)


def redirect_target(location: str | None) -> str:
    """Say where a redirect leads, without the query, which may hold a token.

    A redirect is not followed: a POST would become a GET, and the operator's headers, which may
    hold a token, would go to another host.
    """
    if not location:
        return "a redirect without a target, which is not followed: correct the endpoint"
    try:
        url = urlsplit(location)
        target = url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        target = "an invalid URL"
    return f"a redirect to {target[:200]}, which is not followed: set the endpoint to its target"


def is_html(content_type: str) -> bool:
    """Whether an answer is a page for people: a login page, or a proxy's error page."""
    return content_type.partition(";")[0].strip().lower() in {"text/html", "application/xhtml+xml"}
