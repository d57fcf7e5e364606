"""Files that a plugin's settings name, and that have to be there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from receiver.plugin.secret import FILES_ARE_ELSEWHERE


def _check(path: Path, info: ValidationInfo) -> Path:
    if info.context is not FILES_ARE_ELSEWHERE and not path.is_file():
        raise PydanticCustomError("file", "there is no such file")
    return path


#: A setting with the path of a file. Validation looks whether it is there, unless the configuration
#: is for another machine.
ExistingFile = Annotated[Path, AfterValidator(_check)]
