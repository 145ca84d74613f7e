#!/usr/bin/env bash
# Runs the hello example with a monopod of its own: own directories, own subnet. Ctrl-C removes all of it.
# Called by `make run`, which has built bin/monopod and .cache/hello/images/hello.tar.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$PWD/.cache/hello
state=/run/monopod-hello
export MONOPOD_SOCKET=$state/monopod.sock
[ "$(id -u)" = 0 ] || { echo "make run needs root: it makes containers and networks" >&2; exit 1; }

rm -rf "$work/manifests" "$work/logs"
mkdir -p "$work/manifests" "$state"
cp examples/hello/manifests/*.yaml "$work/manifests/"
cat >"$work/config.yaml" <<YAML
staticPodPath: $work/manifests
rootDirectory: $work/root
stateDirectory: $state
podLogsDir: $work/logs/pods
preloadDirectories: [$work/images]
podCIDR: 10.86.0.0/24
cgroupRoot: /monopod-hello
evictionHard: {memory.available: 10Mi}
YAML

start() {
	# in a session of its own: Ctrl-C must reach this script first
	setsid bin/monopod run --config "$work/config.yaml" >>"$work/monopod.log" 2>&1 &
	agent=$!
}

finish() {
	trap '' INT TERM
	echo
	kill "$agent" 2>/dev/null || true
	wait "$agent" 2>/dev/null || true
	# it removes also what was applied, and what runs have left
	if ! bin/monopod uninstall --yes --config "$work/config.yaml"; then
		cp "$work/monopod.log" .cache/hello.log
		echo "something is left behind; try again: bin/monopod uninstall --config $work/config.yaml" >&2
		exit 1
	fi
	cp "$work/monopod.log" .cache/hello.log
	rm -rf --one-file-system "$work/root" "$work/logs" "$work/manifests" "$work/cni" "$work/monopod.log" "$state"
	echo "nothing is left behind but the log in .cache/hello.log"
}
rm -f "$work/monopod.log"
start
trap finish EXIT
trap 'exit 0' INT TERM

ready() {
	kill -0 "$agent" 2>/dev/null || { cat "$work/monopod.log" >&2; echo "monopod did not start" >&2; exit 1; }
	# into a variable: a pipe to grep -q breaks when grep has seen enough, and pipefail takes that for a failure
	local pods
	pods=$(bin/monopod get pods 2>/dev/null) || return 1
	grep -Eq '^(default +)?web +1/1 +Running' <<<"$pods" &&
		grep -Eq '^(default +)?pair +2/2 +Running' <<<"$pods" &&
		(exec 3<>/dev/tcp/127.0.0.1/18080) 2>/dev/null
}
up=
for _ in $(seq 600); do
	if ready; then
		up=1
		break
	fi
	sleep 0.1
done
[ "$up" ] || { bin/monopod get pods; tail -n 20 "$work/monopod.log"; echo "the pods did not become ready within a minute" >&2; exit 1; }

echo
bin/monopod get pods -o wide
cat <<TEXT

  open     http://127.0.0.1:18080/
  edit     $work/manifests/web.yaml   (save, and only that container is replaced)
  remove   rm $work/manifests/crash.yaml
  add      copy any Pod manifest into $work/manifests
  watch    MONOPOD_SOCKET=$MONOPOD_SOCKET bin/monopod get pods -w
  logs     MONOPOD_SOCKET=$MONOPOD_SOCKET bin/monopod logs -f pair -c reader
  why      MONOPOD_SOCKET=$MONOPOD_SOCKET bin/monopod why crash

Ctrl-C stops and removes everything.
TEXT
wait "$agent" || true
