"""Owns where alerts' runbooks are: the section of docs/runbooks.md that bears the alert's name."""

from __future__ import annotations

import re
from typing import Final

from deploy.project import REPOSITORY

__all__ = ["RUNBOOKS", "runbook_url"]

RUNBOOKS: Final = f"{REPOSITORY}/blob/main/docs/runbooks.md"


def runbook_url(alert: str) -> str:
    """The section for an alert, which GitHub calls by the alert's name in lower case.

    Args:
        alert: The alert's name; of Grafana's rules, the title.
    """
    return f"{RUNBOOKS}#{re.sub(r'[^a-z0-9 -]', '', alert.lower()).replace(' ', '-')}"
