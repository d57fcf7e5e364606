-- The instances whose minutes show open findings, live or not.
WITH found AS (
    SELECT * FROM telemetry.finding WHERE finding_id = ANY(%(findings)s)
)
SELECT finding_id, client_instance_id
FROM found JOIN telemetry.client_state AS client USING (client_instance_id)
UNION ALL
SELECT finding_id, client.client_instance_id
FROM found JOIN telemetry.client_state AS client USING (group_id)
WHERE
    found.client_instance_id IS NULL
    AND kind IN ('rebalance_storm', 'poll_bound')
    AND client.cluster_id IS NOT DISTINCT FROM found.cluster_id
    AND client.last_seen >= %(since)s
UNION ALL
SELECT finding_id, client.client_instance_id
FROM found JOIN telemetry.client_state AS client
    ON coalesce(client.client_id, '') = coalesce(found.client_id, '')
WHERE
    found.client_instance_id IS NULL
    AND (kind IN ('throttled', 'connection_churn') OR (kind = 'poll_bound' AND found.group_id IS NULL))
    AND client.cluster_id IS NOT DISTINCT FROM found.cluster_id
    AND client.client_id IS NOT DISTINCT FROM found.client_id
    -- Only the rule of throttling is about a principal, and only the others are about a group.
    AND (kind <> 'throttled' OR client.principal IS NOT DISTINCT FROM found.principal)
    AND (kind = 'throttled' OR client.group_id IS NOT DISTINCT FROM found.group_id)
    AND client.last_seen >= %(since)s
