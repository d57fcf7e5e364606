"""Writes the files that are generated from the chart's values.yaml."""

import sys

from deploy.chart.values import ValuesError
from deploy.chart.written import write

try:
    write()
except ValuesError as error:
    sys.exit(str(error))
