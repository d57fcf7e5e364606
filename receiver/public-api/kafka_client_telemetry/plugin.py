"""The plugin contract under its public name, ``kafka_client_telemetry.plugin``.

The public names are exactly those of :mod:`receiver.plugin`, which documents them and the
lifecycle.
"""

from __future__ import annotations

from receiver.plugin import *  # noqa: F403
from receiver.plugin import __all__ as __all__
