"""Sends findings to Alertmanager, which tells people by webhooks, mail or chats."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import httpx

from spark_streaming.findings.alerts import REPEATED, alerts
from spark_streaming.findings.answers import FindingFilter
from spark_streaming.findings.settings import FindingSettings
from spark_streaming.http_clients import request_problem
from spark_streaming.settings import AlertmanagerSettings

_PATH: Final = "/api/v2/alerts"
_TIMEOUT_S: Final = 5.0
_MAX_REASON_CHARACTERS: Final = 200


class AlertmanagerError(Exception):
    """Alerts can't be sent, or were not delivered everywhere.

    The message names each URL with the reason, and has no secret.
    """


class Alertmanager:
    """Sends the open findings, again each time, and the end of each.

    Args:
        kinds: Say how long after the end of its condition a finding is resolved.

    Raises:
        AlertmanagerError: The file of the authorities can't be used.
    """

    def __init__(
        self,
        settings: AlertmanagerSettings,
        kinds: FindingSettings,
        read: Callable[[FindingFilter], list[dict[str, Any]]],
    ) -> None:
        self._settings = settings
        resolved = max(kinds.resolve_after_minutes, kinds.forget_after_minutes)
        self._look_back = REPEATED + timedelta(minutes=resolved)
        self._read = read
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise AlertmanagerError(
                f"alertmanager.ca_file: {settings.ca_file or 'the authorities of the system'}: {error}"
            ) from None
        token = settings.token
        self._client = httpx.Client(
            headers={} if token is None else {"authorization": f"Bearer {token.get_secret_value()}"},
            timeout=_TIMEOUT_S,
            verify=context,
            trust_env=False,
            follow_redirects=False,
        )

    def send(self, now: datetime) -> int:
        """Send to each Alertmanager, and return the number of alerts.

        Raises:
            AlertmanagerError: One of them did not take the alerts.
        """
        asked = FindingFilter(severity=self._settings.severity, since=now - self._look_back, is_open=False)
        sent = alerts(self._read(asked), now=now, labels=self._settings.labels)
        if not sent:
            return 0
        problems = [problem for url in self._settings.urls if (problem := self._post(url, sent)) is not None]
        if problems:
            raise AlertmanagerError("; ".join(problems))
        return len(sent)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, url: str, sent: Sequence[dict[str, Any]]) -> str | None:
        """Return what went wrong."""
        try:
            response = self._client.post(url.rstrip("/") + _PATH, json=sent)
        except httpx.HTTPError as error:
            return f"{url}: {request_problem(error, _TIMEOUT_S)}"[:_MAX_REASON_CHARACTERS]
        if response.is_success:
            return None
        reason = " ".join(response.text.split())
        return f"{url}: status {response.status_code}: {reason}"[:_MAX_REASON_CHARACTERS]
