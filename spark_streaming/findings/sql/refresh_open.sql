-- Updates open findings whose condition still holds.
UPDATE telemetry.finding
SET
    last_seen = greatest(finding.last_seen, %(now)s),
    severity = judged.severity,
    summary = judged.summary,
    evidence = judged.evidence
FROM finding_judged AS judged
WHERE judged.holds AND finding.finding_id = judged.finding_id
