"""Prints the reference of metrics: ``python -m receiver.catalogue``."""

from __future__ import annotations

import sys

from receiver.catalogue import CATALOGUE
from receiver.catalogue.reference import reference

sys.stdout.write(reference(CATALOGUE))
