#!/bin/sh
# Three instances on this machine, in the foreground: Ctrl-C stops them gracefully, and they come back as they were with the next start.
#
#   SIGNALBOX_BIN   the binary (default ./bin/signalbox)
#   CLUSTER_DIR     folder of the data, the logs and the join token (default ./signalbox-data/cluster)
#   CLUSTER_PORT    first of eleven ports on 127.0.0.1: clients, raft, admin of each, the console and locks by HTTP (default 7170, and
#                   7074 for locks by HTTP)
#   CLUSTER_WAIT    seconds until all three must be ready (default 60)
set -eu
bin=${SIGNALBOX_BIN:-./bin/signalbox}
dir=${CLUSTER_DIR:-./signalbox-data/cluster}
port=${CLUSTER_PORT:-7170}
limit=${CLUSTER_WAIT:-60}

command -v "$bin" >/dev/null || { echo "there is no $bin: run 'make build', or set SIGNALBOX_BIN" >&2; exit 1; }
umask 077
mkdir -p "$dir"
token=$dir/join-token
[ -s "$token" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$token"

address() { echo "127.0.0.1:$((port + $1))"; } # clients 0 3 6, raft 1 4 7, admin 2 5 8
http=127.0.0.1:7074
[ -z "${CLUSTER_PORT:-}" ] || http=$(address 10)
peers=$(address 1),$(address 4),$(address 7)
pids=

stop() {
	trap '' INT TERM HUP # what is sent twice must not cut it short
	for p in $pids; do kill -TERM "$p" 2>/dev/null || :; done
	for p in $pids; do wait "$p" || :; done
}
trap 'stop; exit 0' INT TERM HUP

for i in 1 2 3; do
	at=$(((i - 1) * 3))
	"$bin" serve --data "$dir/$i" --instance "local$i" --cluster local --peer "$peers" --join-token-file "$token" --replication-factor 3 \
		--listen "$(address $at)" --raft "$(address $((at + 1)))" --admin "$(address $((at + 2)))" --audit "$dir/$i.audit" 2>>"$dir/$i.log" &
	pids="$pids $!"
done

# The status shows an instance as Online once it serves.
tries=0
until [ "$("$bin" cluster status --endpoints "$(address 0),$(address 3),$(address 6)" --timeout 2s -o json 2>/dev/null | grep -o '"current": *"Online"' | wc -l)" -ge 3 ]; do
	for p in $pids; do
		if ! kill -0 "$p" 2>/dev/null; then
			echo "an instance has ended; the last lines of each log:" >&2
			for i in 1 2 3; do tail -n 3 "$dir/$i.log" >&2; done
			stop
			exit 1
		fi
	done
	tries=$((tries + 1))
	if [ "$tries" -gt $((limit * 5)) ]; then
		echo "not all instances are Online after $limit s; see the logs in $dir" >&2
		stop
		exit 1
	fi
	sleep 0.2
done
# With all votes and masters in their places one of three can be lost.
"$bin" cluster plan --until-done --endpoints "$(address 0),$(address 3),$(address 6)" --timeout "${limit}s" >/dev/null || { stop; exit 1; }

# Processes of their own, so that they outlive any of the instances.
SIGNALBOX_TOKEN_FILE= "$bin" console --endpoints "$(address 0),$(address 3),$(address 6)" --listen "$(address 9)" >/dev/null 2>>"$dir/console.log" &
pids="$pids $!"
SIGNALBOX_TOKEN_FILE= "$bin" http --endpoints "$(address 0),$(address 3),$(address 6)" --listen "$http" >/dev/null 2>>"$dir/http.log" &
pids="$pids $!"

cat <<TOUR
Three instances run in $dir. In another terminal, paste:

  export SIGNALBOX_ENDPOINTS=$(address 0),$(address 3),$(address 6)
  $bin cluster status
  $bin cluster plan
  $bin lock backup -- sh -c 'echo holding the lock with token \$SIGNALBOX_TOKEN'
  kill -9 $(echo $pids | cut -d' ' -f1)
  $bin lock backup -- echo one of three is gone and the lock works on

By curl, without a client:

  curl -X POST -H Signalbox-Session:\$(cat /proc/sys/kernel/random/uuid || uuidgen) "http://$http/v1/locks/backup?ttl=30s"

Open http://$(address 9) to see who holds what, who waits and why.

Ctrl-C stops all of them.
TOUR

for p in $pids; do wait "$p" || :; done
