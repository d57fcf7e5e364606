"""The audit log: who changed what.

It has a level of its own, because ``log.level`` must not silence it. It is bound for each line,
because ``log.format`` may change.
"""

from __future__ import annotations

import logging
from typing import Final

import structlog

#: The value of the lines' field ``logger``.
LOGGER: Final = "receiver.audit"

_audit = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET))


def write(**fields: object) -> None:
    """Write a line about a change."""
    _audit.info("change", logger=LOGGER, **fields)
