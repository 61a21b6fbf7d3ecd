#!/bin/sh
# Real components that the tests use, from the distribution's packages. Where they may not be installed,
# the tests that need them are skipped, and say so; with CI set, a missing one is a failure.
set -eu
missing=""
[ -n "$(find /usr/lib/postgresql -name initdb 2>/dev/null)" ] || missing="$missing postgresql"
command -v git >/dev/null || missing="$missing git"
[ -n "$(find /usr/lib -name libfaketime.so.1 2>/dev/null)" ] || missing="$missing faketime"
command -v openssl >/dev/null || missing="$missing openssl"
command -v setpriv >/dev/null || missing="$missing util-linux"
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "######################################################################"
    echo "## MISSING, and not root on Debian, so their tests will be SKIPPED: $missing"
    echo "######################################################################"
fi
