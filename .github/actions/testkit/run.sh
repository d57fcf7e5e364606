# Runs the test kit around a command: COMMAND, SCRIPT, CLIENTS, INSTALL, PORT, as action.yml describes them.
# The status is that of the kit, or of the command if only the command failed.
set -euo pipefail

folder=$(mktemp -d "${RUNNER_TEMP:-/tmp}/testkit.XXXXXX")
if [ -n "$INSTALL" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$INSTALL"
  PATH="$folder/venv/bin:$PATH"
fi

kafka-telemetry testkit --bind "127.0.0.1:$PORT" --bind "127.0.0.1:$((PORT + 1))" --script "$SCRIPT" \
  --clients "$CLIENTS" --report junit --badge "$folder/badge.json" >"$folder/report.xml" 2>"$folder/log" &
kit=$!
until grep -q "listens on" "$folder/log"; do
  kill -0 "$kit" 2>/dev/null || { cat "$folder/log" >&2; exit 2; }
  sleep 0.1
done

command=0
BOOTSTRAP_SERVERS="127.0.0.1:$PORT,127.0.0.1:$((PORT + 1))" bash -c "$COMMAND" || command=$?

kill -TERM "$kit"
verdict=0
wait "$kit" || verdict=$?
cat "$folder/log" >&2
{
  echo "report=$folder/report.xml"
  echo "badge=$folder/badge.json"
} >>"${GITHUB_OUTPUT:-/dev/null}"
python3 - "$folder/report.xml" >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}" <<'SUMMARY'
import sys
from xml.etree import ElementTree

for suite in ElementTree.parse(sys.argv[1]).getroot():
    print(f"### {suite.get('name')}: {suite.get('failures')} of {suite.get('tests')} checks failed\n")
    for case in suite:
        for failure in case.iter("failure"):
            print(f"- **{case.get('name')}**: {failure.get('message')}")
SUMMARY
[ "$verdict" -eq 0 ] || exit "$verdict"
exit "$command"
