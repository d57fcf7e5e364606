-- Updates open findings whose condition still holds.
UPDATE telemetry.finding
SET
    last_seen = greatest(finding.last_seen, %(now)s),
    severity = judged.severity,
    summary = judged.summary,
    evidence = judged.evidence,
    began_at = coalesce(judged.began_at, finding.began_at),
    held_at = CASE WHEN judged.began_at IS NULL THEN finding.held_at ELSE greatest(finding.last_seen, %(now)s) END
FROM finding_judged AS judged
WHERE judged.holds AND finding.finding_id = judged.finding_id
