"""Links of the console: placeholders, and what a URL must not hold."""

from typing import Any

import pytest
from pydantic import ValidationError

from receiver.api.routes.clients import ClientView
from receiver.settings.errors import settings_errors
from receiver.settings.links import PLACEHOLDERS
from receiver.settings.rest import RestSettings


def errors(*links: dict[str, Any]) -> list[str]:
    try:
        RestSettings.model_validate({"links": list(links)})
    except ValidationError as error:
        return [str(mistake) for mistake in settings_errors(error, RestSettings)]
    return []


@pytest.mark.parametrize(
    "url",
    [
        "https://grafana.example/d/kct-one-client?var-client={client_id}&from=now-1h",
        "http://127.0.0.1:3000/logs/{principal}#{group_id}",
        "https://[::1]:3000/{owner}/{client_instance_id}{client_software_name}%7B%7D",
        "https://wiki.example",
    ],
)
def test_urls_with_placeholders(url: str) -> None:
    assert errors({"name": "Grafana", "url": url}) == []


def test_each_placeholder_is_a_text_of_a_client() -> None:
    for name in PLACEHOLDERS:
        assert ClientView.model_fields[name].annotation in (str, str | None), name


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://x.example/{cluster}", "unknown placeholder {cluster}; expected"),
        ("https://x.example/{client_id", "as %7B"),
        ("https://x.example/{{client_id}}", "as %7B"),
        ("https://{client_id}.example/", "must not choose the host"),
        ("https://x.example:{client_id}/", "expected a URL"),
        ("javascript:alert('{client_id}')", "expected a URL"),
        ("//x.example/", "expected a URL"),
        ("https:///logs", "expected a URL"),
        ("https://x.example:66000/", "expected a URL"),
        ("https://x.example/a b", "%-encoded"),
        ("https://x.example/\\evil", "%-encoded"),
        ("https://x.example/ä", "%-encoded"),
        ("x" * 2_049, "2048"),
    ],
)
def test_what_is_no_template_of_a_url(url: str, said: str) -> None:
    (error,) = errors({"name": "Logs", "url": url})
    assert "links[0].url" in error
    assert said in error


@pytest.mark.parametrize(
    "url",
    [
        "https://ops:hunter2@x.example/",
        "https://hunter2@x.example/",
        "https://x.example/?api_key=hunter2",
        "https://x.example/?a=1&X-Amz-Signature=hunter2",
        "https://x.example/#access_token=hunter2",
        "https://x.example/?PASSWORD=hunter2",
    ],
)
def test_a_secret_is_refused_and_not_shown(url: str) -> None:
    (error,) = errors({"name": "Logs", "url": url})
    assert "a URL must not hold a " in error
    assert "hunter2" not in error


def test_names_differ() -> None:
    link = {"name": "Logs", "url": "https://x.example/"}
    assert "the same as links[0].name" in errors(link, link)[0]
