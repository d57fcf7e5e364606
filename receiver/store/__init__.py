"""Keeps subscriptions across restarts and orders their changes.

The telemetry core decides what a subscription means and what clients are asked for.
"""
