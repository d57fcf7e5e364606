-- Since when the data of each cluster has no gap. A cluster with a gap at the end has no row.
--
-- A gap is longer than two push intervals of the cluster's most frequent live client plus two
-- minutes for delivery. Clients that started within the window are used only if the cluster has no
-- others. Before the first client of a cluster nothing is missing.
INSERT INTO finding_cluster (cluster_id, whole_since)
WITH clients AS (
    SELECT
        cluster_id,
        first_seen <= %(now)s - make_interval(mins => %(longest)s) AS began_before,
        CASE
            WHEN state <> 'left' AND last_seen > %(now)s - make_interval(mins => %(longest)s)
                THEN nullif(push_interval_ms, 0)
        END AS interval_ms
    FROM finding_client
),
clusters AS (
    SELECT
        cluster_id,
        bool_or(began_before) OR EXISTS (
            SELECT FROM telemetry.client AS earlier
            WHERE
                earlier.cluster_id IS NOT DISTINCT FROM clients.cluster_id
                AND earlier.first_seen <= %(now)s - make_interval(mins => %(longest)s)
        ) AS began_before,
        2 * coalesce(min(interval_ms) FILTER (WHERE began_before), min(interval_ms))
            * interval '1 millisecond' + interval '2 minutes' AS tolerated
    FROM clients
    GROUP BY cluster_id
),
minutes AS (
    SELECT DISTINCT cluster_id, bucket
    FROM telemetry.client_1m
    WHERE bucket > %(now)s - make_interval(mins => %(longest)s) AND bucket <= %(now)s
),
steps AS (
    SELECT
        minutes.cluster_id,
        bucket,
        tolerated,
        bucket - lag(bucket, 1, CASE
            WHEN began_before THEN %(now)s - make_interval(mins => %(longest)s) ELSE bucket
        END) OVER (PARTITION BY minutes.cluster_id ORDER BY bucket) AS since_last
    FROM minutes
    JOIN clusters ON clusters.cluster_id IS NOT DISTINCT FROM minutes.cluster_id
    WHERE tolerated IS NOT NULL
)
SELECT
    cluster_id,
    coalesce(
        max(bucket) FILTER (WHERE since_last > tolerated), %(now)s - make_interval(mins => %(longest)s)
    )
FROM steps
GROUP BY cluster_id
HAVING %(now)s - max(bucket) <= max(tolerated)
