"""Writes pushes into a folder of immutable Parquet files by time, which Spark and pyarrow read as one table.

Owns the folder's format: its files, its journals and its manifest (docs/spool-files.md). pyarrow is
loaded when a plugin is made, so that a receiver without it works with its other plugins.
"""

from plugins.spool_files.config import SpoolFilesConfig
from plugins.spool_files.receiver import SpoolFilesReceiver

__all__ = ["SpoolFilesConfig", "SpoolFilesReceiver"]
