"""The command line ``kafka-telemetry``.

Owns arguments, output and exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Errors are one line
on stderr. It decides nothing of its own: ``serve`` hands over to the composition root, the rest speaks REST.
"""

from receiver.cli.commands import app, main

__all__ = ["app", "main"]
