-- Averages of rules rate and last are those of the pushed values. Their column sum can't give them:
-- it is corrected for several pushes of an instance, and has counts that continue without a push.

-- The sum of the pushed values, for these two rules; null for others. Older rows have none.
ALTER TABLE rollup_1m ADD COLUMN pushed_sum double precision;
ALTER TABLE rollup_1h ADD COLUMN pushed_sum double precision;
ALTER TABLE rollup_1d ADD COLUMN pushed_sum double precision;
ALTER TABLE fleet_rollup_1m ADD COLUMN pushed_sum double precision;
ALTER TABLE fleet_rollup_1h ADD COLUMN pushed_sum double precision;
ALTER TABLE fleet_rollup_1d ADD COLUMN pushed_sum double precision;

DO $$
DECLARE
    grain record;
    statistics constant text := $columns$
            r.points,
            CASE WHEN s.rule IN (1, 2) THEN r.sum / %2$s ELSE r.sum END AS sum,
            r.min,
            r.max,
            -- Within the extremes, in spite of rounding and of rows without pushed_sum.
            greatest(r.min, least(r.max, coalesce(r.pushed_sum, r.sum) / nullif(r.points, 0))) AS avg,
            CASE WHEN s.rule = 0 THEN r.sum / (60 * %2$s) END AS rate
    $columns$;
    dimensions constant text := $columns$
            s.metric, s.cluster_id, s.client_software_name, s.client_software_version,
            s.client_id, s.principal, s.group_id, s.topic, s.node_id, s.node_role
    $columns$;
    added constant text := ', s.reason, s.error, s.acks, s.partition';
    -- Minutes of a bucket that are rolled up. Fewer than its length if it has not ended.
    passed constant text := $columns$
            greatest(1, least(%1$s, floor(extract(epoch FROM (SELECT telemetry.whole_until()) - r.bucket) / 60)))::float8
    $columns$;
    fleet constant text := 's.metric, s.cluster_id, s.client_software_name, s.client_software_version';
BEGIN
    FOR grain IN
        SELECT * FROM (VALUES
            ('1m', '1'),
            ('1h', format(passed, 60)),
            ('1d', format(passed, 1440))
        ) AS grains (name, minutes)
    LOOP
        EXECUTE format(
            'CREATE OR REPLACE VIEW metric_%1$s AS SELECT r.bucket, ' || dimensions || ',' || statistics || added || '
            FROM rollup_%1$s r JOIN series s USING (series_id) WHERE NOT s.breakdown',
            grain.name, grain.minutes
        );
        EXECUTE format(
            'CREATE OR REPLACE VIEW topic_%1$s AS SELECT r.bucket, ' || dimensions || ',' || statistics || added || '
            FROM rollup_%1$s r JOIN series s USING (series_id) WHERE s.topic IS NOT NULL',
            grain.name, grain.minutes
        );
        EXECUTE format(
            'CREATE OR REPLACE VIEW fleet_%1$s AS SELECT r.bucket, ' || fleet || ',' || statistics || '
            FROM fleet_rollup_%1$s r JOIN fleet_series s USING (fleet_id)',
            grain.name, grain.minutes
        );
    END LOOP;
END $$;
