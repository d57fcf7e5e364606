"""Tests of the files that describe the project: licence, addresses, workflows, templates."""
