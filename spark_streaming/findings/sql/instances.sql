-- What each instance measured within the windows of the kinds, for clusters whose data has no gap.
INSERT INTO finding_instance
WITH measured AS (
    SELECT
        client_instance_id,
        array_agg(bucket) FILTER (WHERE throttle_ms_max >= %(throttle_ms)s AND windows.throttled) AS throttled_at,
        max(throttle_ms_max) FILTER (WHERE windows.throttled) AS throttle_ms_max,
        sum(connections_created) FILTER (WHERE windows.churn) AS connections,
        sum(request_latency_ms_sum) FILTER (WHERE windows.slow)
            / nullif(sum(request_latency_points) FILTER (WHERE windows.slow), 0) AS latency_ms,
        sum(poll_idle_ratio_points) FILTER (WHERE windows.poll) AS poll_points,
        sum(poll_idle_ratio_sum) FILTER (WHERE windows.poll)
            / nullif(sum(poll_idle_ratio_points) FILTER (WHERE windows.poll), 0) AS poll_idle_ratio,
        sum(rebalances) FILTER (WHERE windows.storm) AS rebalances,
        sum(rebalance_ms) FILTER (WHERE windows.storm) AS rebalance_ms,
        sum(pushes) FILTER (WHERE windows.shared) AS pushes,
        sum(push_interval_ms_sum) FILTER (WHERE windows.shared) AS asked_ms,
        max(push_interval_ms_sum::float8 / nullif(pushes, 0)) FILTER (WHERE windows.shared) AS longest_ms,
        sum(records) FILTER (WHERE windows.lag) AS records,
        max(assigned_partitions) FILTER (WHERE windows.lag) AS partitions,
        count(poll_idle_ratio_sum) > 0 OR count(assigned_partitions) > 0 AS consumer
    FROM telemetry.client_1m
    CROSS JOIN LATERAL (
        SELECT
            bucket > %(now)s - make_interval(mins => %(throttled_minutes)s) AS throttled,
            bucket > %(now)s - make_interval(mins => %(churn_minutes)s) AS churn,
            bucket > %(now)s - make_interval(mins => %(slow_minutes)s) AS slow,
            bucket > %(now)s - make_interval(mins => %(poll_minutes)s) AS poll,
            bucket > %(now)s - make_interval(mins => %(storm_minutes)s) AS storm,
            bucket > %(now)s - make_interval(mins => %(shared_minutes)s) AS shared,
            bucket > %(now)s - make_interval(mins => %(lag_minutes)s) AS lag
    ) AS windows
    WHERE bucket > %(now)s - make_interval(mins => %(longest)s) AND bucket <= %(now)s
    GROUP BY client_instance_id
)
SELECT
    client_instance_id,
    client.cluster_id,
    client.client_software_name,
    client.client_software_version,
    client.client_id,
    client.principal,
    client.group_id,
    client.first_seen,
    finding_cluster.whole_since,
    measured.consumer OR client.group_id IS NOT NULL,
    client.state <> 'left'
        AND client.last_seen >= least(%(now)s, (SELECT read_until FROM telemetry.progress))
            - 3 * client.push_interval_ms * interval '1 millisecond',
    measured.throttled_at,
    measured.throttle_ms_max,
    measured.connections,
    measured.latency_ms,
    measured.poll_points,
    measured.poll_idle_ratio,
    measured.rebalances,
    measured.rebalance_ms,
    measured.pushes,
    measured.asked_ms,
    measured.longest_ms,
    measured.records,
    measured.partitions
FROM measured
JOIN finding_client AS client USING (client_instance_id)
JOIN finding_cluster ON finding_cluster.cluster_id IS NOT DISTINCT FROM client.cluster_id
