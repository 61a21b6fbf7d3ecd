#!/bin/sh
# Real components that the tests use, from the distribution's packages. Where they may not be installed,
# the tests that need them are skipped, and say so; with CI set, a missing one is a failure.
set -eu
# Daemons are outside the path of most people.
PATH="$PATH:/usr/sbin:/sbin"
missing=""
[ -n "$(find /usr/lib/postgresql -name initdb 2>/dev/null)" ] || missing="$missing postgresql"
command -v git >/dev/null || missing="$missing git"
[ -n "$(find /usr/lib -name libfaketime.so.1 2>/dev/null)" ] || missing="$missing faketime"
command -v openssl >/dev/null || missing="$missing openssl"
command -v setpriv >/dev/null || missing="$missing util-linux"
command -v bindfs >/dev/null || missing="$missing bindfs"
for package in slurmctld slurmd slurmdbd; do
    command -v "$package" >/dev/null || missing="$missing $package"
done
command -v squeue >/dev/null || missing="$missing slurm-client"
command -v munged >/dev/null || missing="$missing munge"
command -v mariadbd >/dev/null || missing="$missing mariadb-server"
command -v ip >/dev/null || missing="$missing iproute2"
command -v pgrep >/dev/null || missing="$missing procps"
command -v shellcheck >/dev/null || missing="$missing shellcheck"
[ -n "$(find /usr/lib -name accounting_storage_mysql.so 2>/dev/null)" ] || missing="$missing slurm-wlm-mysql-plugin"

say_missing() {
    echo "######################################################################"
    echo "## MISSING, $1, so their tests will be SKIPPED: $2"
    echo "######################################################################"
}
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    [ "$(id -u)" = 0 ] || say_missing "because this is not root" "real Slurm clusters"
    [ -z "$missing" ] || say_missing "and not root on Debian" "$missing"
    exit 0
fi
cache=/var/cache/danlu-tests
mkdir -p "$cache"
if [ -n "$missing" ]; then
    echo "installing for the tests:$missing"
    # Several test runs may begin at once. What packages start in the background does not keep the lock.
    # shellcheck disable=SC2086,SC2016  # a list of packages
    flock --close "$cache/packages.lock" sh -c 'apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends "$@"' \
        sh $missing >/dev/null
fi
sh "$(dirname "$0")/install-torch.sh" "$cache/torch" || say_missing "see the line above" "PyTorch"
# What the older Slurm does not say, a newer one beside it does.
case "$(slurmctld -V)" in *" 22."* | *" 23.0"*)
    sh "$(dirname "$0")/slurm/install-newer.sh" "$cache/slurm-newer" ||
        say_missing "see the line above" "a newer Slurm"
    ;;
esac
