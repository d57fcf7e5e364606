"""``rollup``: the roll-up's own commands, and the reference of its settings beside them.

Owns the form of docs/rollup-settings.md. What the other commands do is :mod:`spark_streaming.cli`'s.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

from receiver.settings.reference import table
from spark_streaming.cli import app as rollup_app

__all__ = ["rollup_app"]

_HEAD: Final = """\
# The roll-up's settings

<!-- Made by `kafka-telemetry rollup reference`; change the types, not this page. -->

`kafka-telemetry rollup run --config rollup.yaml` reads one YAML file; what a command's options say goes over
it. A value that is wrong stops the start with one line that names the key, the value and the fix.

Secrets, which are the keys of the type *text or {file: PATH}* and each of `kafka.options`, take
`{file: /run/secrets/url}`, and the file's text is used without its last newline. Paths that are relative
start at the working directory.

"""


@rollup_app.command("reference")
def print_reference() -> None:
    """Print every key of the roll-up's configuration with its type, default and bounds, as Markdown.

    \u0008
    Example:
      kafka-telemetry rollup reference > docs/rollup-settings.md
    """
    # Not before it is needed: the findings' settings load PostgreSQL's driver, which is of an extra.
    settings = importlib.import_module("spark_streaming.settings").RollupSettings
    sys.stdout.write(_HEAD + table((), settings, variables=False))
