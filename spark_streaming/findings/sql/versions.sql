-- Judges the client versions that are in a list of old or bad versions.
INSERT INTO finding_judged (
    kind, holds, score, severity, cluster_id, client_software_name, client_software_version, summary, evidence
)
WITH verdicts AS (
    SELECT * FROM unnest(
        %(names)s::text[], %(versions)s::text[], %(severities)s::text[], %(ranks)s::int[],
        %(reasons)s::jsonb[], %(sources)s::jsonb[]
    ) AS verdict (client_software_name, client_software_version, severity, rank, reasons, sources)
),
used AS (
    SELECT
        client.cluster_id,
        client_software_name,
        client_software_version,
        count(*) AS clients,
        count(DISTINCT client_id) AS client_ids,
        (array_agg(DISTINCT client_id ORDER BY client_id))[1:10] AS some_client_ids
    FROM finding_client AS client
    JOIN finding_cluster ON finding_cluster.cluster_id IS NOT DISTINCT FROM client.cluster_id
    WHERE last_seen > %(now)s - make_interval(mins => %(longest)s) AND state <> 'left'
    GROUP BY client.cluster_id, client_software_name, client_software_version
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
    )
FROM used JOIN verdicts USING (client_software_name, client_software_version)
