"""Weights of media types and content codings decide which answer a scraper gets."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import choose_encoder

from spark_streaming.scraping.negotiation import accepts_coding, by_weight, scrape_format

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


def test_values_are_sorted_by_weight() -> None:
    assert by_weight("a;q=0.1, b; v=1 ,c;q=0, d;Q=0.5;v=2, e;q=x") == ["b;v=1", "e", "d;v=2", "a"]


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.1", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("*;q=1, gzip;q=0", False),
        ("gzip;q=1, *;q=0", True),
        ("x-gzip-like", False),
        ("", False),
    ],
)
def test_a_coding_of_weight_0_is_refused(header: str, accepted: bool) -> None:
    assert accepts_coding(header, "gzip") is accepted


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text;q=0", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;q=0.2, text/plain;version=0.0.4;q=0.7", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;q=0.2, */*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=one", "application/openmetrics-text; version=1.0.0"),
        ("text/html", "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_that_the_scraper_wants_most(accept: str, content_type: str) -> None:
    assert choose_encoder(scrape_format(accept))[1].startswith(content_type)
