"""``python -m tests.testbed.shorten_crd < in > out`` removes descriptions from a CRD.

Owns how the files of ``kubernetes/crds`` were made. Descriptions are most of a CRD and check
nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml


def without_descriptions(schema: Any) -> Any:
    """A JSON or OpenAPI schema, or anything around it, less each schema's ``description``."""
    if isinstance(schema, list):
        return [without_descriptions(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_descriptions(one) for name, one in value.items()}
        if key in {"properties", "$defs"}
        else without_descriptions(value)
        for key, value in schema.items()
        if key != "description"
    }


if __name__ == "__main__":
    yaml.safe_dump(without_descriptions(yaml.safe_load(sys.stdin)), sys.stdout, sort_keys=False)
