-- The team that a client belongs to, by the receiver's label client_owner.
ALTER TABLE client_state ADD client_owner text;
ALTER TABLE client_load ADD client_owner text;

CREATE OR REPLACE VIEW client AS SELECT
    c.client_key, c.client_instance_id, c.client_id, c.client_software_name, c.client_software_version,
    c.principal, c.group_id, c.cluster_id, c.client_source_address, c.client_source_port, c.client_rack,
    c.group_instance_id, c.group_member_id, c.transactional_id, c.application_id, c.broker_id, c.first_seen,
    c.last_seen, c.push_interval_ms, c.terminated_at, c.disconnected_at,
    CASE
        WHEN c.terminated THEN 'left'
        WHEN c.last_seen < CASE
            WHEN newest.push_at < read.until - interval '1 day' THEN read.until
            ELSE least(read.until, newest.push_at)
        END - 3 * c.push_interval_ms * interval '1 millisecond'
            THEN CASE WHEN c.disconnected_at >= c.last_seen THEN 'disconnected' ELSE 'silent' END
        ELSE 'live'
    END AS state,
    c.client_owner
FROM client_state c
LEFT JOIN (
    SELECT coalesce(cluster_id, '') AS cluster, max(last_seen) AS push_at FROM client_state GROUP BY 1
) newest ON newest.cluster = coalesce(c.cluster_id, '')
CROSS JOIN LATERAL (SELECT (SELECT coalesce(read_until, now()) FROM horizon) AS until) read;
