"""What the roll-up finds out about clients by itself, kept as rows with their evidence."""

from spark_streaming.findings.find import FindingCounts, find
from spark_streaming.findings.settings import FindingSettings

__all__ = ["FindingCounts", "FindingSettings", "find"]
