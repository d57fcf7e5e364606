-- The only reading of all clients; clusters.sql looks for any one that is older. The view has no index on
-- last_seen, as each push would have to change it.
INSERT INTO finding_client
SELECT
    client_instance_id, cluster_id, client_software_name, client_software_version, client_id, principal,
    group_id, first_seen, last_seen, push_interval_ms, state
FROM telemetry.client
WHERE
    last_seen > %(now)s - make_interval(mins => %(longest)s)
    -- A quarter of an hour more than a silent client can be a finding, to see that it no longer is.
    OR last_seen > %(now)s - make_interval(mins => %(max_minutes)s + 15)
        - %(intervals)s * push_interval_ms * interval '1 millisecond'
