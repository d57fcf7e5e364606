#!/opt/kafka-telemetry/bin/python -IS
"""The container's health check: does the receiver's process answer? Exit status 0 if so.

It asks ``/livez`` of ``KAFKA_TELEMETRY_URL``, which the commands of ``kafka-telemetry`` read too,
and where that is not set, of the default of ``rest.bind``. ``/readyz`` also needs the broker, which
a restart of this container would not bring back.
"""

import os
import ssl
import sys
import urllib.request

url = os.environ.get("KAFKA_TELEMETRY_URL", "http://127.0.0.1:8642").rstrip("/") + "/livez"
# It asks itself: whether the certificate names the loopback address says nothing of its health.
context = ssl._create_unverified_context()  # noqa: S323, SLF001 -- there is no public name for it
# A proxy of the environment is for destinations.
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
)
try:
    opener.open(url, timeout=4).close()
except (OSError, ValueError) as error:
    sys.exit(f"{url}: {error}")
