-- Findings with the clients that they are about, the most severe first.
WITH found AS (
    SELECT * FROM telemetry.finding
    WHERE
        (NOT %(is_open)s OR resolved_at IS NULL)
        AND kind = ANY(%(kinds)s::text[])
        AND severity = ANY(%(severities)s::text[])
        AND (%(since)s::timestamptz IS NULL OR coalesce(ended_at, 'infinity') >= %(since)s::timestamptz)
),
about AS (
    SELECT finding_id, client_id, principal, group_id, NULL::text AS client_owner, client_software_name
    FROM found
    WHERE coalesce(client_id, principal, group_id) IS NOT NULL
    UNION
    SELECT found.finding_id, client.client_id, client.principal, client.group_id,
        client.client_owner, client.client_software_name
    FROM found JOIN telemetry.client ON client.client_instance_id = found.client_instance_id
    UNION
    -- Of a principal and client id, perhaps of a group.
    SELECT found.finding_id, client.client_id, client.principal, client.group_id,
        client.client_owner, client.client_software_name
    FROM found JOIN telemetry.client
        ON client.client_id = found.client_id
        AND client.cluster_id IS NOT DISTINCT FROM found.cluster_id
    WHERE
        found.client_instance_id IS NULL
        AND coalesce(found.principal, client.principal, '') = coalesce(client.principal, '')
        AND coalesce(found.group_id, client.group_id, '') = coalesce(client.group_id, '')
    UNION
    SELECT found.finding_id, client.client_id, client.principal, client.group_id,
        client.client_owner, client.client_software_name
    FROM found JOIN telemetry.client
        ON client.group_id = found.group_id
        AND client.cluster_id IS NOT DISTINCT FROM found.cluster_id
    WHERE found.client_instance_id IS NULL AND found.client_id IS NULL
    UNION
    SELECT found.finding_id, client.client_id, client.principal, client.group_id,
        client.client_owner, client.client_software_name
    FROM found JOIN telemetry.client
        ON client.client_software_name = found.client_software_name
        AND client.client_software_version = found.client_software_version
        AND client.cluster_id IS NOT DISTINCT FROM found.cluster_id
    WHERE found.kind IN ('old_version', 'known_bad_version') AND client.state <> 'left'
)
SELECT
    finding_id, kind, severity, cluster_id, client_software_name, client_software_version, client_id,
    client_instance_id, principal, group_id, began_at, first_seen, held_at, ended_at, resolved_at, summary,
    evidence,
    coalesce((
        SELECT jsonb_agg(jsonb_build_array(
            about.client_id, about.principal, about.group_id, about.client_owner, about.client_software_name
        ))
        FROM about WHERE about.finding_id = found.finding_id
    ), '[]')
FROM found
ORDER BY array_position(ARRAY['critical', 'warning', 'info'], severity), began_at DESC, finding_id
