-- Clients are silent by how far pushes were read, and not by the time of the query. So no client
-- becomes silent because a file is written late, or because the job is stopped.

-- Pushes received until this time were read. Null until the first batch of this version.
ALTER TABLE horizon ADD COLUMN read_until timestamptz;

CREATE OR REPLACE VIEW progress AS SELECT
    minutes_from, hours_from,
    least(
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
    ) AS whole_until,
    read_until
FROM horizon;

CREATE OR REPLACE VIEW client AS SELECT
    client_key, client_instance_id, client_id, client_software_name, client_software_version, principal,
    group_id, cluster_id, client_source_address, client_rack, group_instance_id, transactional_id, broker_id,
    first_seen, last_seen, push_interval_ms, terminated_at,
    CASE
        WHEN terminated THEN 'left'
        WHEN last_seen < (SELECT coalesce(read_until, now()) FROM horizon)
            - 3 * push_interval_ms * interval '1 millisecond' THEN 'silent'
        ELSE 'live'
    END AS state
FROM client_state;
