"""Prints docs/metrics.md: ``python -m receiver.catalogue > docs/metrics.md``."""

from __future__ import annotations

import sys

from receiver.catalogue import CATALOGUE
from receiver.catalogue.reference import reference

sys.stdout.write(reference(CATALOGUE))
