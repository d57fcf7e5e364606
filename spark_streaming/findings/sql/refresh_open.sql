-- Updates open findings whose condition still holds. A severity rises at once, and falls after
-- resolve_after_minutes, so that a value near a threshold does not change it again and again. The
-- evidence stores since when it would be less.
UPDATE telemetry.finding
SET
    last_seen = greatest(finding.last_seen, %(now)s),
    severity = CASE WHEN is_milder AND NOT is_long_milder THEN finding.severity ELSE judged.severity END,
    summary = judged.summary,
    evidence = CASE
        WHEN is_milder AND NOT is_long_milder
            THEN judged.evidence || jsonb_build_object('milder_since', milder_since)
        ELSE judged.evidence
    END,
    began_at = coalesce(judged.began_at, finding.began_at),
    held_at = CASE WHEN judged.began_at IS NULL THEN finding.held_at ELSE greatest(finding.last_seen, %(now)s) END
FROM (
    SELECT
        found.*,
        array_position(ARRAY['critical', 'warning', 'info'], found.severity)
            > array_position(ARRAY['critical', 'warning', 'info'], before.severity) AS is_milder,
        milder_since,
        milder_since <= %(now)s - make_interval(mins => %(resolve_after_minutes)s) AS is_long_milder
    FROM finding_judged AS found
    JOIN telemetry.finding AS before USING (finding_id),
    LATERAL (
        SELECT coalesce((before.evidence ->> 'milder_since')::timestamptz, %(now)s) AS milder_since
    ) AS since
) AS judged
WHERE judged.holds AND finding.finding_id = judged.finding_id
