"""The command line ``kafka-telemetry``.

Exit codes: 0 success, 1 failure, 2 wrong usage or configuration. An error is one line on stderr.
"""

from receiver.cli.commands import app, main

__all__ = ["app", "main"]
