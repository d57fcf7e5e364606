-- Every member counts its group's rebalances, so the group has as many as the member with the most.
INSERT INTO finding_judged (kind, holds, score, severity, cluster_id, group_id, summary, evidence)
WITH groups AS (
    SELECT
        cluster_id,
        group_id,
        count(*) FILTER (WHERE live) AS members,
        greatest(
            %(rebalances)s, %(rebalances_per_member)s * count(*) FILTER (WHERE live) + 1
        ) AS threshold,
        max(rebalances) AS rebalances,
        max(rebalance_ms) AS rebalance_ms,
        -- Capped, because a rebalance that started before the window counts when it ends. The CASE
        -- is needed because least() ignores nulls.
        CASE WHEN max(rebalance_ms) IS NOT NULL
            THEN least(max(rebalance_ms) / (%(window_minutes)s * 60000.0), 1)
        END AS share
    FROM finding_instance
    WHERE
        group_id IS NOT NULL
        AND (rebalances IS NOT NULL OR rebalance_ms IS NOT NULL)
        AND whole_since <= %(now)s - make_interval(mins => %(window_minutes)s)
    GROUP BY cluster_id, group_id
)
SELECT
    'rebalance_storm',
    holds,
    greatest(coalesce(rebalances / threshold, 0), coalesce(share / %(time_share)s, 0)),
    CASE WHEN share >= %(severe_time_share)s THEN 'critical' ELSE 'warning' END,
    cluster_id,
    group_id,
    CASE WHEN holds THEN format(
        'Group %%s spent %%s on rebalances in the last %%s minutes: %%s, '
        'by the worst of %%s members',
        group_id,
        coalesce(round((share * 100)::numeric) || ' %% of its time', 'an unknown share of its time'),
        %(window_minutes)s::int,
        coalesce(round(rebalances::numeric)::text, 'an unknown number'),
        members
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'rebalances', rebalances,
        'rebalance_ms', rebalance_ms,
        'time_share', round(share::numeric, 4),
        'members', members,
        'threshold_rebalances', threshold,
        'threshold_time_share', %(time_share)s::float8
    ) END
FROM groups,
LATERAL (
    SELECT
        coalesce(rebalances >= threshold, false) OR coalesce(share >= %(time_share)s, false) AS holds
) AS verdict
