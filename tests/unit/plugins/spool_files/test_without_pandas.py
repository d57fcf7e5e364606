"""pandas stays out of the receiver, also if it is installed."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.plugins.spool_files.support import push_at

PROGRAM = """
import pickle
import sys
from plugins.spool_files import SpoolFilesReceiver

plugin = SpoolFilesReceiver(SpoolFilesReceiver.Config(path=sys.argv[1]))
{of_another_plugin}
plugin.start()
plugin.export_batch([pickle.load(sys.stdin.buffer)])
plugin.stop()
{check}
"""

ABSENT = """
assert "pyarrow" in sys.modules
assert "pandas" not in sys.modules
"""

USED = """
import pyarrow
assert pyarrow.array(pandas.Series([1, None])).null_count == 1
"""


@pytest.mark.parametrize(
    ("of_another_plugin", "check"),
    [("", ABSENT), pytest.param("import pandas", USED, marks=pytest.mark.full)],
    ids=["absent", "used"],
)
def test_a_push_does_not_import_pandas(of_another_plugin: str, check: str, tmp_path: Path) -> None:
    assert importlib.util.find_spec("pandas") is not None
    program = PROGRAM.format(of_another_plugin=of_another_plugin, check=check)
    command = [sys.executable, "-c", program, str(tmp_path / "telemetry")]
    subprocess.run(command, input=pickle.dumps(push_at(1)), check=True)
