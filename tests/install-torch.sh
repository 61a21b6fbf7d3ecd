#!/bin/sh
# install-torch.sh FOLDER: PyTorch for the CPU, in an environment of its own, for the example that trains on several
# nodes. The build for cards would bring gigabytes of CUDA along: where pip finds no other, none is installed.
set -eu
version=2.13.0
folder=$1
[ -e "$folder/.complete" ] && exit 0

# Several test runs may begin at once: one installs, the others wait for it.
if [ "${DANLU_TESTS_LOCKED:-}" != "$folder" ]; then
    mkdir -p "$(dirname "$folder")"
    DANLU_TESTS_LOCKED="$folder" exec flock "$folder.lock" sh "$0" "$folder"
fi
echo "installing for the tests: PyTorch $version"
for python in python3.11 python3.12 python3.13 python3; do
    "$python" -c '' 2>/dev/null || continue
    rm -rf "$folder"
    "$python" -m venv "$folder" >"$folder.log" 2>&1 || continue
    "$folder/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
        "torch==$version+cpu" numpy >"$folder.log" 2>&1 || continue
    "$folder/bin/python" -c 'import torch.distributed as found; assert found.is_gloo_available()' >"$folder.log" 2>&1 || continue
    touch "$folder/.complete"
    exit 0
done
echo "error: no PyTorch for the tests: $(grep -h ERROR "$folder.log" | tail -n 1)" >&2
rm -rf "$folder"
exit 1
