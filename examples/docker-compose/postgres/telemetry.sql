-- Run once, by the superuser, in a new server: a database that the roll-up owns, and a login that may only read.
\set ON_ERROR_STOP on
\set rollup_password `cat /run/secrets/rollup_password`
\set grafana_password `cat /run/secrets/grafana_postgres_password`

CREATE ROLE rollup LOGIN PASSWORD :'rollup_password';
-- The roll-up lets this role read its views (reader_role).
CREATE ROLE grafana_reader;
CREATE ROLE grafana LOGIN PASSWORD :'grafana_password' IN ROLE grafana_reader;
ALTER ROLE grafana SET default_transaction_read_only = on;
ALTER ROLE grafana SET statement_timeout = '30s';
-- Dashboards' queries have many branches that are never run: compiling them takes longer than they do.
ALTER ROLE grafana SET jit = off;

CREATE DATABASE telemetry OWNER rollup;
REVOKE ALL ON DATABASE telemetry FROM PUBLIC;
GRANT CONNECT ON DATABASE telemetry TO grafana;
