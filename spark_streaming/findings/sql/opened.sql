-- What holds and is not open yet, the worst first, as far as there is room.
WITH open AS (
    SELECT kind, count(*) AS findings FROM telemetry.finding WHERE resolved_at IS NULL GROUP BY kind
),
held AS (
    SELECT judged.*, coalesce(open.findings, 0) AS findings
    FROM finding_judged AS judged
    LEFT JOIN telemetry.finding
        ON finding.resolved_at IS NULL
        AND finding.kind = judged.kind
        AND coalesce(finding.client_instance_id, '') = coalesce(judged.client_instance_id, '')
        AND (finding.cluster_id, finding.client_software_name, finding.client_software_version,
            finding.client_id, finding.principal, finding.group_id)
        IS NOT DISTINCT FROM (judged.cluster_id, judged.client_software_name,
            judged.client_software_version, judged.client_id, judged.principal, judged.group_id)
    LEFT JOIN open ON open.kind = judged.kind
    WHERE judged.holds AND finding.finding_id IS NULL
),
ranked AS (
    SELECT
        *,
        findings + row_number() OVER (
            PARTITION BY kind ORDER BY score DESC, client_instance_id, client_id, group_id
        ) AS place
    FROM held
),
inserted AS (
    INSERT INTO telemetry.finding (
        kind, severity, cluster_id, client_software_name, client_software_version, client_id,
        client_instance_id, principal, group_id, first_seen, last_seen, summary, evidence
    )
    SELECT
        kind, severity, cluster_id, client_software_name, client_software_version, client_id,
        client_instance_id, principal, group_id, %(now)s, %(now)s, summary, evidence
    FROM ranked
    WHERE place <= %(max_open)s
    RETURNING kind
)
SELECT kind, count(*) FILTER (WHERE place <= %(max_open)s), count(*) FILTER (WHERE place > %(max_open)s)
FROM ranked
GROUP BY kind
