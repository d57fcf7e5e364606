-- Tables. Those that grow are partitioned by hour, day or month (partitions.py), so that retention
-- drops partitions instead of deleting rows. The views (0002) are the public interface; these
-- tables are not.

CREATE TABLE ledger (
    query_id text NOT NULL,
    batch_id bigint NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    pushes bigint NOT NULL DEFAULT 0,
    repeats bigint NOT NULL DEFAULT 0,
    points bigint NOT NULL DEFAULT 0,
    rows bigint NOT NULL DEFAULT 0,
    dead_letters bigint NOT NULL DEFAULT 0,
    left_out bigint NOT NULL DEFAULT 0,
    newest_received_at timestamptz,
    duration_s double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (query_id, batch_id)
);
CREATE INDEX ledger_committed_at ON ledger (committed_at);

CREATE TABLE push (
    push_id uuid NOT NULL,
    received_at timestamptz NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX push_push_id ON push (push_id);

CREATE TABLE dead_letter (
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    query_id text NOT NULL,
    batch_id bigint NOT NULL,
    source text NOT NULL,
    position text NOT NULL,
    reason text NOT NULL,
    bytes bigint NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX dead_letter_seen_at ON dead_letter (seen_at);

CREATE TABLE series (
    series_id bigint PRIMARY KEY,
    fleet_id bigint NOT NULL,
    metric text NOT NULL,
    cluster_id text,
    client_software_name text,
    client_software_version text,
    client_id text,
    principal text,
    group_id text,
    topic text,
    node_id text,
    node_role text,
    breakdown boolean NOT NULL,
    rule smallint NOT NULL,
    last_day date NOT NULL DEFAULT current_date
);
CREATE INDEX series_client_id ON series (metric, client_id);
CREATE INDEX series_principal ON series (metric, principal);
CREATE INDEX series_group_id ON series (metric, group_id);
CREATE INDEX series_topic ON series (metric, topic) WHERE topic IS NOT NULL;
CREATE INDEX series_software ON series (metric, cluster_id, client_software_name);
CREATE INDEX series_of_client_id ON series (client_id);

CREATE TABLE fleet_series (
    fleet_id bigint PRIMARY KEY,
    metric text NOT NULL,
    cluster_id text,
    client_software_name text,
    client_software_version text,
    rule smallint NOT NULL,
    last_day date NOT NULL DEFAULT current_date
);
CREATE INDEX fleet_series_metric ON fleet_series (metric, cluster_id, client_software_name);

-- The key starts with the series, because panels read few series over a range of time. The roll-up
-- itself reads an hour of all series, for which a BRIN index suffices, because rows arrive roughly
-- in order of time.
CREATE TABLE rollup_1m (
    series_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    points bigint NOT NULL,
    sum double precision NOT NULL,
    min double precision,
    max double precision,
    PRIMARY KEY (series_id, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE fleet_rollup_1m (
    fleet_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    points bigint NOT NULL,
    sum double precision NOT NULL,
    min double precision,
    max double precision,
    PRIMARY KEY (fleet_id, bucket)
) PARTITION BY RANGE (bucket);

CREATE TABLE fleet_spread_1m (
    fleet_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    spread smallint NOT NULL,
    observations bigint NOT NULL,
    PRIMARY KEY (fleet_id, bucket, spread)
) PARTITION BY RANGE (bucket);

CREATE TABLE rollup_histogram_1m (
    series_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    lower double precision NOT NULL,
    upper double precision NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (series_id, bucket, lower, upper)
) PARTITION BY RANGE (bucket);

CREATE TABLE client_rollup_1m (
    client_key bigint NOT NULL,
    bucket timestamptz NOT NULL,
    pushes bigint NOT NULL,
    points bigint NOT NULL,
    terminating boolean NOT NULL,
    broker_id text,
    client_source_address text,
    connections_created double precision,
    throttle_ms_max double precision,
    request_latency_ms_sum double precision,
    request_latency_points double precision,
    request_latency_ms_max double precision,
    poll_idle_ratio_sum double precision,
    poll_idle_ratio_points double precision,
    rebalances double precision,
    rebalance_ms double precision,
    assigned_partitions double precision,
    records double precision,
    bytes double precision,
    record_errors double precision,
    PRIMARY KEY (client_key, bucket)
) PARTITION BY RANGE (bucket);

DO $$
DECLARE kind text; grain text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['rollup', 'fleet_rollup', 'fleet_spread', 'rollup_histogram', 'client_rollup'] LOOP
        EXECUTE format(
            'CREATE INDEX %1$I ON %2$I USING brin (bucket) WITH (pages_per_range = 16, autosummarize = on)',
            kind || '_1m_bucket', kind || '_1m'
        );
        FOREACH grain IN ARRAY ARRAY['1h', '1d'] LOOP
            CONTINUE WHEN kind = 'client_rollup' AND grain = '1d';
            EXECUTE format(
                'CREATE TABLE %1$I (LIKE %2$I INCLUDING ALL) PARTITION BY RANGE (bucket)',
                kind || '_' || grain, kind || '_1m'
            );
        END LOOP;
    END LOOP;
END $$;

-- Hours and days that must be computed again (dirty), and when (due_at).
CREATE TABLE coarse (
    grain text NOT NULL,
    bucket timestamptz NOT NULL,
    dirty boolean NOT NULL DEFAULT true,
    due_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (grain, bucket)
);

-- Since when minutes, hours and days are kept. One row. Older rows are added to the next coarser
-- table directly, which is then never computed from a finer one.
CREATE TABLE horizon (
    minutes_from timestamptz NOT NULL,
    hours_from timestamptz NOT NULL,
    days_from timestamptz NOT NULL,
    -- No table of minutes has a later bucket.
    newest_minute timestamptz NOT NULL DEFAULT 'epoch',
    expired_on date
);

-- Append-only. The newest version of a client and minute counts.
CREATE SEQUENCE contribution_version;
CREATE TABLE contribution (
    client_key bigint NOT NULL,
    minute bigint NOT NULL,
    version bigint NOT NULL DEFAULT nextval('contribution_version'),
    entries integer NOT NULL,
    last_ns bigint NOT NULL,
    packed bytea NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (written_at);
-- Not compressed, because ids and measured values don't compress.
ALTER TABLE contribution ALTER packed SET STORAGE EXTERNAL;
CREATE INDEX contribution_client_minute ON contribution (client_key, minute);

-- State columns are null until the client's first entry is reconciled, and when a rebuild has
-- started.
CREATE TABLE client_state (
    client_key bigint PRIMARY KEY,
    client_instance_id text NOT NULL,
    client_id text,
    client_software_name text,
    client_software_version text,
    principal text,
    group_id text,
    cluster_id text,
    client_source_address text,
    client_rack text,
    group_instance_id text,
    transactional_id text,
    broker_id text,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    minute bigint,
    last_ns bigint,
    push_interval_ms bigint NOT NULL,
    terminated boolean NOT NULL,
    terminated_at timestamptz,
    covered_until bigint,
    carry_to bigint GENERATED ALWAYS AS ((last_ns / 1000000 + 3 * push_interval_ms) / 60000) STORED,
    counts bytea,
    cumulative bytea
) WITH (fillfactor = 60);
CREATE INDEX client_state_instance ON client_state (client_instance_id);
CREATE INDEX client_state_client_id ON client_state (client_id);
CREATE INDEX client_state_principal ON client_state (principal);
CREATE INDEX client_state_group_id ON client_state (group_id);
-- The smallest covered_until is the last minute that is complete (view progress).
CREATE INDEX client_state_to_carry ON client_state (covered_until) WHERE NOT terminated AND covered_until < carry_to;

CREATE TABLE catalogue (
    metric text PRIMARY KEY,
    kind text NOT NULL,
    unit text,
    description text NOT NULL,
    combines text NOT NULL,
    required boolean NOT NULL,
    clients text[] NOT NULL,
    draft_name text,
    released_names text[] NOT NULL
);

CREATE TABLE software (
    client_software_name text PRIMARY KEY,
    client text NOT NULL
);

CREATE TABLE finding (
    finding_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    severity text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    cluster_id text,
    client_software_name text,
    client_software_version text,
    client_id text,
    client_instance_id text,
    principal text,
    group_id text,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    resolved_at timestamptz,
    summary text NOT NULL,
    evidence jsonb NOT NULL
);
CREATE INDEX finding_open ON finding (kind) WHERE resolved_at IS NULL;
CREATE INDEX finding_last_seen ON finding (last_seen);
