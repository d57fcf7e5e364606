"""A pytest plugin that puts another build of the compiled data path in the place of the usual one.

Source: https://github.com/google/sanitizers/wiki/AddressSanitizer
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from receiver.native.build import compile_extension

#: The environment variable with the extension's file; this module acts when it is set.
VARIABLE: Final = "TESTS_EXTENSION"
_ROOT: Final = Path(__file__).parents[2]
_MODULE: Final = "receiver.native._speedups"
_FLAGS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")
#: Both have to be loaded before Python's own memory is allocated.
_LIBRARIES: Final = ("libasan.so", "libubsan.so")


def sanitized_environment(folder: Path) -> dict[str, str]:
    """Build the extension with sanitizers; return the environment that pytest needs for it.

    Raises:
        RuntimeError: It can't be compiled.
    """
    extension = folder / "_speedups.abi3.so"
    problem = compile_extension(_ROOT, extension, *_FLAGS)
    if problem is not None:
        raise RuntimeError(problem)
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in _LIBRARIES
    ]
    return {
        **os.environ,
        VARIABLE: str(extension),
        "LD_PRELOAD": " ".join(libraries),
        # Python itself frees little at its end.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # The sanitizer then sees each object of Python's, too.
        "PYTHONMALLOC": "malloc",
    }


def pytest_report_header() -> str:
    """Say which build runs."""
    return f"extension: {getattr(sys.modules.get(_MODULE), '__file__', None)}"


def _replace(file: str) -> None:
    spec = importlib.util.spec_from_file_location(_MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_MODULE] = module


if VARIABLE in os.environ:
    _replace(os.environ[VARIABLE])
