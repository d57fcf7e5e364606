"""Configures the roll-up's log: one line per event on stderr, as text or JSON."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog


def configure(level: str, form: Literal["console", "json"]) -> None:
    """Log events of this level and above to stderr."""
    # It logs the traceback of a failed batch, which the job reports in one line.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    # At debug it logs the arguments of every JVM call. One of them is the secret key of the id
    # hashes.
    logging.getLogger("py4j.java_gateway").setLevel(logging.INFO)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        # repr(), because text from clients may contain newlines and terminal control sequences.
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), repr_native_str=True)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
