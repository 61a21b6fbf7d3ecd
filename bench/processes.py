"""What the kernel says about a process."""

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """What it has used so far, in user and in system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory in MB, and its proportional part: pages shared by n processes count 1/n."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        found[name] = int(value) * 1024 / 1e6
    return found["Rss:"], found["Pss:"]
