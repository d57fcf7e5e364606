"""The decoder's plan is built from the catalogue."""

from __future__ import annotations

import json

from receiver.catalogue import CATALOGUE
from spark_streaming.catalogue import plan
from spark_streaming.rows import RULES
from spark_streaming.watched import WATCHED


def test_the_plan_has_each_metrics_rule_and_the_attributes_of_finer_levels() -> None:
    made = json.loads(plan(max_behind_s=1.5, max_ahead_s=2))
    assert made["max_behind_ns"] == 1_500_000_000
    assert made["max_ahead_ns"] == 2_000_000_000
    assert made["min_minute"] is None
    assert (made["max_value"], made["max_count"]) == (2.0**64, 2**40)
    assert {name: RULES[rules["rule"]] for name, rules in made["metrics"].items()} == {
        metric.name: metric.combines for metric in CATALOGUE
    }
    prefix = "org.apache.kafka.consumer.fetch.manager."
    finer = {name: rules["finer"] for name, rules in made["metrics"].items() if rules["finer"]}
    assert finer[f"{prefix}records.consumed.total"] == ["topic"]
    assert finer[f"{prefix}records.lag.max"] == ["partition", "topic"]
    assert len(finer) == 9


def test_watched_metrics_are_in_the_catalogue_and_the_plan() -> None:
    made = json.loads(plan(max_behind_s=1, max_ahead_s=1, min_minute=7))
    assert made["min_minute"] == 7
    assert [slot["keeps"] for slot in made["watched"]] == [slot.keeps for slot in WATCHED]
    assert {name for slot in made["watched"] for name in slot["metrics"]} <= made["metrics"].keys()


def test_equal_arguments_give_the_same_plan() -> None:
    assert plan(max_behind_s=1, max_ahead_s=1) == plan(max_behind_s=1, max_ahead_s=1)
