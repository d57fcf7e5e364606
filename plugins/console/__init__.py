"""Prints each push on stdout, for a first look at who pushes what.

Owns the text forms of a push. What clients and metrics call themselves is quoted: it may hold anything.
"""

from plugins.console.config import ConsoleConfig
from plugins.console.receiver import ConsoleReceiver

__all__ = ["ConsoleConfig", "ConsoleReceiver"]
