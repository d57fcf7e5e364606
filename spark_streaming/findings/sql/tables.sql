-- Working tables of the findings: private to the session, empty after the transaction.

-- Clients seen recently.
CREATE TEMPORARY TABLE IF NOT EXISTS finding_client (
    client_instance_id text NOT NULL,
    cluster_id text,
    client_software_name text,
    client_software_version text,
    client_id text,
    principal text,
    group_id text,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    push_interval_ms bigint NOT NULL,
    state text NOT NULL
) ON COMMIT DELETE ROWS;

-- Clusters whose data has no gap since whole_since, which is never in the future.
CREATE TEMPORARY TABLE IF NOT EXISTS finding_cluster (
    cluster_id text,
    whole_since timestamptz NOT NULL
) ON COMMIT DELETE ROWS;

-- Instances of these clusters with data in the longest window. Null means that it is not measured.
CREATE TEMPORARY TABLE IF NOT EXISTS finding_instance (
    client_instance_id text NOT NULL,
    cluster_id text,
    client_software_name text,
    client_software_version text,
    client_id text,
    principal text,
    group_id text,
    first_seen timestamptz NOT NULL,
    whole_since timestamptz NOT NULL,
    consumer boolean NOT NULL,
    live boolean NOT NULL,
    throttled_at timestamptz[],
    throttle_ms_max double precision,
    connections double precision,
    latency_ms double precision,
    poll_points double precision,
    poll_idle_ratio double precision,
    rebalances double precision,
    rebalance_ms double precision,
    pushes bigint,
    asked_ms double precision,
    longest_ms double precision,
    records double precision,
    partitions double precision
) ON COMMIT DELETE ROWS;

-- Every subject that could be judged. holds: it is a finding. score: higher is worse. finding_id:
-- its open finding. began_at: when the condition began, where minutes do not show it.
CREATE TEMPORARY TABLE IF NOT EXISTS finding_judged (
    kind text NOT NULL,
    holds boolean NOT NULL,
    score double precision NOT NULL,
    severity text,
    cluster_id text,
    client_software_name text,
    client_software_version text,
    client_id text,
    client_instance_id text,
    principal text,
    group_id text,
    summary text,
    evidence jsonb,
    finding_id bigint,
    began_at timestamptz
) ON COMMIT DELETE ROWS;

TRUNCATE finding_client, finding_cluster, finding_instance, finding_judged;
