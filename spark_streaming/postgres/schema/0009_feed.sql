-- Clients are judged by the pushes of their own cluster that were read. If a cluster's sidecars or
-- their delivery stop, its clients keep their state, because nothing is known about them. After a
-- day without any push of the cluster they are silent.
CREATE OR REPLACE VIEW client AS SELECT
    c.client_key, c.client_instance_id, c.client_id, c.client_software_name, c.client_software_version,
    c.principal, c.group_id, c.cluster_id, c.client_source_address, c.client_rack, c.group_instance_id,
    c.transactional_id, c.broker_id, c.first_seen, c.last_seen, c.push_interval_ms, c.terminated_at,
    CASE
        WHEN c.terminated THEN 'left'
        WHEN c.last_seen < CASE
            WHEN newest.push_at < read.until - interval '1 day' THEN read.until
            ELSE least(read.until, newest.push_at)
        END - 3 * c.push_interval_ms * interval '1 millisecond' THEN 'silent'
        ELSE 'live'
    END AS state
FROM client_state c
LEFT JOIN (
    SELECT coalesce(cluster_id, '') AS cluster, max(last_seen) AS push_at FROM client_state GROUP BY 1
) newest ON newest.cluster = coalesce(c.cluster_id, '')
CROSS JOIN LATERAL (SELECT (SELECT coalesce(read_until, now()) FROM horizon) AS until) read;

-- The pushes of each cluster: the newest that was read, and whether its clients should have pushed
-- since then.
CREATE VIEW feed AS SELECT
    cluster_id,
    max(last_seen) AS newest_push_at,
    count(*) FILTER (WHERE state = 'live') AS live_clients,
    min(push_interval_ms) FILTER (WHERE state = 'live') AS push_interval_ms,
    coalesce(
        max(last_seen) < (SELECT coalesce(read_until, now()) FROM horizon)
            - 3 * min(push_interval_ms) FILTER (WHERE state = 'live') * interval '1 millisecond',
        false
    ) AS stopped
FROM client
GROUP BY cluster_id;
