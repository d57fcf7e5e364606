-- Judges all instances of a principal and client id together, because that is what a quota applies
-- to.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_id, principal, summary, evidence
)
WITH clients AS (
    SELECT
        cluster_id,
        principal,
        client_id,
        max(throttle_ms_max) AS worst_ms,
        -- Instances that are throttled in the same minute count once.
        count(DISTINCT throttled_minute) AS minutes,
        count(DISTINCT client_instance_id) FILTER (WHERE throttled_at IS NOT NULL) AS throttled,
        count(DISTINCT client_instance_id) AS instances
    FROM finding_instance
    LEFT JOIN LATERAL unnest(throttled_at) AS throttled_minute ON true
    WHERE
        throttle_ms_max IS NOT NULL
        AND whole_since <= %(now)s - make_interval(mins => %(window_minutes)s)
    GROUP BY cluster_id, principal, client_id
)
SELECT
    'throttled',
    holds,
    worst_ms,
    CASE WHEN worst_ms >= %(severe_ms)s THEN 'warning' ELSE 'info' END,
    cluster_id,
    client_id,
    principal,
    CASE WHEN holds THEN format(
        'Client id %%s of %%s was throttled for up to %%s ms, in %%s minutes of the last %%s '
        '(%%s of %%s instances)',
        coalesce(client_id, '(none)'), coalesce(principal, '(no principal)'), round(worst_ms::numeric), minutes,
        %(window_minutes)s::int, throttled, instances
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'throttle_ms_max', worst_ms,
        'throttled_minutes', minutes,
        'instances_throttled', throttled,
        'instances', instances,
        'threshold_ms', %(throttle_ms)s::float8,
        'threshold_minutes', %(min_minutes)s::int
    ) END
FROM clients,
LATERAL (SELECT minutes >= %(min_minutes)s AS holds) AS verdict
