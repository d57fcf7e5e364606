"""Secrets in a plugin's settings: literal text, or the path of a file.

Errors name the file and the reason. They never contain the secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

from spark_streaming.files import FileError, read_secret

#: The context of a validation for another machine: files are neither read nor looked for.
FILES_ARE_ELSEWHERE: Final = {"files": "elsewhere"}


def _read_file(name: str) -> str:
    try:
        return read_secret(Path(name))
    except FileError as error:
        raise _problem(f"the secret's file {name} {error}") from None


def _problem(text: str) -> PydanticCustomError:
    # The text is a value of the template, because a file's name may contain braces.
    return PydanticCustomError("secret", "{problem}", {"problem": text})


def _resolve(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str | SecretStr):
        return value
    if isinstance(value, dict) and set(value) == {"file"} and isinstance(value["file"], str):
        return "elsewhere" if info.context is FILES_ARE_ELSEWHERE else _read_file(value["file"])
    raise _problem("expected text, or {file: PATH} to read it from a file")


#: A secret setting: text, or ``{file: PATH}``. Validation reads the file and removes one trailing
#: newline. A relative path starts at the working directory. The value is a
#: :class:`pydantic.SecretStr`: ``get_secret_value()`` returns the text; ``repr``, ``str``,
#: serialised forms and validation messages hide it.
Secret = Annotated[SecretStr, BeforeValidator(_resolve)]
