"""The attack suite: each attack runs against a receiver and against HAProxy, beside an innocent client."""
