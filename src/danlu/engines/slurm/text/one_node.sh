begin() {
  export DANLU_MASTER_ADDR=127.0.0.1 DANLU_MASTER_PORT=$port
  /bin/bash "$folder/inside" start "${command[@]}" < /dev/null 2>&3 3>&- &
  child=$!
}
tell() { kill -s "$1" -- "-$child"; }
warn() { notify "$1" || note "notice $1 was not sent: none of its processes catches it"; }
force() { :; }
count() { :; }
