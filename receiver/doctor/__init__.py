"""Proves a setup: what ``kafka-telemetry doctor`` finds.

Each module probes one part and returns findings. A probe has a time limit and changes nothing.
"""

from receiver.doctor.examination import Options, examine
from receiver.doctor.findings import Area, Finding, Report, State
from receiver.doctor.rest_api import Access

__all__ = ["Access", "Area", "Finding", "Options", "Report", "State", "examine"]
