-- Two processes that push as one instance. The push intervals of one process's pushes add up to the
-- time that they span; those of two processes to twice that. The longest interval is left out,
-- because the last push has just begun its own, and because intervals may have become shorter.
--
-- If most instances of a cluster look so, their intervals are not known (push_interval_s), and
-- nothing is judged.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_software_name, client_software_version, client_id,
    client_instance_id, principal, group_id, summary, evidence
)
WITH instances AS (
    SELECT
        instance.*,
        client.push_interval_ms,
        1000 * extract(epoch FROM client.last_seen - greatest(
            client.first_seen, %(now)s - make_interval(mins => %(window_minutes)s)
        ))::float8 AS span_ms
    FROM finding_instance AS instance
    JOIN finding_client AS client USING (client_instance_id)
    WHERE whole_since <= %(now)s - make_interval(mins => %(window_minutes)s) AND client.state <> 'left'
),
processes AS (
    SELECT *, (asked_ms - longest_ms) / span_ms AS processes
    FROM instances
    WHERE span_ms > 0 AND pushes >= %(min_pushes)s AND asked_ms IS NOT NULL
),
judged AS (
    SELECT
        processes.*,
        processes >= %(factor)s
        AND (
            count(*) OVER of_cluster < 4
            OR 2 * count(*) FILTER (WHERE processes >= %(factor)s) OVER of_cluster
                <= count(*) OVER of_cluster
        ) AS holds
    FROM processes
    WINDOW of_cluster AS (PARTITION BY processes.cluster_id)
)
SELECT
    'shared_instance',
    holds,
    processes,
    'warning',
    judged.cluster_id, client_software_name, client_software_version, client_id,
    judged.client_instance_id, principal, group_id,
    CASE WHEN holds THEN format(
        'Instance %%s of client id %%s pushed %%s times in %%s s, one push each %%s s was asked for: '
        'several processes seem to use its id',
        judged.client_instance_id, coalesce(client_id, '(none)'), pushes, round(span_ms / 1000),
        round(push_interval_ms / 1000.0, 1)
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'window_minutes', %(window_minutes)s::int,
        'pushes', pushes,
        'span_s', round(span_ms / 1000),
        'push_interval_ms', push_interval_ms,
        'processes', round(processes::numeric, 1),
        'addresses', seen.addresses,
        'brokers', seen.brokers,
        'threshold', %(factor)s::float8
    ) END
FROM judged
LEFT JOIN LATERAL (
    SELECT
        (array_agg(DISTINCT client_source_address) FILTER (WHERE client_source_address IS NOT NULL))[:10] AS addresses,
        (array_agg(DISTINCT broker_id) FILTER (WHERE broker_id IS NOT NULL))[:10] AS brokers
    FROM telemetry.client_1m
    WHERE
        client_1m.client_instance_id = judged.client_instance_id
        AND bucket > %(now)s - make_interval(mins => %(window_minutes)s) AND bucket <= %(now)s
) AS seen ON holds
