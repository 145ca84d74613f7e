#!/usr/bin/env bash
# Has monopod run the manifests in KUBERNETES_DIR/manifests (/etc/kubernetes/manifests), waits until they are Ready, and asks
# each component how it is. The manifests are those of render.sh, or kubeadm's as they are.
#
#   up.sh [--timeout D]   how long to wait (10m)
#
# The daemon, `monopod run`, must be there. The manifests are given to it with `monopod apply`, so they run after a reboot too.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags timeout "$@"
no_more
check_paths
check_timeout
need "$monopod" curl
need_manifests
need_daemon
"$monopod" validate "$manifests" >/dev/null
carry_out || {
	status=$?
	"$monopod" why >&2 || true
	exit $status
}
exec "$here/health.sh"
