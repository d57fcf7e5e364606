"""Steps on a push: one meaning for all clients, series budgets, privacy.

``telemetry.normalization`` and ``telemetry.privacy`` switch them. In the order in which they run:

1. *known-bad values*: drops or marks metrics that the client's version gets wrong (``known_bad``).
2. *private metrics*: drops the metrics that a rule names.
3. *series*: replaces what is over the client's budget, and series that are new beyond its limit, by
   one overflow series (:mod:`~.overflow`, :mod:`~.series_keys`).
4. *attributes*: gives the clients' different attributes one name and form (:mod:`~.attributes`).
5. *private attributes*: drops or hashes the attributes that a rule names (:mod:`~.privacy`). A rule
   applies to the client's key and to the key after step 4.
6. *units*, *descriptions*: adds those of the standard metrics where the client sends none.

Steps 1 to 3 choose metrics. Steps 4 and 5 change attributes of data points and exemplars; Resources
go through 4 and 5, scopes through 5. :mod:`~.metrics` works on encoded metrics, mostly without
parsing each of them.
"""
