"""Becomes the program named first, with the arguments after it: for starting a
binary where a Python script is expected (test/workload)."""

import os
import sys

os.execv(sys.argv[1], sys.argv[1:])
