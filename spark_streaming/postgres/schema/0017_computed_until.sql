-- Means of the running hour and day cover the minutes until they were computed (maintenance.py).

-- The time up to which hours and days are computed. Null until the first maintenance.
ALTER TABLE horizon ADD COLUMN hours_computed_until timestamptz, ADD COLUMN days_computed_until timestamptz;

CREATE OR REPLACE VIEW progress AS SELECT
    minutes_from, hours_from, whole_until, read_until,
    coalesce(hours_computed_until, whole_until) AS hours_until,
    coalesce(days_computed_until, whole_until) AS days_until
FROM horizon CROSS JOIN LATERAL (
    SELECT least(
        now(),
        coalesce(
            (
                SELECT to_timestamp((min(covered_until) + 1) * 60)
                FROM client_state WHERE NOT terminated AND covered_until < carry_to
            ),
            (
                SELECT newest_received_at FROM ledger
                WHERE newest_received_at IS NOT NULL ORDER BY committed_at DESC LIMIT 1
            )
        )
    ) AS whole_until
) AS minutes;

-- As for whole_until().
CREATE FUNCTION hours_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT hours_until FROM telemetry.progress';
CREATE FUNCTION days_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT days_until FROM telemetry.progress';
