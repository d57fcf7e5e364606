-- Open findings that were judged by minutes, and whether each still holds.
SELECT
    finding.finding_id,
    finding.kind,
    judged.holds,
    CASE WHEN finding.held_at IS NOT NULL THEN (extract(epoch FROM finding.began_at) / 60)::bigint END
FROM telemetry.finding
-- A new finding has no number in finding_judged.
LEFT JOIN finding_judged AS judged ON judged.finding_id = finding.finding_id
WHERE
    finding.resolved_at IS NULL
    AND finding.kind = ANY(%(kinds)s)
    AND (judged.kind IS NOT NULL OR finding.held_at IS NULL)
