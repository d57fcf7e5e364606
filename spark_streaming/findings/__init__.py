"""Findings: problems of clients that the roll-up detects and stores with their evidence."""

from spark_streaming.findings.find import FindingCounts, find
from spark_streaming.findings.settings import FindingSettings

__all__ = ["FindingCounts", "FindingSettings", "find"]
