-- What no longer holds, where the cluster's data is there to say so. Since when is kept with the evidence:
-- the time when it last held would do for a job that never stood still.
WITH untrue AS (
    SELECT
        finding.finding_id,
        coalesce((finding.evidence ->> 'untrue_since')::timestamptz, %(now)s) AS since
    FROM telemetry.finding
    JOIN finding_cluster ON finding_cluster.cluster_id IS NOT DISTINCT FROM finding.cluster_id
    LEFT JOIN finding_judged AS judged ON judged.finding_id = finding.finding_id
    WHERE
        finding.resolved_at IS NULL
        AND CASE
            WHEN judged.kind IS NULL
                THEN finding.last_seen <= %(now)s - make_interval(mins => %(forget_after_minutes)s)
            ELSE NOT judged.holds
        END
)
UPDATE telemetry.finding
SET
    evidence = finding.evidence || jsonb_build_object('untrue_since', since),
    resolved_at = CASE
        WHEN since <= %(now)s - make_interval(mins => %(resolve_after_minutes)s) THEN %(now)s
    END
FROM untrue
WHERE finding.finding_id = untrue.finding_id
RETURNING finding.kind, finding.resolved_at IS NOT NULL
