-- Closed hours of minutes, days of hours and months of days are packed into one row with arrays for
-- each series (packed.py). The tables of packed rows and the views are made from the description of
-- the totals (packing.py, views.py), after the migrations.

-- Windows that begin before are packed, except those in repack. Null: none is.
ALTER TABLE horizon
    ADD COLUMN minutes_packed_until timestamptz,
    ADD COLUMN hours_packed_until timestamptz,
    ADD COLUMN days_packed_until timestamptz;

-- Packed windows that have rows which are not packed: late ones, or those to be computed again.
CREATE TABLE repack (
    grain text NOT NULL,
    start timestamptz NOT NULL,
    PRIMARY KEY (grain, start)
);

-- The buckets of packed windows. Each has the number of its value if no bucket is missing, from 1;
-- its bit in the column present of packed rows; and the bits of the buckets before it.
CREATE TABLE slot_1m (
    bucket timestamptz PRIMARY KEY,
    start timestamptz NOT NULL,
    at smallint NOT NULL,
    bit bigint NOT NULL,
    below bigint NOT NULL
);
CREATE INDEX slot_1m_start ON slot_1m (start);
CREATE TABLE slot_1h (LIKE slot_1m INCLUDING ALL);
CREATE TABLE slot_1d (LIKE slot_1m INCLUDING ALL);
