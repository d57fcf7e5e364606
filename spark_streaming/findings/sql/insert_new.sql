-- Inserts new findings, the worst first, until max_open of their kind are open. Returns counts by
-- kind.
WITH open AS (
    SELECT kind, count(*) AS findings FROM telemetry.finding WHERE resolved_at IS NULL GROUP BY kind
),
held AS (
    SELECT judged.*, coalesce(open.findings, 0) AS findings
    FROM finding_judged AS judged
    LEFT JOIN open ON open.kind = judged.kind
    WHERE judged.holds AND judged.finding_id IS NULL
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
        client_instance_id, principal, group_id, first_seen, last_seen, began_at, held_at, summary, evidence
    )
    SELECT
        kind, severity, cluster_id, client_software_name, client_software_version, client_id,
        client_instance_id, principal, group_id, %(found_at)s, %(now)s,
        coalesce(began_at, %(now)s), CASE WHEN began_at IS NOT NULL THEN %(now)s END, summary, evidence
    FROM ranked
    WHERE place <= %(max_open)s
    RETURNING kind
)
SELECT kind, count(*) FILTER (WHERE place <= %(max_open)s), count(*) FILTER (WHERE place > %(max_open)s)
FROM ranked
GROUP BY kind
