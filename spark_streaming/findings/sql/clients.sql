-- Clients seen recently. This is the only statement that scans all clients, because the table has
-- no index on last_seen, which every push would have to update.
INSERT INTO finding_client
SELECT
    client_instance_id, cluster_id, client_software_name, client_software_version, client_id, principal,
    group_id, first_seen, last_seen, push_interval_ms, state
FROM telemetry.client
WHERE
    last_seen > %(now)s - make_interval(mins => %(longest)s)
    -- 15 minutes longer than a silent client can be a finding, so that its finding is resolved.
    OR last_seen > %(now)s - make_interval(mins => %(max_minutes)s + 15)
        - %(intervals)s * push_interval_ms * interval '1 millisecond'
