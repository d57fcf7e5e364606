"""The document of a subscription: what it accepts, all mistakes at once, and patches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from receiver.telemetry.errors import SubscriptionError
from receiver.telemetry.subscription import Subscription
from receiver.telemetry.subscription_checks import Temporality
from receiver.telemetry.subscription_document import (
    FIELDS,
    patched,
    read_document,
    time_from_text,
    time_to_text,
    to_document,
)

NOW = datetime(2026, 11, 23, 12, 30, 15, 250_000, UTC)
WHOLE = Subscription(
    "producers",
    ("a.", "b."),
    60_000,
    {"client_id": "x.*", "group_id!": "y"},
    enabled=False,
    expires_at=NOW,
    temporality=Temporality.CUMULATIVE,
    labels={"team": "orders"},
    description="two\nlines",
    changed_by="ed",
    changed_at=NOW,
)


def test_a_document_can_be_read_back() -> None:
    document = to_document(WHOLE)
    assert document.keys() == {"name", *FIELDS, "changed_by", "changed_at"}
    assert document["expires_at"] == "2026-11-23T12:30:15.250Z"
    again = read_document({**document, "state": "expired"}, changed_by="vera", changed_at=None)
    assert again == WHOLE
    assert (again.changed_by, again.changed_at) == ("vera", None)


def test_null_counts_as_left_out() -> None:
    nothing = dict.fromkeys(FIELDS)
    assert read_document({**nothing, "metrics": ["a."]}, name="s") == Subscription("s", ("a.",))


def test_without_an_interval_the_existing_one_stays() -> None:
    assert read_document({"metrics": []}, name="s", existing=WHOLE).interval_ms == 60_000
    assert read_document({"metrics": [], "interval_ms": 100}, name="s", existing=WHOLE).interval_ms == 100
    assert read_document({"metrics": []}, name="s").interval_ms == 300_000


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-23T12:30:15.25Z", NOW),
        ("2026-11-23T13:30:15.250000000+01:00", NOW),
        ("2026-11-23t12:30:15.250z", NOW),
        ("2026-11-23T12:30:15Z", NOW - timedelta(milliseconds=250)),
    ],
)
def test_a_time_is_rfc_3339(text: str, time: datetime) -> None:
    assert time_from_text(text) == time
    assert time_from_text(time_to_text(time)) == time


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2026-11-23", "2026-11-23T12:30:15", "2026-13-01T00:00:00Z", "2026-11-23T12:30Z", "1.5"],
)
def test_another_format_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- datetime words some of them
        time_from_text(text)


def fields_of(error: pytest.ExceptionInfo[SubscriptionError]) -> list[str]:
    return [item.field for item in error.value.all]


def test_every_mistake_of_a_document_is_reported() -> None:
    wrong = {"nonsense": 1, "interval": 2, "name": "other", "expires_at": 5, "match": {"x": ""}}
    with pytest.raises(SubscriptionError) as caught:
        read_document(wrong, name="s")
    assert fields_of(caught) == ["nonsense", "interval", "name", "metrics", "expires_at", "match.x"]
    assert "did you mean interval_ms?" in str(caught.value.all[1])
    with pytest.raises(SubscriptionError, match="is not a mapping"):
        read_document(["a"], name="s")
    with pytest.raises(SubscriptionError, match="name: null is not a name"):
        read_document({"metrics": []})


def patch(document: Any) -> Subscription:
    return patched(WHOLE, document, changed_by="vera", changed_at=NOW)[0]


@pytest.mark.parametrize(
    ("document", "field", "expected"),
    [
        ({"add_metrics": ["c.", "a."]}, "metrics", ("a.", "b.", "c.")),
        ({"remove_metrics": ["a."]}, "metrics", ("b.",)),
        ({"metrics": ["x."], "add_metrics": ["y."], "remove_metrics": ["x."]}, "metrics", ("y.",)),
        ({"interval_ms": 1000}, "interval_ms", 1000),
        ({"interval_ms": None}, "interval_ms", 300_000),
        ({"enabled": True}, "enabled", True),
        ({"expires_at": None}, "expires_at", None),
        ({"temporality": None}, "temporality", None),
        ({"match": {"client_id": None, "listener": "L"}}, "match", {"group_id!": "y", "listener": "L"}),
        ({"match": None}, "match", {}),
        ({"labels": {"tier": "1"}}, "labels", {"team": "orders", "tier": "1"}),
        ({"description": None}, "description", ""),
    ],
)
def test_a_patch_changes_what_it_names(document: dict[str, Any], field: str, expected: object) -> None:
    result = patch(document)
    assert getattr(result, field) == expected
    unchanged = set(FIELDS) - {field}
    assert all(getattr(result, item) == getattr(WHOLE, item) for item in unchanged)
    assert (result.changed_by, result.changed_at) == ("vera", NOW)


def test_a_patch_warns_about_a_prefix_that_is_not_there() -> None:
    result, warnings = patched(WHOLE, {"remove_metrics": ["z.", "b."]}, changed_by=None, changed_at=None)
    assert result.metrics == ("a.",)
    assert warnings == ["there is no prefix 'z.' to remove"]


def test_every_mistake_of_a_patch_is_reported() -> None:
    wrong = {
        "name": "other",
        "metrics": None,
        "add_metrics": "a.",
        "remove_metrics": [5],
        "interval_ms": 1,
        "colour": "red",
    }
    with pytest.raises(SubscriptionError) as caught:
        patch(wrong)
    assert set(fields_of(caught)) == {
        "name",
        "metrics",
        "add_metrics",
        "remove_metrics[0]",
        "interval_ms",
        "colour",
    }
    with pytest.raises(SubscriptionError) as caught:
        patch({"add_metrics": ["ok.", "a b"], "remove_metrics": ["x."] * 257})
    assert [str(item).partition(";")[0] for item in caught.value.all] == [
        "add_metrics[1]: 'a b' is no prefix of a metric name",
        "remove_metrics: '257 prefixes' are too many",
    ]
