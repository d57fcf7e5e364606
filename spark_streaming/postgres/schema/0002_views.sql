-- Views: the public interface (docs/rollup-tables.md). Columns for filters are plain columns of
-- base tables, so that the planner can use their indexes.

-- Progress of the roll-up. One row. A minute is complete when the counts of every client were
-- carried forward into it. If no client needs that, minutes are complete up to the newest push.
CREATE VIEW progress AS SELECT
    minutes_from, hours_from,
    least(
        now(),
        coalesce(
            (
                SELECT to_timestamp((min(covered_until) + 1) * 60)
                FROM client_state WHERE NOT terminated AND covered_until < carry_to
            ),
            (
                SELECT newest_received_at FROM ledger
                WHERE newest_received_at IS NOT NULL ORDER BY committed_at DESC LIMIT 1
            )
        )
    ) AS whole_until
FROM horizon;

-- Keeps the plans of the views below short.
CREATE FUNCTION whole_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT whole_until FROM telemetry.progress';

DO $$
DECLARE
    grain record;
    statistics constant text := $columns$
            r.points,
            CASE WHEN s.rule IN (1, 2) THEN r.sum / %2$s ELSE r.sum END AS sum,
            r.min,
            r.max,
            r.sum / nullif(r.points, 0) AS avg,
            CASE WHEN s.rule = 0 THEN r.sum / (60 * %2$s) END AS rate
    $columns$;
    dimensions constant text := $columns$
            s.metric, s.cluster_id, s.client_software_name, s.client_software_version,
            s.client_id, s.principal, s.group_id, s.topic, s.node_id, s.node_role
    $columns$;
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
            'CREATE VIEW metric_%1$s AS SELECT r.bucket, ' || dimensions || ',' || statistics || '
            FROM rollup_%1$s r JOIN series s USING (series_id) WHERE NOT s.breakdown',
            grain.name, grain.minutes
        );
        EXECUTE format(
            'CREATE VIEW topic_%1$s AS SELECT r.bucket, ' || dimensions || ',' || statistics || '
            FROM rollup_%1$s r JOIN series s USING (series_id) WHERE s.topic IS NOT NULL',
            grain.name, grain.minutes
        );
        EXECUTE format(
            'CREATE VIEW fleet_%1$s AS SELECT r.bucket, ' || fleet || ',' || statistics || '
            FROM fleet_rollup_%1$s r JOIN fleet_series s USING (fleet_id)',
            grain.name, grain.minutes
        );
        EXECUTE format(
            'CREATE VIEW spread_%1$s AS SELECT r.bucket, ' || fleet || ',
            CASE
                WHEN r.spread = -32768 THEN 0
                WHEN r.spread < -8000 THEN -power(2::float8, (-20000 - r.spread + 0.5::float8) / 8)
                ELSE power(2::float8, (r.spread + 0.5::float8) / 8)
            END AS value,
            r.observations
            FROM fleet_spread_%1$s r JOIN fleet_series s USING (fleet_id) WHERE r.observations <> 0',
            grain.name
        );
        EXECUTE format(
            'CREATE VIEW histogram_%1$s AS SELECT r.bucket, ' || dimensions || ', r.lower, r.upper, r.count
            FROM rollup_histogram_%1$s r JOIN series s USING (series_id) WHERE NOT s.breakdown',
            grain.name
        );
        CONTINUE WHEN grain.name = '1d';
        EXECUTE format(
            'CREATE VIEW client_%1$s AS SELECT
                r.bucket,
                c.client_instance_id, c.client_id, c.client_software_name, c.client_software_version,
                c.principal, c.group_id, c.cluster_id, r.broker_id, r.client_source_address,
                r.pushes, r.points, r.terminating,
                r.connections_created, r.throttle_ms_max,
                r.request_latency_ms_sum, r.request_latency_points, r.request_latency_ms_max,
                r.request_latency_ms_sum / nullif(r.request_latency_points, 0) AS request_latency_ms,
                r.poll_idle_ratio_sum, r.poll_idle_ratio_points,
                r.poll_idle_ratio_sum / nullif(r.poll_idle_ratio_points, 0) AS poll_idle_ratio,
                r.rebalances, r.rebalance_ms, r.assigned_partitions, r.records, r.bytes, r.record_errors
            FROM client_rollup_%1$s r JOIN client_state c USING (client_key)',
            grain.name
        );
    END LOOP;
END $$;

CREATE VIEW client AS SELECT
    client_key, client_instance_id, client_id, client_software_name, client_software_version, principal,
    group_id, cluster_id, client_source_address, client_rack, group_instance_id, transactional_id, broker_id,
    first_seen, last_seen, push_interval_ms, terminated_at,
    CASE
        WHEN terminated THEN 'left'
        WHEN last_seen < now() - 3 * push_interval_ms * interval '1 millisecond' THEN 'silent'
        ELSE 'live'
    END AS state
FROM client_state;
