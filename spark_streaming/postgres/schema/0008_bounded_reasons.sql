-- Finds the series that differ only in reason or error, to bound their number.
CREATE INDEX series_reasons ON series (
    texts_digest(
        metric, cluster_id, client_software_name, client_software_version, client_id, principal, group_id,
        topic, node_id, node_role, acks, partition, breakdown::text
    )
) WHERE reason IS NOT NULL OR error IS NOT NULL;
