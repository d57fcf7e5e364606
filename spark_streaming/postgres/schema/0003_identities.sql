-- Ids are assigned by the database. Before this migration they were hashes of labels, which clients
-- could forge. Pushes are matched to series by a keyed 128-bit hash (series_high, series_low;
-- SipHash-2-4 with the key in id_key), and to client instances by their text. Existing ids are
-- kept.

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

ALTER TABLE series ADD COLUMN series_high bigint, ADD COLUMN series_low bigint;
CREATE UNIQUE INDEX series_hash ON series (series_high, series_low);
-- Existing rows have no hash until their next push.
CREATE INDEX series_without_hash ON series (
    texts_digest(
        metric, cluster_id, client_software_name, client_software_version, client_id, principal, group_id,
        topic, node_id, node_role, breakdown::text
    )
) WHERE series_high IS NULL;

CREATE UNIQUE INDEX fleet_series_dimensions ON fleet_series (
    texts_digest(metric, cluster_id, client_software_name, client_software_version)
);

-- Existing instances may have the same text, if it was cut to be stored. Makes their texts unique.
UPDATE client_state later SET client_instance_id = left(later.client_instance_id, 200) || ' ' || later.client_key
WHERE EXISTS (
    SELECT FROM client_state first
    WHERE first.client_instance_id = later.client_instance_id AND first.client_key < later.client_key
);
DROP INDEX client_state_instance;
CREATE UNIQUE INDEX client_state_instance ON client_state (client_instance_id);

-- Existing ids are arbitrary 64-bit numbers. New ids count up from 1, or from the start of the
-- largest gap between existing ids.
CREATE FUNCTION pg_temp.first_free(name text, column_name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE found bigint;
BEGIN
    EXECUTE format(
        'SELECT since + 1 FROM (
            SELECT id AS since, lead(id, 1, 9223372036854775807) OVER (ORDER BY id) AS until
            FROM (SELECT 0::bigint AS id UNION SELECT %2$I FROM %1$I WHERE %2$I > 0) AS ids
        ) AS gaps ORDER BY until - since DESC LIMIT 1',
        name, column_name
    ) INTO found;
    RETURN found;
END $$;

DO $$
DECLARE kind record;
BEGIN
    FOR kind IN
        SELECT * FROM (
            VALUES ('series', 'series_id'), ('fleet_series', 'fleet_id'), ('client_state', 'client_key')
        ) AS kinds (table_name, id)
    LOOP
        EXECUTE format(
            'CREATE SEQUENCE %1$I AS bigint START WITH %2$s OWNED BY %3$I.%4$I',
            kind.table_name || '_id', pg_temp.first_free(kind.table_name, kind.id), kind.table_name, kind.id
        );
        EXECUTE format(
            'ALTER TABLE %1$I ALTER %2$I SET DEFAULT nextval(%3$L)',
            kind.table_name, kind.id, kind.table_name || '_id'
        );
    END LOOP;
END $$;
DROP FUNCTION pg_temp.first_free(text, text);
