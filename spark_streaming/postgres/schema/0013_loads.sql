-- Executors append rows under a load id, one for each attempt of a task. A load counts once the
-- driver's transaction for the batch has removed it from pending_load. Loads that never count are
-- swept.

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

-- Minutes have one row for each load. Until now they had one row for each key.
DO $$
DECLARE kind record;
BEGIN
    FOR kind IN
        SELECT * FROM (
            VALUES ('rollup', 'series_id'), ('fleet_rollup', 'fleet_id'), ('fleet_spread', 'fleet_id'),
                ('rollup_histogram', 'series_id'), ('client_rollup', 'client_key')
        ) AS kinds (name, key)
    LOOP
        EXECUTE format('ALTER TABLE %1$I DROP CONSTRAINT %2$I', kind.name || '_1m', kind.name || '_1m_pkey');
        EXECUTE format('DROP INDEX %I', kind.name || '_1m_bucket');
        EXECUTE format('ALTER TABLE %I ADD COLUMN load_id bigint NOT NULL DEFAULT 0', kind.name || '_1m');
        EXECUTE format('CREATE INDEX %I ON %I (%I, bucket)', kind.name || '_1m_key', kind.name || '_1m', kind.key);
        -- Rows that are too late for minutes, until the driver adds them to hours or days.
        EXECUTE format(
            'CREATE UNLOGGED TABLE %I (LIKE %I, load_id bigint NOT NULL)',
            kind.name || '_1h_load', kind.name || '_1h'
        );
        CONTINUE WHEN kind.name = 'client_rollup';
        EXECUTE format(
            'CREATE UNLOGGED TABLE %I (LIKE %I, load_id bigint NOT NULL)',
            kind.name || '_1d_load', kind.name || '_1d'
        );
    END LOOP;
END $$;

ALTER TABLE push ADD COLUMN load_id bigint NOT NULL DEFAULT 0;
ALTER TABLE contribution ADD COLUMN load_id bigint NOT NULL DEFAULT 0;

-- For the sweeper. Rows of a load are neighbours.
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
    client_rack text,
    group_instance_id text,
    transactional_id text,
    broker_id text,
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
-- Not compressed, because ids and measured values don't compress.
ALTER TABLE client_load ALTER counts SET STORAGE EXTERNAL, ALTER cumulative SET STORAGE EXTERNAL;
CREATE INDEX client_load_load ON client_load (load_id);
CREATE UNLOGGED TABLE dead_letter_load (LIKE dead_letter INCLUDING DEFAULTS, load_id bigint NOT NULL);

-- No longer needed: every row is appended.
ALTER TABLE horizon DROP COLUMN newest_minute;
