"""Detects problems of clients and stores them with their evidence."""

from spark_streaming.findings.find import FindingCounts, find
from spark_streaming.findings.pace import PacedFindings
from spark_streaming.findings.settings import FindingSettings

__all__ = ["FindingCounts", "FindingSettings", "PacedFindings", "find"]
