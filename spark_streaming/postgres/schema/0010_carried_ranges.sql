-- Counts that are carried forward are stored for a range of minutes, and those of a client's newest
-- push only in its state.

-- The last minute of a range; null for one minute.
ALTER TABLE contribution ADD COLUMN until bigint;
CREATE INDEX contribution_ranges ON contribution (client_key, minute) WHERE until IS NOT NULL;

-- The first minute of those up to covered_until that have the counts of the state. Until now, such
-- minutes have contributions of their own.
ALTER TABLE client_state ADD COLUMN carried_from bigint;
UPDATE client_state SET carried_from = covered_until + 1 WHERE covered_until IS NOT NULL;
