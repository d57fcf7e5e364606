-- Judges each group by the client id that is furthest behind, and each client id without a group. Lag
-- is stored by client id. The slope is that of a line through the window.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_id, group_id, summary, evidence
)
WITH minutes AS (
    SELECT cluster_id, group_id, client_id, bucket, max(max) AS lag
    FROM telemetry.metric_1m
    WHERE
        metric = 'org.apache.kafka.consumer.fetch.manager.records.lag.max'
        AND bucket > %(now)s - make_interval(mins => %(window_minutes)s)
        AND bucket <= %(now)s
        AND since > %(now)s - make_interval(mins => %(window_minutes)s + 60)
    GROUP BY 1, 2, 3, 4
),
clients AS (
    SELECT
        cluster_id,
        group_id,
        client_id,
        (array_agg(lag ORDER BY bucket DESC))[1] AS lag,
        max(bucket) AS newest,
        count(*) AS points,
        CASE
            WHEN regr_r2(lag, extract(epoch FROM bucket)::float8) >= 0.5
                THEN 60 * regr_slope(lag, extract(epoch FROM bucket)::float8)
            ELSE 0
        END AS per_minute
    FROM minutes
    GROUP BY cluster_id, group_id, client_id
),
worst AS (
    SELECT DISTINCT ON (cluster_id, group_id, CASE WHEN group_id IS NULL THEN client_id END) *
    FROM clients
    -- The lag of a client that stopped is not known.
    WHERE newest > %(now)s - make_interval(mins => %(window_minutes)s) / 2
    ORDER BY
        cluster_id, group_id, CASE WHEN group_id IS NULL THEN client_id END, lag DESC, client_id
),
applications AS (
    SELECT
        worst.cluster_id,
        worst.group_id,
        worst.client_id,
        lag,
        per_minute,
        min(whole_since) AS whole_since,
        (array_agg(client_instance_id ORDER BY first_seen DESC, client_instance_id))[1] AS instance,
        -- At the rate at which the client id reads a partition.
        lag / nullif(sum(records) / %(window_minutes)s / nullif(sum(partitions), 0), 0) AS behind_minutes,
        sum(records) = 0 AS reads_nothing
    FROM worst
    JOIN finding_instance AS reader
        ON coalesce(reader.cluster_id, '') = coalesce(worst.cluster_id, '')
        AND coalesce(reader.group_id, '') = coalesce(worst.group_id, '')
        AND coalesce(reader.client_id, '') = coalesce(worst.client_id, '')
        AND live
    WHERE points >= 3
    GROUP BY worst.cluster_id, worst.group_id, worst.client_id, lag, per_minute
),
judged AS (
    SELECT
        *,
        coalesce(behind_minutes >= %(behind_minutes)s, reads_nothing, false) AS is_far,
        per_minute * %(window_minutes)s >= %(growth)s * lag AS grows,
        -per_minute * %(window_minutes)s >= %(growth)s * lag AS falls
    FROM applications
    WHERE whole_since <= %(now)s - make_interval(mins => %(window_minutes)s)
)
SELECT
    'lagging',
    holds,
    lag,
    CASE
        WHEN coalesce(behind_minutes >= %(severe_minutes)s, reads_nothing, false) THEN 'critical'
        ELSE 'warning'
    END,
    cluster_id,
    CASE WHEN group_id IS NULL THEN client_id END,
    group_id,
    CASE WHEN holds THEN format(
        '%%s is %%s records behind in a partition%%s, and the lag %%s: client id %%s is the furthest behind',
        coalesce('Group ' || group_id, 'Client id ' || client_id, 'An unnamed client'),
        round(lag::numeric),
        CASE
            WHEN reads_nothing THEN ' and reads nothing'
            ELSE coalesce(', ' || round(behind_minutes::numeric) || ' minutes at its rate', '')
        END,
        CASE WHEN grows THEN 'grows by ' || round(per_minute::numeric) || ' a minute' ELSE 'does not fall' END,
        coalesce(client_id, '(none)')
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'lag', lag,
        'per_minute', round(per_minute::numeric, 1),
        'behind_minutes', round(behind_minutes::numeric, 1),
        'worst_instance', instance,
        'threshold', %(records)s::float8,
        'threshold_minutes', %(behind_minutes)s::float8
    ) END
FROM judged,
LATERAL (
    SELECT
        lag >= %(records)s
        -- A minute is what a busy partition has in flight.
        AND coalesce(behind_minutes >= 1, true)
        AND (grows OR (is_far AND NOT falls)) AS holds
) AS verdict
