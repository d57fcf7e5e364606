#!/bin/sh
# wheels.sh BUILD_LOCK LOCK PROJECT: all that is to be installed, as wheels in ./wheels, each checked against its hash.
# What is published as source alone is built with the tools of BUILD_LOCK, as is the project in the folder PROJECT.
set -eu

python3 -m venv tools
tools/bin/pip install -q --require-hashes --no-deps --only-binary :all: -r "$1"
tools/bin/pip wheel -q --require-hashes --no-deps --no-build-isolation --wheel-dir wheels -r "$2"
tools/bin/pip wheel -q --no-deps --no-build-isolation --wheel-dir wheels "$3"
