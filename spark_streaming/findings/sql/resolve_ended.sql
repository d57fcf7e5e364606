-- Resolves findings whose condition has been gone for resolve_after_minutes, in clusters whose data
-- has no gap. The evidence stores since when it is gone, because last_seen is too old after the job
-- was stopped.
WITH ended AS (
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
        WHEN since <= %(now)s - make_interval(mins => %(resolve_after_minutes)s) THEN %(found_at)s
    END,
    ended_at = CASE
        WHEN since > %(now)s - make_interval(mins => %(resolve_after_minutes)s) THEN NULL
        WHEN finding.kind <> 'silent' THEN finding.held_at + interval '1 minute'
        -- It pushed again, or it counts as gone.
        ELSE coalesce(
            (
                SELECT min(bucket) FROM telemetry.client_1m
                WHERE
                    client_1m.client_instance_id = finding.client_instance_id
                    AND bucket > finding.began_at
                    AND client_1m.since >= finding.began_at - interval '1 hour'
            ),
            finding.held_at
        )
    END
FROM ended
WHERE finding.finding_id = ended.finding_id
RETURNING finding.kind, finding.resolved_at IS NOT NULL
