-- Tables and views. Tables that grow are partitioned by hour, day or month (partitions.py), so that
-- retention drops partitions instead of deleting rows. The views are the public interface
-- (docs/rollup-tables.md), the tables are not. The tables of packed rows and the views of totals are
-- made from the description of the totals (packing.py, views.py), after the migrations.

-- Batches and their loads.

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
    -- Data points of series that were not added, because they are new beyond a bound.
    overflowed bigint NOT NULL DEFAULT 0,
    newest_received_at timestamptz,
    duration_s double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (query_id, batch_id)
);
CREATE INDEX ledger_committed_at ON ledger (committed_at);

-- Executors append rows under a load id, one for each attempt of a task. A load counts once the
-- driver's transaction for the batch has removed it from pending_load. Loads that never count are
-- swept. Rows of load 0 always count.
CREATE SEQUENCE load_id;

-- Complete loads that don't count. A row appears and the rows of its load with it, in one
-- transaction.
CREATE TABLE pending_load (
    load_id bigint PRIMARY KEY,
    query_id text NOT NULL,
    batch_id bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Rows in the tables that PostgreSQL empties after a crash.
    staged bigint NOT NULL
);

CREATE TABLE push (
    push_id uuid NOT NULL,
    received_at timestamptz NOT NULL,
    load_id bigint NOT NULL DEFAULT 0
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
CREATE UNLOGGED TABLE dead_letter_load (LIKE dead_letter INCLUDING DEFAULTS, load_id bigint NOT NULL);

-- Series. The database assigns ids. Pushes are matched to series by a keyed 128-bit hash
-- (series_high, series_low; SipHash-2-4 with the key in id_key), and to client instances by their
-- text.

-- Key of the hashes. One row, created by migrate(). Readers have no access, because anyone who
-- knows the key can construct two series with the same hash.
CREATE TABLE id_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    key_id uuid NOT NULL DEFAULT gen_random_uuid(),
    secret bytea NOT NULL CHECK (octet_length(secret) = 16)
);

-- Digest of texts and nulls. The text form of an array quotes its elements, so it is unambiguous.
CREATE FUNCTION texts_digest(VARIADIC texts text[]) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT sha256(convert_to(texts::text, 'UTF8')) $$;

CREATE SEQUENCE series_id;
CREATE TABLE series (
    series_id bigint PRIMARY KEY DEFAULT nextval('series_id'),
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
    last_day date NOT NULL DEFAULT current_date,
    series_high bigint,
    series_low bigint,
    reason text,
    error text,
    acks text,
    partition text
);
ALTER SEQUENCE series_id OWNED BY series.series_id;
CREATE INDEX series_client_id ON series (metric, client_id);
CREATE INDEX series_principal ON series (metric, principal);
CREATE INDEX series_group_id ON series (metric, group_id);
CREATE INDEX series_topic ON series (metric, topic) WHERE topic IS NOT NULL;
CREATE INDEX series_software ON series (metric, cluster_id, client_software_name);
CREATE INDEX series_of_client_id ON series (client_id);
CREATE UNIQUE INDEX series_hash ON series (series_high, series_low);
-- Series have no hash between a change of the key and their next push. All dimensions, in the order
-- of SERIES_ROWS (rows.py).
CREATE INDEX series_without_hash ON series (
    texts_digest(
        metric, cluster_id, client_software_name, client_software_version, client_id, principal, group_id,
        topic, node_id, node_role, reason, error, acks, partition, breakdown::text
    )
) WHERE series_high IS NULL;
-- Finds the series that differ only in reason or error, to bound their number.
CREATE INDEX series_reasons ON series (
    texts_digest(
        metric, cluster_id, client_software_name, client_software_version, client_id, principal, group_id,
        topic, node_id, node_role, acks, partition, breakdown::text
    )
) WHERE reason IS NOT NULL OR error IS NOT NULL;

-- Series that were added for a client or principal in an hour, and for all in a minute, by time of
-- receipt (new_series.py).
CREATE TABLE new_series (
    bound text NOT NULL,
    since timestamptz NOT NULL,
    -- Digest of the client's or the principal's names.
    name bytea NOT NULL,
    series bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (bound, since, name)
);
CREATE INDEX new_series_counted_at ON new_series (counted_at);

CREATE SEQUENCE fleet_series_id;
CREATE TABLE fleet_series (
    fleet_id bigint PRIMARY KEY DEFAULT nextval('fleet_series_id'),
    metric text NOT NULL,
    cluster_id text,
    client_software_name text,
    client_software_version text,
    rule smallint NOT NULL,
    last_day date NOT NULL DEFAULT current_date
);
ALTER SEQUENCE fleet_series_id OWNED BY fleet_series.fleet_id;
CREATE INDEX fleet_series_metric ON fleet_series (metric, cluster_id, client_software_name);
CREATE UNIQUE INDEX fleet_series_dimensions ON fleet_series (
    texts_digest(metric, cluster_id, client_software_name, client_software_version)
);

-- Totals of minutes. pushed_sum is the sum of the pushed values, for rules rate and last; null for
-- others. Averages are made from it, because sum is corrected for several pushes of an instance,
-- and has counts that continue without a push. sum is null if a histogram had none.

CREATE TABLE rollup_1m (
    series_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    points bigint NOT NULL,
    sum double precision,
    min double precision,
    max double precision,
    pushed_sum double precision
) PARTITION BY RANGE (bucket);

CREATE TABLE fleet_rollup_1m (
    fleet_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    points bigint NOT NULL,
    sum double precision,
    min double precision,
    max double precision,
    pushed_sum double precision
) PARTITION BY RANGE (bucket);

CREATE TABLE fleet_spread_1m (
    fleet_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    spread smallint NOT NULL,
    observations bigint NOT NULL
) PARTITION BY RANGE (bucket);

CREATE TABLE rollup_histogram_1m (
    series_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    lower double precision NOT NULL,
    upper double precision NOT NULL,
    count bigint NOT NULL
) PARTITION BY RANGE (bucket);

-- push_interval_ms_sum: the push intervals of the instance's pushes, added up. Two processes with
-- one instance id have twice as many milliseconds as time has passed.
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
    push_interval_ms_sum bigint NOT NULL
) PARTITION BY RANGE (bucket);

-- Hours and days have the columns of minutes, and one row for each key. Minutes have a row for each
-- load, until closed minutes are merged (merging.py). Keys start with the series, because panels
-- read few series over a range of time. The roll-up itself reads an hour of all series, for which a
-- BRIN index suffices, because rows arrive roughly in order of time. Rows of a minute, and rows of a
-- load, are neighbours.
DO $$
DECLARE kind record; grain text; coarse text;
BEGIN
    FOR kind IN
        SELECT * FROM (
            -- Hours and days of a series lie apart, one for each time they were computed. Its index has
            -- their values too, so that tables of all clients read neighbours.
            VALUES ('rollup', 'series_id', '', 'INCLUDE (points, sum, min, max, pushed_sum)'),
                ('fleet_rollup', 'fleet_id', '', ''), ('fleet_spread', 'fleet_id', ', spread', ''),
                ('rollup_histogram', 'series_id', ', lower, upper', ''),
                ('client_rollup', 'client_key', '', '')
        ) AS kinds (name, key, others, included)
    LOOP
        FOREACH grain IN ARRAY ARRAY['1h', '1d'] LOOP
            CONTINUE WHEN kind.name = 'client_rollup' AND grain = '1d';
            coarse := kind.name || '_' || grain;
            EXECUTE format(
                'CREATE TABLE %I (LIKE %I, PRIMARY KEY (%I, bucket%s) %s) PARTITION BY RANGE (bucket)',
                coarse, kind.name || '_1m', kind.key, kind.others, kind.included
            );
            EXECUTE format(
                'CREATE INDEX ON %I USING brin (bucket) WITH (pages_per_range = 16, autosummarize = on)', coarse
            );
            -- Rows that are too late for minutes, until the driver adds them to hours or days.
            EXECUTE format(
                'CREATE UNLOGGED TABLE %I (LIKE %I, load_id bigint NOT NULL)', coarse || '_load', coarse
            );
        END LOOP;
        EXECUTE format('ALTER TABLE %I ADD COLUMN load_id bigint NOT NULL DEFAULT 0', kind.name || '_1m');
        EXECUTE format('CREATE INDEX %I ON %I (%I, bucket)', kind.name || '_1m_key', kind.name || '_1m', kind.key);
        EXECUTE format(
            'CREATE INDEX %I ON %I USING brin (bucket) WITH (pages_per_range = 16, autosummarize = on)',
            kind.name || '_1m_minute', kind.name || '_1m'
        );
    END LOOP;
END $$;

-- Hours and days that must be computed again (dirty), and when (due_at). A growing hour gets the
-- minutes that have become whole since it was computed (maintenance.py).
CREATE TABLE coarse (
    grain text NOT NULL,
    bucket timestamptz NOT NULL,
    dirty boolean NOT NULL DEFAULT true,
    due_at timestamptz NOT NULL DEFAULT '-infinity',
    -- The first minute that changed since the hour was computed. Null: none did.
    changed_from timestamptz,
    -- The hour has its minutes before this time. Null: all must be added up again.
    computed_until timestamptz,
    PRIMARY KEY (grain, bucket)
);

-- How far the roll-up has come. One row.
CREATE TABLE horizon (
    -- Since when minutes, hours and days are kept. Older rows are added to the next coarser table
    -- directly, which is then never computed from a finer one.
    minutes_from timestamptz NOT NULL,
    hours_from timestamptz NOT NULL,
    days_from timestamptz NOT NULL,
    expired_on date,
    -- Pushes received until this time were read. Clients are silent by this time and not by the time
    -- of the query. So no client becomes silent because a file is written late, or because the job is
    -- stopped. Null until the first batch.
    read_until timestamptz,
    -- Windows that begin before are packed, except those in repack. Null: none is.
    minutes_packed_until timestamptz,
    hours_packed_until timestamptz,
    days_packed_until timestamptz,
    -- Minutes that begin before are merged. Null: none is.
    minutes_merged_until timestamptz,
    -- The time up to which hours and days are computed. Null until the first maintenance.
    hours_computed_until timestamptz,
    days_computed_until timestamptz,
    -- Maintenance finds it, because that reads each client to carry. Null: there was none, or no
    -- maintenance yet.
    minutes_covered_until timestamptz
);

-- Packed windows that have rows which are not packed: late ones, or those to be computed again. Each
-- kind of totals of a window is packed in a transaction of its own, so each has a row.
CREATE TABLE repack (
    grain text NOT NULL,
    start timestamptz NOT NULL,
    kind text NOT NULL,
    -- How many times batches have noted the window. If it changes while the window is packed, there
    -- may be rows that packing has not seen.
    noted bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (grain, start, kind)
);

-- The buckets of packed windows. Each has the number of its value if no bucket is missing, from 1;
-- its bit in the column present of packed rows; and the bits of the buckets before it.
CREATE TABLE slot_1m (
    bucket timestamptz PRIMARY KEY,
    start timestamptz NOT NULL,
    at smallint NOT NULL,
    bit bigint NOT NULL,
    below bigint NOT NULL
);
CREATE INDEX slot_1m_start ON slot_1m (start);
CREATE TABLE slot_1h (LIKE slot_1m INCLUDING ALL);
CREATE TABLE slot_1d (LIKE slot_1m INCLUDING ALL);

-- Clients.

-- Append-only. The newest version of a client and minute counts.
CREATE SEQUENCE contribution_version;
CREATE TABLE contribution (
    client_key bigint NOT NULL,
    minute bigint NOT NULL,
    version bigint NOT NULL DEFAULT nextval('contribution_version'),
    entries integer NOT NULL,
    last_ns bigint NOT NULL,
    packed bytea NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    -- The last minute of a range whose counts are carried forward; null for one minute. Those of a
    -- client's newest push are only in its state.
    until bigint,
    load_id bigint NOT NULL DEFAULT 0
) PARTITION BY RANGE (written_at);
-- Not compressed, because ids and measured values don't compress.
ALTER TABLE contribution ALTER packed SET STORAGE EXTERNAL;
CREATE INDEX contribution_client_minute ON contribution (client_key, minute);
CREATE INDEX contribution_ranges ON contribution (client_key, minute) WHERE until IS NOT NULL;

-- State columns are null until the client's first entry is reconciled, and when a rebuild has
-- started. A push changes no indexed column of its client. So PostgreSQL updates the row within its
-- page (HOT) and adds nothing to any of the six indexes.
CREATE SEQUENCE client_state_id;
CREATE TABLE client_state (
    client_key bigint PRIMARY KEY DEFAULT nextval('client_state_id'),
    client_instance_id text NOT NULL,
    client_id text,
    client_software_name text,
    client_software_version text,
    principal text,
    group_id text,
    cluster_id text,
    client_source_address text,
    client_source_port text,
    client_rack text,
    group_instance_id text,
    group_member_id text,
    transactional_id text,
    application_id text,
    broker_id text,
    -- The team that it belongs to, by the receiver's label.
    client_owner text,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    minute bigint,
    last_ns bigint,
    push_interval_ms bigint NOT NULL,
    terminated boolean NOT NULL,
    terminated_at timestamptz,
    -- The end of the connection of a client that sent no terminating push.
    disconnected_at timestamptz,
    covered_until bigint,
    counts bytea,
    cumulative bytea,
    -- The first minute of those up to covered_until that have the counts of the state.
    carried_from bigint,
    -- A push without points that ends the client may come after the minutes with its counts.
    to_carry boolean NOT NULL GENERATED ALWAYS AS (
        coalesce(covered_until < CASE
            WHEN terminated THEN minute
            ELSE (last_ns / 1000000 + 3 * push_interval_ms) / 60000
        END, false)
    ) STORED
) WITH (fillfactor = 60);
ALTER SEQUENCE client_state_id OWNED BY client_state.client_key;
CREATE UNIQUE INDEX client_state_instance ON client_state (client_instance_id);
CREATE INDEX client_state_client_id ON client_state (client_id);
CREATE INDEX client_state_principal ON client_state (principal);
CREATE INDEX client_state_group_id ON client_state (group_id);
CREATE INDEX client_state_to_carry ON client_state (client_key) WHERE to_carry;

-- Labels and states of clients, until the driver adds them to client_state.
CREATE UNLOGGED TABLE client_load (
    load_id bigint NOT NULL,
    client_key bigint NOT NULL,
    client_instance_id text NOT NULL,
    client_id text,
    client_software_name text,
    client_software_version text,
    principal text,
    group_id text,
    cluster_id text,
    client_source_address text,
    client_source_port text,
    client_rack text,
    group_instance_id text,
    group_member_id text,
    transactional_id text,
    application_id text,
    broker_id text,
    client_owner text,
    heard_interval_ms bigint NOT NULL,
    first_ns bigint NOT NULL,
    heard_ns bigint NOT NULL,
    minute bigint,
    last_ns bigint,
    push_interval_ms bigint,
    terminated boolean,
    covered_until bigint,
    carried_from bigint,
    counts bytea,
    cumulative bytea
);
ALTER TABLE client_load ALTER counts SET STORAGE EXTERNAL, ALTER cumulative SET STORAGE EXTERNAL;
CREATE INDEX client_load_load ON client_load (load_id);

-- For the sweeper.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'rollup_1m', 'fleet_rollup_1m', 'fleet_spread_1m', 'rollup_histogram_1m', 'client_rollup_1m', 'push',
        'contribution'
    ] LOOP
        EXECUTE format(
            'CREATE INDEX %I ON %I USING brin (load_id) WITH (pages_per_range = 32, autosummarize = on)',
            name || '_load', name
        );
    END LOOP;
END $$;

-- What readers get beside totals.

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
    -- When the roll-up found it, and last found it, and when it resolved it.
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    resolved_at timestamptz,
    summary text NOT NULL,
    evidence jsonb NOT NULL,
    -- By the pushed minutes alone: the first minute of the condition, the last one that shows it, and
    -- the end. Null: not known yet, and open.
    began_at timestamptz NOT NULL,
    held_at timestamptz,
    ended_at timestamptz
);
CREATE INDEX finding_open ON finding (kind) WHERE resolved_at IS NULL;
CREATE INDEX finding_last_seen ON finding (last_seen);

-- Progress of the roll-up. One row. A minute is complete when the counts of every client were
-- carried forward into it: the smallest covered_until of clients to carry is the last one. If there
-- is none, minutes are complete up to the newest push. Means of the running hour and day cover the
-- minutes until they were computed.
CREATE VIEW progress AS SELECT
    minutes_from, hours_from, whole_until, read_until,
    coalesce(hours_computed_until, whole_until) AS hours_until,
    coalesce(days_computed_until, whole_until) AS days_until
FROM horizon CROSS JOIN LATERAL (
    SELECT least(
        now(),
        coalesce(
            minutes_covered_until,
            (SELECT to_timestamp((min(covered_until) + 1) * 60) FROM client_state WHERE to_carry),
            (
                SELECT newest_received_at FROM ledger
                WHERE newest_received_at IS NOT NULL ORDER BY committed_at DESC LIMIT 1
            )
        )
    ) AS whole_until
) AS minutes;

-- These keep the plans of the views of totals short.
CREATE FUNCTION whole_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT whole_until FROM telemetry.progress';
CREATE FUNCTION hours_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT hours_until FROM telemetry.progress';
CREATE FUNCTION days_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT days_until FROM telemetry.progress';

-- Clients are judged by the pushes of their own cluster that were read. If a cluster's sidecars or
-- their delivery stop, its clients keep their state, because nothing is known about them. After a
-- day without any push of the cluster they are silent.
CREATE VIEW client AS SELECT
    c.client_key, c.client_instance_id, c.client_id, c.client_software_name, c.client_software_version,
    c.principal, c.group_id, c.cluster_id, c.client_source_address, c.client_source_port, c.client_rack,
    c.group_instance_id, c.group_member_id, c.transactional_id, c.application_id, c.broker_id, c.first_seen,
    c.last_seen, c.push_interval_ms, c.terminated_at, c.disconnected_at,
    CASE
        WHEN c.terminated THEN 'left'
        WHEN c.last_seen < CASE
            WHEN newest.push_at < read.until - interval '1 day' THEN read.until
            ELSE least(read.until, newest.push_at)
        END - 3 * c.push_interval_ms * interval '1 millisecond'
            THEN CASE WHEN c.disconnected_at >= c.last_seen THEN 'disconnected' ELSE 'silent' END
        ELSE 'live'
    END AS state,
    c.client_owner
FROM client_state c
LEFT JOIN (
    SELECT coalesce(cluster_id, '') AS cluster, max(last_seen) AS push_at FROM client_state GROUP BY 1
) newest ON newest.cluster = coalesce(c.cluster_id, '')
CROSS JOIN LATERAL (SELECT (SELECT coalesce(read_until, now()) FROM horizon) AS until) read;

-- The pushes of each cluster: the newest that was read, and whether its clients should have pushed
-- since then.
CREATE VIEW feed AS SELECT
    cluster_id,
    max(last_seen) AS newest_push_at,
    count(*) FILTER (WHERE state = 'live') AS live_clients,
    min(push_interval_ms) FILTER (WHERE state = 'live') AS push_interval_ms,
    coalesce(
        max(last_seen) < (SELECT coalesce(read_until, now()) FROM horizon)
            - 3 * min(push_interval_ms) FILTER (WHERE state = 'live') * interval '1 millisecond',
        false
    ) AS stopped
FROM client
GROUP BY cluster_id;
