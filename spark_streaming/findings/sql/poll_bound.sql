-- Judges each group as one application, and each client id without a group.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_id, group_id, summary, evidence
)
WITH applications AS (
    SELECT
        cluster_id,
        CASE WHEN group_id IS NULL THEN client_id END AS client_id,
        group_id,
        count(*) AS members,
        count(*) FILTER (WHERE poll_idle_ratio < %(idle_ratio)s) AS bound,
        min(poll_idle_ratio) AS least,
        avg(poll_idle_ratio) AS mean,
        (array_agg(client_instance_id ORDER BY poll_idle_ratio, client_instance_id))[1] AS worst
    FROM finding_instance
    WHERE
        poll_points >= %(min_points)s
        AND poll_idle_ratio IS NOT NULL
        AND whole_since <= %(now)s - make_interval(mins => %(window_minutes)s)
    GROUP BY 1, 2, 3
)
SELECT
    'poll_bound',
    holds,
    bound::float8 / members + (1 - least),
    CASE WHEN bound >= %(bound_share)s * members THEN 'warning' ELSE 'info' END,
    cluster_id,
    client_id,
    group_id,
    CASE WHEN holds THEN format(
        '%%s of %%s members of %%s hardly wait for records (poll idle ratio down to %%s): '
        'the application is the limit',
        bound, members, coalesce('group ' || group_id, 'client id ' || client_id, 'an unnamed client'),
        round(least::numeric, 3)
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'members_bound', bound,
        'members', members,
        'poll_idle_ratio_min', round(least::numeric, 4),
        'poll_idle_ratio_mean', round(mean::numeric, 4),
        'worst_instance', worst,
        'threshold', %(idle_ratio)s::float8
    ) END
FROM applications,
LATERAL (SELECT bound > 0 AS holds) AS verdict
