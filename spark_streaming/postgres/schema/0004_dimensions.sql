-- Four more dimensions of series: reason, error, acks and partition. Existing series have none of
-- them, and keep their ids and hashes.

ALTER TABLE series
    ADD COLUMN reason text, ADD COLUMN error text, ADD COLUMN acks text, ADD COLUMN partition text;

-- With all dimensions, in the order of SERIES_ROWS (rows.py).
DROP INDEX series_without_hash;
CREATE INDEX series_without_hash ON series (
    texts_digest(
        metric, cluster_id, client_software_name, client_software_version, client_id, principal, group_id,
        topic, node_id, node_role, reason, error, acks, partition, breakdown::text
    )
) WHERE series_high IS NULL;

-- The new columns of the views come last, because CREATE OR REPLACE VIEW can't move columns. It keeps
-- the rights on the views, and views of others that read them.
DO $$
DECLARE
    grain record;
    dimensions constant text := $columns$
            s.metric, s.cluster_id, s.client_software_name, s.client_software_version,
            s.client_id, s.principal, s.group_id, s.topic, s.node_id, s.node_role
    $columns$;
    statistics constant text := $columns$
            r.points,
            CASE WHEN s.rule IN (1, 2) THEN r.sum / %2$s ELSE r.sum END AS sum,
            r.min,
            r.max,
            r.sum / nullif(r.points, 0) AS avg,
            CASE WHEN s.rule = 0 THEN r.sum / (60 * %2$s) END AS rate
    $columns$;
    added constant text := ', s.reason, s.error, s.acks, s.partition';
    -- Minutes of a bucket that are rolled up. Fewer than its length if it has not ended.
    passed constant text := $columns$
            greatest(1, least(%1$s, floor(extract(epoch FROM (SELECT telemetry.whole_until()) - r.bucket) / 60)))::float8
    $columns$;
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
            'CREATE OR REPLACE VIEW histogram_%1$s AS SELECT r.bucket, ' || dimensions || ', r.lower, r.upper, r.count'
            || added || ' FROM rollup_histogram_%1$s r JOIN series s USING (series_id) WHERE NOT s.breakdown',
            grain.name
        );
    END LOOP;
END $$;
