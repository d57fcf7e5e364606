"""Asks the running receiver by its REST API, as a viewer.

It only reads. Responses are bounded, because another program may hold the port, and a token is sent
only to what has answered like a receiver.
"""

from __future__ import annotations

import json
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import httpx

from receiver.doctor.limits import PROBE_S
from receiver.settings.hostport import HostPort
from receiver.settings.listeners import ServerTlsSettings
from receiver.settings.rest import RestSettings
from spark_streaming.files import FileError, read_token
from spark_streaming.http_clients import no_tls, plain_words, request_problem

_MAX_BYTES: Final = 16_777_216
_MAX_REASON: Final = 300


class RestError(Exception):
    """The REST API did not answer, or not as a receiver does; the text has no secret."""


class NotRunningError(RestError):
    """Nothing listens at the address."""


class AccessError(RestError):
    """The receiver runs, and wants other credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the receiver is, and what to show to it."""

    host: str | None = None
    """Host of the receiver; None: this machine, as the configuration binds."""
    token: str | None = None
    """Bearer token; None: one of the configuration's files."""
    ca: Path | None = None
    """CA certificates that clients trust; None: the certificate of the configuration itself."""
    certificate: Path | None = None
    """Client certificate for the REST API and for listeners that ask for one."""
    key: Path | None = None

    def reached(self, bind: HostPort) -> HostPort:
        """Return the address at which to reach what binds ``bind``."""
        if self.host is not None:
            return HostPort(host=self.host, port=bind.port)
        if bind.is_wildcard:
            return HostPort(host="::1" if ":" in bind.host else "127.0.0.1", port=bind.port)
        return bind


class RestApi:
    """The REST API of the receiver that the configuration describes.

    Raises:
        OSError: A TLS file can't be used.

    Attributes:
        clock_ahead_s: Seconds by which the receiver's clock is ahead of this machine's, to the
            second, by its latest answer; None before one.
    """

    def __init__(self, settings: RestSettings, access: Access) -> None:
        self.clock_ahead_s: float | None = None
        self.address = access.reached(settings.bind)
        self._token = access.token or _token_of(settings)
        self._client = httpx.AsyncClient(
            base_url=f"{'http' if settings.tls is None else 'https'}://{self.address}",
            timeout=PROBE_S,
            trust_env=False,
            follow_redirects=False,
            verify=no_tls() if settings.tls is None else pinned_context(settings.tls, access),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def version(self) -> str:
        """Return the version of the receiver that answers.

        Raises:
            NotRunningError: Nothing listens there.
            RestError: Something else answers, or nothing in time.
        """
        status, content_type, body = await self._request("/livez", {}, token=False)
        if status == httpx.codes.UNAUTHORIZED and content_type == "application/problem+json":
            return "unknown"  # rest.open leaves livez out
        document = _json(body)
        if isinstance(document, dict) and document.get("status") == "live":
            return str(document.get("version", "unknown"))[:40]
        raise RestError(f"something else answers at {self.address}: status {status}, and no receiver's body")

    async def get(self, path: str, **parameters: str | int) -> Any:
        """Return the document at a path.

        Raises:
            AccessError: The receiver wants credentials, or other ones.
            RestError: The answer is an error; the text is its reason.
        """
        status, _, body = await self._request(path, parameters, token=True)
        document = _json(body)
        if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            known = "does not know the token" if self._token is not None else "wants a token or a certificate"
            raise AccessError(f"it {known}")
        if not httpx.codes.is_success(status):
            reason = document.get("detail") if isinstance(document, dict) else None
            raise RestError(str(reason or f"status {status}")[:_MAX_REASON])
        if document is None:
            raise RestError(f"{path}: the answer is not JSON")
        return document

    async def _request(
        self, path: str, parameters: dict[str, str | int], *, token: bool
    ) -> tuple[int, str, bytes]:
        headers = {"authorization": f"Bearer {self._token}"} if token and self._token is not None else {}
        body = bytearray()
        try:
            async with self._client.stream("GET", path, params=parameters, headers=headers) as response:
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        raise RestError(f"{path}: the answer has more than {_MAX_BYTES} bytes")
        except httpx.TimeoutException:
            raise RestError(f"{self.address}: no answer within {PROBE_S:g} s") from None
        except httpx.ConnectError as error:
            raise _connect_error(self.address, error) from None
        except httpx.HTTPError as error:
            raise RestError(f"{self.address}: {request_problem(error, PROBE_S)}"[:_MAX_REASON]) from None
        self.clock_ahead_s = _ahead_s(response.headers.get("date", ""))
        content_type = response.headers.get("content-type", "").partition(";")[0].strip()
        return response.status_code, content_type, bytes(body)


def _ahead_s(date: str) -> float | None:
    """Return the seconds by which a time (RFC 9110, Date) is ahead of now.

    None: it is no time.
    """
    try:
        return (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None


def _connect_error(address: HostPort, error: httpx.ConnectError) -> RestError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RestError(f"{address}: its certificate is not the configured one: {cause.verify_message}")
        if isinstance(cause, ConnectionRefusedError):
            return NotRunningError(f"nothing listens at {address}")
        cause = cause.__cause__ or cause.__context__
    text = plain_words(error)[:_MAX_REASON]
    if "All connection attempts failed" in text or "refused" in text:
        return NotRunningError(f"nothing listens at {address}")
    return RestError(f"{address}: {text}")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _token_of(settings: RestSettings) -> str | None:
    """Return a token of the configuration's files, a viewer's if there is one."""
    for entry in sorted(settings.tokens, key=lambda one: one.role != "viewer"):
        if entry.file is None:
            continue
        with suppress(FileError):
            return read_token(entry.file)
    return None


def pinned_context(tls: ServerTlsSettings, access: Access) -> ssl.SSLContext:
    """Return the TLS of a connection to a listener of the receiver.

    Without CA certificates the receiver must show the very certificate of the configuration,
    whatever its name is and who signed it.

    Raises:
        OSError: A file can't be used.
    """
    if access.ca is not None:
        context = ssl.create_default_context(cafile=access.ca)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(tls.cert_file)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
    if access.certificate is not None:
        context.load_cert_chain(access.certificate, access.key, password="")
    return context
