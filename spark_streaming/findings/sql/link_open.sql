-- Links each judged subject to its open finding. This is the only definition of a finding's
-- identity.
UPDATE finding_judged AS judged
SET finding_id = finding.finding_id
FROM telemetry.finding
WHERE
    finding.resolved_at IS NULL
    AND finding.kind = judged.kind
    AND coalesce(finding.client_instance_id, '') = coalesce(judged.client_instance_id, '')
    AND (finding.cluster_id, finding.client_software_name, finding.client_software_version,
        finding.client_id, finding.principal, finding.group_id)
    IS NOT DISTINCT FROM (judged.cluster_id, judged.client_software_name,
        judged.client_software_version, judged.client_id, judged.principal, judged.group_id)
