"""The values' schema follows the comments, and the types of the receiver's settings."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.chart.schema import schema
from deploy.chart.values import ValuesError, parse
from deploy.chart.written import CHART
from receiver.settings.model import ReceiverSettings
from spark_streaming.settings import RollupSettings

WHOLE = schema(parse((CHART / "values.yaml").read_text("utf-8")))
DEFINITIONS = WHOLE["definitions"]


def test_a_type_is_that_of_the_default_unless_a_comment_has_one() -> None:
    text = """\
# -- One.
one: 1
# -- Two.
# @ {minimum: 2}
two: 2
# -- Three.
# @ {$ref: labels}
three: {}
"""
    made = schema(parse(text))

    assert made["properties"] == {
        "one": {"description": "One.", "type": "integer"},
        "two": {"description": "Two.", "type": "integer", "minimum": 2},
        "three": {"description": "Three.", "$ref": "#/definitions/labels"},
        "global": {"type": "object"},
    }
    assert made["additionalProperties"] is False


def test_a_null_default_needs_a_type_in_its_comment() -> None:
    with pytest.raises(ValuesError, match=r"^values.yaml: a: cannot infer a type from None"):
        schema(parse("# -- There.\na: null\n"))


def test_a_shape_that_there_is_not_is_told() -> None:
    with pytest.raises(ValuesError, match=r"^values.yaml: \$ref: lables: unknown shape$"):
        schema(parse("# -- There.\n# @ {$ref: lables}\na: {}\n"))


def test_every_reference_has_its_definition() -> None:
    missing = [name for name in _references(WHOLE) if name.removeprefix("#/definitions/") not in DEFINITIONS]

    assert missing == []


def test_configurations_have_the_keys_of_their_types_and_no_other() -> None:
    receiver, rollup = DEFINITIONS["receiverConfig"], DEFINITIONS["rollupConfig"]

    assert receiver["properties"].keys() == ReceiverSettings.model_fields.keys()
    assert rollup["properties"].keys() == RollupSettings.model_fields.keys()
    assert receiver["additionalProperties"] is rollup["additionalProperties"] is False


def test_keys_from_the_chart_or_the_environment_are_not_required() -> None:
    assert "required" not in DEFINITIONS["receiverConfig"]
    assert "required" not in DEFINITIONS["receiver.BrokerSettings"]
    assert DEFINITIONS["listenerDefaults"]["properties"].keys().isdisjoint({"bind", "upstream"})
    assert DEFINITIONS["receiver.ListenerSettings"]["required"] == ["name", "bind", "upstream"]


def test_a_plugin_has_its_own_keys_and_those_that_every_plugin_has() -> None:
    otlp = DEFINITIONS["plugin.otlp"]

    assert {"type", "endpoint", "queue", "spool"} <= otlp["properties"].keys()
    assert otlp["additionalProperties"] is False


def _references(shape: Any) -> list[str]:
    if isinstance(shape, list):
        return [name for item in shape for name in _references(item)]
    if not isinstance(shape, dict):
        return []
    own = [shape["$ref"]] if isinstance(shape.get("$ref"), str) else []
    return own + [name for item in shape.values() for name in _references(item)]
