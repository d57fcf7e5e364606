#!/opt/kafka-telemetry/bin/python -IS
"""The container's health check: exit status 0 if the receiver answers.

It requests ``/livez`` of ``KAFKA_TELEMETRY_URL``, which the commands of ``kafka-telemetry`` read
too, or of the default of ``rest.bind``. ``/readyz`` also needs the broker, which a restart of this
container would not repair.
"""

import os
import ssl
import sys
import urllib.request

url = os.environ.get("KAFKA_TELEMETRY_URL", "http://127.0.0.1:8642").rstrip("/") + "/livez"
# The certificate need not name the loopback address for a healthy receiver.
context = ssl._create_unverified_context()  # noqa: S323, SLF001 -- there is no public name for it
# A proxy in the environment is for destinations only.
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
)
try:
    opener.open(url, timeout=4).close()
except (OSError, ValueError) as error:
    sys.exit(f"{url}: {error}")
