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

-- The views add up the rows of a key and minute that count. The subquery depends on the series, so
-- that it reads the rows of a panel's series only.
DO $$
DECLARE
    points constant text := format('least(sum(points), %s)::bigint AS points', (1::bigint << 62) - 1);
    total constant text :=
        'sum(CASE WHEN abs(%1$s) > 1e300 THEN sign(%1$s) * 1e300 ELSE %1$s END) AS %1$s';
    counts constant text := 'load_id NOT IN (SELECT load_id FROM telemetry.pending_load)';
    statistics constant text := $columns$
            r.points,
            r.sum,
            r.min,
            r.max,
            -- Within the extremes, in spite of rounding and of rows without pushed_sum.
            greatest(r.min, least(r.max, coalesce(r.pushed_sum, r.sum) / nullif(r.points, 0))) AS avg,
            CASE WHEN s.rule = 0 THEN r.sum / 60 END AS rate
    $columns$;
    fleet constant text := 's.metric, s.cluster_id, s.client_software_name, s.client_software_version';
    dimensions constant text := fleet
        || ', s.client_id, s.principal, s.group_id, s.topic, s.node_id, s.node_role';
    added constant text := ', s.reason, s.error, s.acks, s.partition';
    minutes constant text :=
        '(SELECT bucket, ' || points || ', ' || format(total, 'sum') || ', min(min) AS min, max(max) AS max, '
        || format(total, 'pushed_sum') || ' FROM %1$s WHERE %2$s = s.%2$s AND ' || counts || ' GROUP BY bucket)';
BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW metric_1m AS SELECT r.bucket, ' || dimensions || ',' || statistics || added
        || ' FROM series s CROSS JOIN LATERAL ' || format(minutes, 'rollup_1m', 'series_id')
        || ' AS r WHERE NOT s.breakdown';
    EXECUTE 'CREATE OR REPLACE VIEW topic_1m AS SELECT r.bucket, ' || dimensions || ',' || statistics || added
        || ' FROM series s CROSS JOIN LATERAL ' || format(minutes, 'rollup_1m', 'series_id')
        || ' AS r WHERE s.topic IS NOT NULL';
    EXECUTE 'CREATE OR REPLACE VIEW fleet_1m AS SELECT r.bucket, ' || fleet || ',' || statistics
        || ' FROM fleet_series s CROSS JOIN LATERAL ' || format(minutes, 'fleet_rollup_1m', 'fleet_id') || ' AS r';
    EXECUTE 'CREATE OR REPLACE VIEW spread_1m AS SELECT r.bucket, ' || fleet || ',
        CASE
            WHEN r.spread = -32768 THEN 0
            WHEN r.spread < -8000 THEN -power(2::float8, (-20000 - r.spread + 0.5::float8) / 8)
            ELSE power(2::float8, (r.spread + 0.5::float8) / 8)
        END AS value,
        r.observations
        FROM fleet_series s CROSS JOIN LATERAL (
            SELECT bucket, spread, least(sum(observations), ' || ((1::bigint << 62) - 1) || ')::bigint AS observations
            FROM fleet_spread_1m WHERE fleet_id = s.fleet_id AND ' || counts || ' GROUP BY bucket, spread
        ) AS r WHERE r.observations <> 0';
    EXECUTE 'CREATE OR REPLACE VIEW histogram_1m AS SELECT r.bucket, ' || dimensions || ', r.lower, r.upper, r.count'
        || added || ' FROM series s CROSS JOIN LATERAL (
            SELECT bucket, lower, upper, least(sum(count), ' || ((1::bigint << 62) - 1) || ')::bigint AS count
            FROM rollup_histogram_1m WHERE series_id = s.series_id AND ' || counts || '
            GROUP BY bucket, lower, upper
        ) AS r WHERE NOT s.breakdown';
    EXECUTE 'CREATE OR REPLACE VIEW client_1m AS SELECT
            r.bucket,
            c.client_instance_id, c.client_id, c.client_software_name, c.client_software_version,
            c.principal, c.group_id, c.cluster_id, r.broker_id, r.client_source_address,
            r.pushes, r.points, r.terminating,
            r.connections_created, r.throttle_ms_max,
            r.request_latency_ms_sum, r.request_latency_points, r.request_latency_ms_max,
            r.request_latency_ms_sum / nullif(r.request_latency_points, 0) AS request_latency_ms,
            r.poll_idle_ratio_sum, r.poll_idle_ratio_points,
            r.poll_idle_ratio_sum / nullif(r.poll_idle_ratio_points, 0) AS poll_idle_ratio,
            r.rebalances, r.rebalance_ms, r.assigned_partitions, r.records, r.bytes, r.record_errors,
            r.push_interval_ms_sum
        FROM client_state c CROSS JOIN LATERAL (
            SELECT bucket, least(sum(pushes), ' || ((1::bigint << 62) - 1) || ')::bigint AS pushes, ' || points || ',
                bool_or(terminating) AS terminating,
                (array_agg(broker_id ORDER BY load_id DESC) FILTER (WHERE broker_id IS NOT NULL))[1] AS broker_id,
                (
                    array_agg(client_source_address ORDER BY load_id DESC)
                    FILTER (WHERE client_source_address IS NOT NULL)
                )[1] AS client_source_address,
                ' || format(total, 'connections_created') || ', max(throttle_ms_max) AS throttle_ms_max,
                ' || format(total, 'request_latency_ms_sum') || ', ' || format(total, 'request_latency_points') || ',
                max(request_latency_ms_max) AS request_latency_ms_max,
                ' || format(total, 'poll_idle_ratio_sum') || ', ' || format(total, 'poll_idle_ratio_points') || ',
                ' || format(total, 'rebalances') || ', ' || format(total, 'rebalance_ms') || ',
                max(assigned_partitions) AS assigned_partitions,
                ' || format(total, 'records') || ', ' || format(total, 'bytes') || ', ' || format(total, 'record_errors') || ',
                CASE
                    WHEN count(push_interval_ms_sum) > 0
                    THEN least(sum(push_interval_ms_sum), ' || ((1::bigint << 62) - 1) || ')::bigint
                END AS push_interval_ms_sum
            FROM client_rollup_1m WHERE client_key = c.client_key AND ' || counts || ' GROUP BY bucket
        ) AS r';
END $$;
