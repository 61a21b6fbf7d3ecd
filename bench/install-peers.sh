#!/bin/sh
# What danlu is measured against: task-spooler from Debian, HyperQueue from PyPI, the latter only for the bench itself.
# What may not be installed is said, and its figures are skipped.
cd "$(dirname "$0")/.." || exit 1

if ! command -v tsp >/dev/null; then
	if ! command -v apt-get >/dev/null; then
		echo "bench: no apt-get here; figures against task-spooler are skipped" >&2
	elif [ "$(id -u)" = 0 ]; then
		{ apt-get -qq update && apt-get -qq install -y task-spooler; } >/dev/null 2>&1 ||
			echo "bench: task-spooler could not be installed; its figures are skipped" >&2
	elif sudo -n true 2>/dev/null; then
		{ sudo -n apt-get -qq update && sudo -n apt-get -qq install -y task-spooler; } >/dev/null 2>&1 ||
			echo "bench: task-spooler could not be installed; its figures are skipped" >&2
	else
		echo "bench: not root; figures against task-spooler are skipped (apt install task-spooler)" >&2
	fi
fi

.venv/bin/python -m bench.place || exit 1
if ! bench/.venv/bin/python -c 'import hyperqueue' 2>/dev/null; then
	bench/.venv/bin/python -m pip -qq --disable-pip-version-check install 'hyperqueue>=0.20' ||
		echo "bench: hyperqueue could not be installed; its figures are skipped" >&2
fi
