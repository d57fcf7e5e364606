"""Steps on a push that make metrics mean the same from every client, and keep private what has to be.

Each is switched by ``telemetry.normalization`` or ``telemetry.privacy``. In the order in which they run:

1. *known-bad values*: metrics that the client's version gets wrong are dropped or marked (``known_bad``).
2. *private metrics*: metrics that a rule names are dropped.
3. *series*: what is over the client's budget becomes one overflow series (:mod:`~.overflow`).
4. *attributes*: one name and form for what clients name differently (:mod:`~.attributes`).
5. *private attributes*: those that a rule names are dropped or hashed, whether it names them as the client
   did or as they are after step 4 (:mod:`~.privacy`).
6. *units*, *descriptions*: from the catalogue of standard metrics, where the client has none.

Steps 1 to 3 choose metrics, 4 and 5 change attributes of data points and their exemplars; Resources go
through 4 and 5, scopes through 5. :mod:`~.metrics` has how this is done without looking at each metric.
It must not put a push together, nor know who pushed.
"""

from __future__ import annotations

from receiver.telemetry.steps.attributes import AttributeCounts
from receiver.telemetry.steps.metrics import NOTHING_APPLIED, NOTHING_DONE, Applied, MetricSteps, StepCounts
from receiver.telemetry.steps.scopes import apply_to_scopes
from receiver.telemetry.steps.steps import NO_STEPS, Steps

__all__ = [
    "NOTHING_APPLIED",
    "NOTHING_DONE",
    "NO_STEPS",
    "Applied",
    "AttributeCounts",
    "MetricSteps",
    "StepCounts",
    "Steps",
    "apply_to_scopes",
]
