#!/bin/sh
# install.sh TARGET: the wheels in ./wheels, and nothing else, in a new environment; it has no pip of its own.
set -eu

python3 -m venv --without-pip "$1"
tools/bin/pip --python "$1/bin/python" install -q --no-deps --no-index wheels/*.whl
tools/bin/pip --python "$1/bin/python" check
