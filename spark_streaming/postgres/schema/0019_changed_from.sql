-- A growing hour gets the minutes that have become whole since it was computed (maintenance.py).
ALTER TABLE coarse
    -- The first minute that changed since the hour was computed. Null: none did.
    ADD COLUMN changed_from timestamptz,
    -- The hour has its minutes before this time. Null: all must be added up again.
    ADD COLUMN computed_until timestamptz;
