-- The rows of closed minutes, one for each load, are merged into one for each key (merging.py).

-- Minutes that begin before are merged. Null: none is.
ALTER TABLE horizon ADD COLUMN minutes_merged_until timestamptz;

-- Finds the rows of a minute, which are neighbours.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'rollup_1m', 'fleet_rollup_1m', 'fleet_spread_1m', 'rollup_histogram_1m', 'client_rollup_1m'
    ] LOOP
        EXECUTE format(
            'CREATE INDEX %I ON %I USING brin (bucket) WITH (pages_per_range = 16, autosummarize = on)',
            name || '_minute', name
        );
    END LOOP;
END $$;
