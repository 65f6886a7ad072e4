#!/bin/sh
# The story of three locations: SAS at once, MAN a delay after SAS, VLA a delay after MAN, with three processes in each. Versions of a file reach them in this order. One process
# starts slowly, one is killed, one hangs, and one version cannot be loaded: it stays in SAS.
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
signalbox rollout create "$track" --delay-from converged --stall-timeout "$stall" --auto-demote --location SAS --location "MAN:$delay" --location "VLA:$delay"

touch "$work/slow" # what sas-3 finds
for i in 1 2 3; do follow SAS sas-$i; done
for i in 1 2 3; do follow MAN man-$i; done
for i in 1 2; do follow VLA vla-$i; done
follow VLA vla-3 2s
doomed=$!
await '^instances +9$'

say "version 1: sas-3 starts slowly; it is a follower until it has loaded, and nobody waits for it"
publish 1
await '^VLA +CONVERGED +1 '
rm "$work/slow"

say "version 2: vla-3 is killed; VLA waits until its session is over, and goes on"
await '^vla-3 +VLA +leader +1 '
kill -KILL $doomed
publish 2
await '^VLA +CONVERGED +2 '

say "version 3 cannot be loaded: SAS waits for another one, MAN and VLA never see it"
publish 3
await '^SAS +REELECTION_PENDING +3 '
publish 4
await '^VLA +CONVERGED +4 '

say "version 5: man-2 hangs; MAN waits for it, and after the stall timeout goes on without it"
await '^man-2 +MAN +leader +4 '
touch "$work/hang"
publish 5
await '^man-2 .*demoted'
await '^VLA +CONVERGED +5 '

say "how it stands, and what each location had"
signalbox rollout status "$track"
for location in SAS MAN VLA; do
	printf '\n%s\n' "$location"
	signalbox rollout history "$track" "$location"
done
