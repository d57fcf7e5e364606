"""Owns the form of the roll-up's log: one line an event, on stderr, as text or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

__all__ = ["configure"]


def configure(level: str, form: Literal["console", "json"]) -> None:
    """Log to stderr in this form from this level on.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        form: Text for people, or JSON for programs.
    """
    # It writes the traceback of a batch that fails, which the job tells in one line.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    # At debug it writes every call into the JVM with its arguments, and one of them is the key of ids.
    logging.getLogger("py4j.java_gateway").setLevel(logging.INFO)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        # Every text as Python writes it: a client's may hold what moves a terminal's cursor, or ends a line.
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
