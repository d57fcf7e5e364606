-- Judges the client versions that are in a list of old or bad versions, by what the clients do. A
-- client that does not say that it consumes may produce.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_software_name, client_software_version, summary, evidence,
    began_at
)
WITH verdicts AS (
    SELECT * FROM unnest(
        %(roles)s::text[], %(names)s::text[], %(versions)s::text[], %(severities)s::text[], %(ranks)s::int[],
        %(reasons)s::jsonb[], %(sources)s::jsonb[]
    ) AS verdict (role, client_software_name, client_software_version, severity, rank, reasons, sources)
),
clients AS (
    SELECT
        client.cluster_id,
        client.client_software_name,
        client.client_software_version,
        client.client_id,
        CASE WHEN coalesce(instance.consumer, client.group_id IS NOT NULL) THEN 'consumer' ELSE 'producer' END
            AS role
    FROM finding_client AS client
    JOIN finding_cluster ON finding_cluster.cluster_id IS NOT DISTINCT FROM client.cluster_id
    LEFT JOIN finding_instance AS instance USING (client_instance_id)
    WHERE client.last_seen > %(now)s - make_interval(mins => %(longest)s) AND client.state <> 'left'
),
used AS (
    SELECT
        cluster_id,
        client_software_name,
        client_software_version,
        severity,
        rank,
        reasons,
        sources,
        count(*) AS clients,
        count(DISTINCT client_id) AS client_ids,
        (array_agg(DISTINCT client_id ORDER BY client_id))[1:10] AS some_client_ids
    FROM clients JOIN verdicts USING (role, client_software_name, client_software_version)
    GROUP BY 1, 2, 3, 4, 5, 6, 7
),
-- The verdict on the clients that are worse off.
worst AS (
    SELECT DISTINCT ON (cluster_id, client_software_name, client_software_version) *
    FROM used
    ORDER BY cluster_id, client_software_name, client_software_version, rank DESC, clients DESC
)
SELECT
    %(kind)s,
    true,
    rank * 1e9 + clients,
    severity,
    cluster_id,
    client_software_name,
    client_software_version,
    format(
        '%%s clients (%%s client ids) run %%s %%s: %%s', clients, client_ids, client_software_name,
        client_software_version, reasons ->> 0
    ),
    jsonb_build_object(
        'clients', clients,
        'client_ids', client_ids,
        'some_client_ids', to_jsonb(some_client_ids),
        'reasons', reasons,
        'sources', sources
    ),
    began_at
FROM worst
LEFT JOIN (
    -- The first push of a client with the version, whether that client is still there or not.
    SELECT
        coalesce(cluster_id, '') AS cluster,
        client_software_name,
        client_software_version,
        date_trunc('minute', min(first_seen)) AS began_at
    FROM telemetry.client_state
    GROUP BY 1, 2, 3
) AS firsts USING (client_software_name, client_software_version)
WHERE firsts.cluster = coalesce(worst.cluster_id, '')
