-- A silent client is reported only if another client of the cluster pushed after it should have.
-- Otherwise the receiver or the delivery may have stopped, not the client. Receivers write at
-- different times, so pushes of that time must have been read.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_software_name, client_software_version, client_id,
    client_instance_id, principal, group_id, summary, evidence, began_at
)
WITH clients AS (
    SELECT
        client.*,
        last_seen + %(intervals)s * push_interval_ms * interval '1 millisecond' AS due,
        max(last_seen) OVER (PARTITION BY client.cluster_id) AS newest
    FROM finding_client AS client
    WHERE push_interval_ms > 0
)
SELECT
    'silent',
    holds,
    silent_s * 1000.0 / push_interval_ms,
    'info',
    clients.cluster_id, client_software_name, client_software_version, client_id, client_instance_id,
    principal, group_id,
    CASE WHEN holds THEN format(
        'Instance %%s of client id %%s has not pushed for %%s s; it should every %%s s',
        client_instance_id, coalesce(client_id, '(none)'),
        round(silent_s), round(push_interval_ms / 1000.0, 1)
    ) END,
    CASE WHEN holds THEN jsonb_build_object(
        'last_push', last_seen,
        'silent_s', round(silent_s),
        'push_interval_ms', push_interval_ms,
        'cluster_newest_push', newest,
        'threshold_s', round(%(intervals)s::numeric * push_interval_ms / 1000.0)
    ) END,
    date_trunc('minute', last_seen)
FROM clients
JOIN finding_cluster ON finding_cluster.cluster_id IS NOT DISTINCT FROM clients.cluster_id,
LATERAL (
    SELECT
        state NOT IN ('left', 'disconnected')
        AND due <= least(newest, (SELECT read_until FROM telemetry.progress))
        AND due > %(now)s - make_interval(mins => %(max_minutes)s) AS holds,
        -- A client that pushes often may be silent since a minute that the windows don't have yet.
        extract(epoch FROM greatest(%(now)s, newest) - last_seen) AS silent_s
) AS verdict
