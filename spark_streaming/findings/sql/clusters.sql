-- A gap is longer than two push intervals of the cluster's busiest live client and two minutes of delivery.
-- Clients that began within the window say nothing of its beginning, unless there are no others.
INSERT INTO finding_cluster (cluster_id, whole_since)
WITH tolerated AS (
    SELECT
        cluster_id,
        2 * coalesce(
            min(push_interval_ms) FILTER (WHERE first_seen <= %(now)s - make_interval(mins => %(longest)s)),
            min(push_interval_ms)
        ) * interval '1 millisecond' + interval '2 minutes' AS gap
    FROM telemetry.client
    WHERE
        last_seen > %(now)s - make_interval(mins => %(longest)s)
        AND state <> 'left'
        AND push_interval_ms > 0
    GROUP BY cluster_id
),
minutes AS (
    SELECT DISTINCT cluster_id, bucket
    FROM telemetry.client_1m
    WHERE bucket > %(now)s - make_interval(mins => %(longest)s) AND bucket <= %(now)s
),
steps AS (
    SELECT
        cluster_id,
        bucket,
        bucket - lag(bucket, 1, %(now)s - make_interval(mins => %(longest)s))
            OVER (PARTITION BY cluster_id ORDER BY bucket) AS since_last
    FROM minutes
)
SELECT
    steps.cluster_id,
    coalesce(
        max(bucket) FILTER (WHERE since_last > gap), %(now)s - make_interval(mins => %(longest)s)
    )
FROM steps
JOIN tolerated ON tolerated.cluster_id IS NOT DISTINCT FROM steps.cluster_id
GROUP BY steps.cluster_id
HAVING %(now)s - max(bucket) <= max(gap)
