#!/bin/sh
# The story of three locations: zone-a at once, zone-b a delay after zone-a, zone-c a delay after zone-b, with three processes in each. Versions of a file reach them in this order. One process
# starts slowly, one is killed, one hangs, and one version cannot be loaded: it stays in zone-a.
#
#	story.sh [DELAY [STALL_TIMEOUT]]        5s and 3s if none is given; it needs a server, as `make run` starts one, and signalbox on the PATH
set -eu
delay=${1:-5s}
stall=${2:-3s}
track=${TRACK:-geo/story}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=
finish() {
	kill $pids 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

say() { printf '\n== %s\n' "$*"; }

# follow LOCATION ID [SESSION_TIMEOUT]: a process that loads what it is told, with load.sh, into a folder of its own.
follow() {
	mkdir -p "$work/$2"
	signalbox rollout follow "$track" --location "$1" --id "$2" --dir "$work/$2/kept" --session-timeout "${3:-30s}" --bad 9 --retry-min 100ms \
		-- sh "$here/load.sh" "$2" "$work/$2" >/dev/null &
	pids="$pids $!"
}

publish() { signalbox rollout publish "$track" "$here/airports-$1.csv"; }

# await PATTERN: until a line of the status matches.
await() { until signalbox rollout status "$track" --instances | grep -Eq "$1"; do sleep 0.1; done; }

signalbox rollout delete "$track" --force >/dev/null 2>&1 || true
signalbox rollout create "$track" --delay-from converged --stall-timeout "$stall" --auto-demote --location zone-a --location "zone-b:$delay" --location "zone-c:$delay"

touch "$work/slow" # what a-3 finds
for i in 1 2 3; do follow zone-a a-$i; done
for i in 1 2 3; do follow zone-b b-$i; done
for i in 1 2; do follow zone-c c-$i; done
follow zone-c c-3 2s
doomed=$!
await '^instances +9$'

say "version 1: a-3 starts slowly; it is a follower until it has loaded, and nobody waits for it"
publish 1
await '^zone-c +CONVERGED +1 '
rm "$work/slow"

say "version 2: c-3 is killed; zone-c waits until its session is over, and goes on"
await '^c-3 +zone-c +leader +1 '
kill -KILL $doomed
publish 2
await '^zone-c +CONVERGED +2 '

say "version 3 cannot be loaded: zone-a waits for another one, zone-b and zone-c never see it"
publish 3
await '^zone-a +REELECTION_PENDING +3 '
publish 4
await '^zone-c +CONVERGED +4 '

say "version 5: b-2 hangs; zone-b waits for it, and after the stall timeout goes on without it"
await '^b-2 +zone-b +leader +4 '
touch "$work/hang"
publish 5
await '^b-2 .*demoted'
await '^zone-c +CONVERGED +5 '

say "how it stands, and what each location had"
signalbox rollout status "$track"
for location in zone-a zone-b zone-c; do
	printf '\n%s\n' "$location"
	signalbox rollout history "$track" "$location"
done
