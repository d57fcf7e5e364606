"""Settings of the store of subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from receiver.settings.base import Settings

__all__ = ["SubscriptionStoreSettings"]

_SQLITE_FILE: Final = Path("./subscriptions.db")


class SubscriptionStoreSettings(Settings):
    """The store of subscriptions."""

    store: Literal["sqlite", "file"] = Field(
        default="sqlite",
        description="Type of the store. `sqlite`: a file of this receiver, changed over REST. `file`: a "
        "folder of YAML files, changed there only.",
    )
    path: Path | None = Field(
        default=None,
        description="With `sqlite`: the file, by default `./subscriptions.db`; it is created with mode 0600 "
        "if it does not exist. With `file`: the folder, required.",
    )

    @property
    def sqlite_file(self) -> Path:
        """The file of the store `sqlite`."""
        return self.path or _SQLITE_FILE

    @property
    def folder(self) -> Path:
        """The folder of the store `file`."""
        assert self.path is not None, "a validator checks it"  # noqa: S101
        return self.path

    @model_validator(mode="after")
    def _parts_of_the_store(self) -> Self:
        if self.store == "file" and self.path is None:
            raise ValueError(
                "path: required with store: file; set it to the folder of YAML files, "
                "for example path: ./subscriptions.d"
            )
        return self
