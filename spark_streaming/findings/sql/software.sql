-- The most used software versions of clients that are not gone.
SELECT client_software_name, client_software_version
FROM finding_client
WHERE
    last_seen > %(now)s - make_interval(mins => %(longest)s)
    AND state <> 'left'
    AND client_software_name IS NOT NULL
    AND client_software_version IS NOT NULL
GROUP BY client_software_name, client_software_version
ORDER BY count(*) DESC, client_software_name, client_software_version
LIMIT %(max_software)s
