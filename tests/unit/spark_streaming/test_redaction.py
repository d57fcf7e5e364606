"""What is a secret is hidden, and what is a word is not."""

from __future__ import annotations

import re

import pytest

from spark_streaming.postgres.database import Database
from spark_streaming.postgres.values import StoreError
from spark_streaming.redaction import HIDDEN, hide_secrets


def test_a_secret_within_another_leaves_no_rest() -> None:
    assert hide_secrets("it is s3cret-and-more", ["s3cret", "s3cret-and-more"]) == f"it is {HIDDEN}"


def test_a_value_of_few_characters_hides_no_letters() -> None:
    assert hide_secrets("the table is away", ["", "a", "tab"]) == "the table is away"


@pytest.mark.parametrize(
    ("password", "shown"), [("s3cret", f"/nowhere/{HIDDEN}/"), ("e", "/nowhere/s3cret/")]
)
def test_an_error_of_the_database_repeats_no_password(password: str, shown: str) -> None:
    url = f"postgresql://rollup:{password}@/telemetry?host=/nowhere/s3cret"
    database = Database(url, application="test", connected=lambda: None)
    with pytest.raises(StoreError, match=re.escape(shown)), database.transaction():
        pass
