"""The URLs of runbooks: an alert's section of docs/runbooks.md has the alert's name."""

from __future__ import annotations

import re
from typing import Final

from deploy.project import REPOSITORY

RUNBOOKS: Final = f"{REPOSITORY}/blob/main/docs/runbooks.md"


def runbook_url(alert: str) -> str:
    """Return the URL of an alert's section; GitHub makes its anchor from the heading."""
    return f"{RUNBOOKS}#{re.sub(r'[^a-z0-9 -]', '', alert.lower()).replace(' ', '-')}"
