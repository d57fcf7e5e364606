-- What each minute of a member shows of its finding, for the bucket of change_point.py. Instances of a
-- client id count together where its rule adds them up. Of others, those that show most are read. Lag is
-- that of client ids.
WITH members AS MATERIALIZED (
    SELECT
        finding_id,
        member.client_instance_id,
        kind,
        (evidence ->> 'window_minutes')::float8 AS window_minutes,
        (evidence ->> 'threshold')::float8 AS threshold,
        (evidence ->> 'threshold_ms')::float8 AS threshold_ms,
        (evidence ->> 'threshold_minutes')::float8 AS threshold_minutes,
        (evidence ->> 'threshold_rebalances')::float8 AS threshold_rebalances,
        (evidence ->> 'threshold_time_share')::float8 AS threshold_time_share
    FROM unnest(%(findings)s::bigint[], %(instances)s::text[]) AS member (finding_id, client_instance_id)
    JOIN telemetry.finding USING (finding_id)
),
shown AS (
    SELECT
        finding_id,
        kind,
        CASE WHEN kind IN ('throttled', 'connection_churn') THEN '' ELSE members.client_instance_id END AS member,
        bucket,
        CASE kind
            WHEN 'throttled' THEN CASE WHEN throttle_ms_max >= threshold_ms THEN 1 / threshold_minutes END
            WHEN 'rebalance_storm' THEN greatest(
                rebalances / threshold_rebalances,
                rebalance_ms / (threshold_time_share * 60000 * window_minutes)
            )
            WHEN 'connection_churn' THEN connections_created / threshold
            WHEN 'shared_instance' THEN push_interval_ms_sum / (60000 * threshold * window_minutes)
            WHEN 'slow_client' THEN least(1, request_latency_ms / threshold_ms - 1)
            WHEN 'poll_bound' THEN greatest(-1, 1 - poll_idle_ratio / threshold)
        END AS amount
    FROM members
    JOIN telemetry.client_1m ON client_1m.client_instance_id = members.client_instance_id
    WHERE
        client_1m.client_instance_id = ANY(%(instances)s)
        AND since >= %(since)s - interval '1 hour'
        AND bucket >= %(since)s
        AND bucket <= %(now)s
    UNION ALL
    SELECT
        finding_id,
        kind,
        coalesce(metric_1m.client_id, ''),
        bucket,
        greatest(-1, least(1, max / (evidence ->> 'threshold')::float8 - 1))
    FROM telemetry.finding
    JOIN telemetry.metric_1m
        ON metric_1m.cluster_id IS NOT DISTINCT FROM finding.cluster_id
        AND metric_1m.group_id IS NOT DISTINCT FROM finding.group_id
        AND (finding.group_id IS NOT NULL OR metric_1m.client_id IS NOT DISTINCT FROM finding.client_id)
    WHERE
        finding_id = ANY(%(open)s)
        AND kind = 'lagging'
        AND metric = 'org.apache.kafka.consumer.fetch.manager.records.lag.max'
        AND since >= %(since)s - interval '1 hour'
        AND bucket >= %(since)s
        AND bucket <= %(now)s
),
amounts AS (
    SELECT
        finding_id,
        member,
        bucket,
        CASE min(kind) WHEN 'connection_churn' THEN sum(amount) ELSE max(amount) END AS amount
    FROM shown
    WHERE amount <> 0
    GROUP BY finding_id, member, bucket
),
ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY finding_id ORDER BY total DESC, member) AS place
    FROM (
        SELECT *, sum(greatest(amount, 0)) OVER (PARTITION BY finding_id, member) AS total FROM amounts
    ) AS totals
)
SELECT finding_id, member, (extract(epoch FROM bucket) / 60)::bigint, amount
FROM ranked
WHERE place <= %(max_members)s
ORDER BY finding_id, member, bucket
