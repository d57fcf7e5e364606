"""Writes pushes into a folder of immutable Parquet files, partitioned by hour.

Spark and pyarrow read the folder as one table; plugins/spool_files/FORMAT.md describes its format.
The plugin imports pyarrow when it is constructed, so that a receiver without that package can run
its other plugins.
"""

from plugins.spool_files.config import SpoolFilesConfig
from plugins.spool_files.receiver import SpoolFilesReceiver

__all__ = ["SpoolFilesConfig", "SpoolFilesReceiver"]
