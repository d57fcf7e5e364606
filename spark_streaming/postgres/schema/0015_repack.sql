-- Each kind of totals of a window is packed in a transaction of its own, so each has a row.
ALTER TABLE repack
    DROP CONSTRAINT repack_pkey,
    ADD COLUMN kind text,
    -- How many times batches have noted the window. If it changes while the window is packed, there
    -- may be rows that packing has not seen.
    ADD COLUMN noted bigint NOT NULL DEFAULT 0;
INSERT INTO repack (grain, start, kind)
    SELECT grain, start, of.kind
    FROM repack
    CROSS JOIN unnest(
        ARRAY['rollup', 'fleet_rollup', 'fleet_spread', 'rollup_histogram', 'client_rollup']
    ) AS of (kind)
    WHERE NOT (grain = '1d' AND of.kind = 'client_rollup');
DELETE FROM repack WHERE kind IS NULL;
ALTER TABLE repack ADD PRIMARY KEY (grain, start, kind);
