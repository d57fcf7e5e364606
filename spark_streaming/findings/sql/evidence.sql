-- What each minute of a member shows of its finding, for the bucket of change_point.py. Instances of a
-- client id count together where its rule adds them up. Of others, those that show most are read.
WITH members AS (
    SELECT finding_id, member.client_instance_id, kind, evidence
    FROM unnest(%(findings)s::bigint[], %(instances)s::text[]) AS member (finding_id, client_instance_id)
    JOIN telemetry.finding USING (finding_id)
),
amounts AS (
    SELECT
        finding_id,
        CASE WHEN kind IN ('throttled', 'connection_churn') THEN '' ELSE client_instance_id END AS member,
        bucket,
        CASE kind
            WHEN 'throttled' THEN max(CASE
                WHEN throttle_ms_max >= (evidence ->> 'threshold_ms')::float8
                    THEN 1 / (evidence ->> 'threshold_minutes')::float8
            END)
            WHEN 'rebalance_storm' THEN max(greatest(
                rebalances / (evidence ->> 'threshold_rebalances')::float8,
                rebalance_ms / (
                    (evidence ->> 'threshold_time_share')::float8 * 60000
                    * (evidence ->> 'window_minutes')::float8
                )
            ))
            WHEN 'connection_churn' THEN sum(connections_created / (evidence ->> 'threshold')::float8)
            WHEN 'shared_instance' THEN max(
                push_interval_ms_sum
                / (60000 * (evidence ->> 'threshold')::float8 * (evidence ->> 'window_minutes')::float8)
            )
            WHEN 'slow_client'
                THEN max(least(1, request_latency_ms / (evidence ->> 'threshold_ms')::float8 - 1))
            WHEN 'poll_bound'
                THEN max(greatest(-1, 1 - poll_idle_ratio / (evidence ->> 'threshold')::float8))
        END AS amount
    FROM members JOIN telemetry.client_1m USING (client_instance_id)
    WHERE
        client_instance_id = ANY(%(instances)s)
        AND since >= %(since)s - interval '1 hour'
        AND bucket >= %(since)s
        AND bucket <= %(now)s
    GROUP BY finding_id, kind, evidence, 2, bucket
),
ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY finding_id ORDER BY total DESC, member) AS place
    FROM (
        SELECT *, sum(greatest(amount, 0)) OVER (PARTITION BY finding_id, member) AS total
        FROM amounts
        WHERE amount <> 0
    ) AS shown
)
SELECT finding_id, member, (extract(epoch FROM bucket) / 60)::bigint, amount
FROM ranked
WHERE place <= %(max_members)s
ORDER BY finding_id, member, bucket
