-- Compares connections with those of peers, in two ways: by instance, to find one that keeps
-- reconnecting, and by client id, to find one whose instances live too briefly to open many
-- connections each. An instance that started in the window is not judged alone, because a start
-- opens connections.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_software_name, client_software_version, client_id,
    client_instance_id, principal, group_id, summary, evidence
)
WITH instances AS (
    SELECT
        *,
        hashtextextended(
            CASE WHEN group_id IS NOT NULL
                THEN jsonb_build_array('group', cluster_id, group_id)
                ELSE jsonb_build_array('principal', cluster_id, principal, client_software_name, consumer)
            END::text,
            0
        ) AS peers
    FROM finding_instance
    WHERE
        connections IS NOT NULL
        AND whole_since <= %(now)s - make_interval(mins => %(window_minutes)s)
),
subjects AS (
    SELECT
        'instance' AS level, peers, cluster_id, client_software_name, client_software_version, client_id,
        client_instance_id, principal, group_id, 1 AS instances, connections
    FROM instances
    WHERE first_seen <= %(now)s - make_interval(mins => %(window_minutes)s)
    UNION ALL
    SELECT
        'client_id', peers, cluster_id, min(client_software_name), NULL, client_id,
        NULL, min(principal), min(group_id), count(*), sum(connections)
    FROM instances
    GROUP BY peers, cluster_id, client_id
),
medians AS (
    SELECT
        level, peers, count(*) - 1 AS others,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY connections) AS median
    FROM subjects
    GROUP BY level, peers
    HAVING count(*) > %(min_peers)s
),
judged AS (
    SELECT
        *,
        connections >= %(min_connections)s AND connections >= %(factor)s * greatest(median, 1) AS is_excessive
    FROM subjects JOIN medians USING (level, peers)
),
explained AS (
    SELECT
        *,
        connections / greatest(median, 1) AS score,
        is_excessive
        AND (
            level = 'instance'
            OR NOT bool_or(is_excessive AND level = 'instance') OVER (PARTITION BY peers, client_id)
        ) AS holds
    FROM judged
)
-- A client id of producers and of consumers without a group has two sets of peers. It gets one row.
SELECT DISTINCT ON (
    cluster_id, client_software_name, client_software_version, client_id, client_instance_id, principal, group_id
)
    'connection_churn',
    holds,
    score,
    'warning',
    cluster_id, client_software_name, client_software_version, client_id, client_instance_id, principal,
    group_id,
    CASE WHEN holds THEN format(
        '%%s of client id %%s opened %%s connections in %%s minutes; the median of it and %%s peers is %%s',
        CASE level WHEN 'instance' THEN 'Instance ' || client_instance_id ELSE instances || ' instances' END,
        coalesce(client_id, '(none)'), round(connections::numeric), %(window_minutes)s::int, others,
        round(median::numeric, 1)
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'connections', connections,
        'instances', instances,
        'peers', others,
        'peers_median', median,
        'peers_are', CASE
            WHEN group_id IS NULL THEN 'of the same principal and software' ELSE 'of the same group'
        END,
        'threshold', greatest(%(min_connections)s::float8, %(factor)s * greatest(median, 1))
    ) END
FROM explained
WHERE level = 'instance' OR instances > 1
ORDER BY
    cluster_id, client_software_name, client_software_version, client_id, client_instance_id, principal, group_id,
    holds DESC, score DESC
