"""Prints each push on stdout, to see which clients push what.

Names that clients choose are quoted, because they may contain anything.
"""

from plugins.console.config import ConsoleConfig
from plugins.console.receiver import ConsoleReceiver

__all__ = ["ConsoleConfig", "ConsoleReceiver"]
