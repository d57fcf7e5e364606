"""Reading the comments of values.yaml, and errors about missing parts."""

from __future__ import annotations

import pytest

from deploy.chart.values import Section, Value, ValuesError, parse

TEXT = """\
# A page about the file.

# -- A flag.
flag: true
outer:
  # -- Where it goes,
  # on two lines.
  # @ {type: string, minLength: 1}
  # @ {pattern: "^a"}
  place: a
  # -- A mapping in braces is one value.
  limits: {cpu: "1"}
# -- A section with a description.
deep:
  # an ordinary comment
  inner:
    # -- A list.
    list: []
    # Example:
    #   - one
    # -- A mapping whose comments describe nothing.
    config:
      # why this is so
      key: 1
"""


def test_values_have_their_path_default_description_and_keywords() -> None:
    assert list(parse(TEXT).values()) == [
        Value(path=("flag",), default=True, description="A flag."),
        Value(
            path=("outer", "place"),
            default="a",
            description="Where it goes, on two lines.",
            keywords={"type": "string", "minLength": 1, "pattern": "^a"},
        ),
        Value(
            path=("outer", "limits"), default={"cpu": "1"}, description="A mapping in braces is one value."
        ),
        Value(path=("deep", "inner", "list"), default=[], description="A list."),
        Value(
            path=("deep", "inner", "config"),
            default={"key": 1},
            description="A mapping whose comments describe nothing.",
        ),
    ]


def test_a_section_has_its_description() -> None:
    deep = parse(TEXT).entries[2]

    assert isinstance(deep, Section)
    assert deep.description == "A section with a description."


def test_an_error_has_the_line_of_a_value_without_a_comment() -> None:
    with pytest.raises(ValuesError, match=r"^values.yaml:4: a.c: has no comment; write `# -- ...` above it$"):
        parse("a:\n  # -- There.\n  b: 1\n  c: 2\n")


def test_keywords_that_are_no_mapping_are_told() -> None:
    with pytest.raises(ValuesError, match=r"^values.yaml: a: # @ integer: expected a mapping"):
        parse("# -- There.\n# @ integer\na: 1\n")
