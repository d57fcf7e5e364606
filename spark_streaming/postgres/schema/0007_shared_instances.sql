-- How many milliseconds of pushes each instance was asked for: the push intervals of its pushes,
-- added up. Two processes with one instance id have twice as many as time has passed.

ALTER TABLE client_rollup_1m ADD COLUMN push_interval_ms_sum bigint;
ALTER TABLE client_rollup_1h ADD COLUMN push_interval_ms_sum bigint;

DO $$
DECLARE grain text;
BEGIN
    FOREACH grain IN ARRAY ARRAY['1m', '1h'] LOOP
        EXECUTE format(
            'CREATE OR REPLACE VIEW client_%1$s AS SELECT
                r.bucket,
                c.client_instance_id, c.client_id, c.client_software_name, c.client_software_version,
                c.principal, c.group_id, c.cluster_id, r.broker_id, r.client_source_address,
                r.pushes, r.points, r.terminating,
                r.connections_created, r.throttle_ms_max,
                r.request_latency_ms_sum, r.request_latency_points, r.request_latency_ms_max,
                r.request_latency_ms_sum / nullif(r.request_latency_points, 0) AS request_latency_ms,
                r.poll_idle_ratio_sum, r.poll_idle_ratio_points,
                r.poll_idle_ratio_sum / nullif(r.poll_idle_ratio_points, 0) AS poll_idle_ratio,
                r.rebalances, r.rebalance_ms, r.assigned_partitions, r.records, r.bytes, r.record_errors,
                r.push_interval_ms_sum
            FROM client_rollup_%1$s r JOIN client_state c USING (client_key)',
            grain
        );
    END LOOP;
END $$;
