"""Sums up what ``make browser`` ran and measured, and in which Chromium, into a file that is committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from framestow.benchmarking.result_files import write_result
from write_exhaustive_result import summary

if __name__ == "__main__":
    report, result = map(Path, sys.argv[1:])
    version = subprocess.run(["chromium", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    measured = {one.get("name"): json.loads(one.get("value")) for one in ElementTree.parse(report).iter("property")}
    write_result(result, {"browser": version, "files": summary(report), **measured}, "make browser")
