-- Stores when conditions began and last showed.
UPDATE telemetry.finding
SET
    began_at = coalesce(to_timestamp(found.began * 60), finding.began_at),
    held_at = greatest(to_timestamp(found.last * 60), finding.held_at)
FROM unnest(%(findings)s::bigint[], %(began)s::bigint[], %(last)s::bigint[]) AS found (finding_id, began, last)
WHERE finding.finding_id = found.finding_id
