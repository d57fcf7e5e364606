-- Compares latencies with those of peers. Consumers are compared with consumers only, because
-- brokers hold their fetches, and members of a group with its members.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_software_name, client_software_version, client_id,
    client_instance_id, principal, group_id, summary, evidence
)
WITH instances AS (
    SELECT
        *,
        hashtextextended(jsonb_build_array(cluster_id, consumer, group_id)::text, 0) AS peers,
        CASE WHEN consumer THEN %(consumer_floor_ms)s ELSE %(producer_floor_ms)s END::float8 AS floor_ms
    FROM finding_instance
    WHERE
        latency_ms IS NOT NULL
        AND whole_since <= %(now)s - make_interval(mins => %(window_minutes)s)
),
medians AS (
    SELECT peers, count(*) - 1 AS others, percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS median
    FROM instances
    GROUP BY peers
    HAVING count(*) > %(min_peers)s
),
spreads AS (
    SELECT
        peers,
        others,
        median,
        1.4826 * percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(latency_ms - median)) AS deviation
    FROM instances JOIN medians USING (peers)
    GROUP BY peers, others, median
),
judged AS (
    SELECT
        *,
        greatest(floor_ms, %(factor)s * median, median + %(deviations)s * deviation) AS threshold
    FROM instances JOIN spreads USING (peers)
)
SELECT
    'slow_client',
    holds,
    -- The worst producers come first, because their requests do not wait for data.
    CASE WHEN consumer THEN latency_ms / (latency_ms + threshold) ELSE latency_ms / threshold END,
    'warning',
    cluster_id, client_software_name, client_software_version, client_id, client_instance_id, principal,
    group_id,
    CASE WHEN holds THEN format(
        'Instance %%s of client id %%s waits %%s ms for responses%%s; the median of it and %%s peers is %%s ms',
        client_instance_id, coalesce(client_id, '(none)'), round(latency_ms::numeric),
        CASE WHEN consumer THEN ', with the broker''s wait for data' END, others,
        round(median::numeric, 1)
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'latency_ms', round(latency_ms::numeric, 3),
        'peers', others,
        'peers_median_ms', round(median::numeric, 3),
        'peers_deviation_ms', round(deviation::numeric, 3),
        'peers_are', CASE
            WHEN NOT consumer THEN 'producers of the same cluster'
            WHEN group_id IS NULL THEN 'consumers of the same cluster without a group'
            ELSE 'of the same group'
        END,
        'threshold_ms', round(threshold::numeric, 3)
    ) END
FROM judged,
LATERAL (SELECT latency_ms >= threshold AS holds) AS verdict
