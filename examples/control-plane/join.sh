#!/usr/bin/env bash
# Waits until this machine is a node of the control plane that runs on it: until the API server says that the Node is Ready,
# and shows the four pods.
#
#   join.sh [--node NAME] [--timeout D]   NAME is the nodeName of monopod (the name of the host); how long to wait (10m)
#
# Who the node is says KUBERNETES_DIR/kubelet.conf, which pki.sh or kubeadm make. What monopod does with it is up to its
# configuration: kubeconfig, port, authentication and authorization, as the README has them. They may be there from the start.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "node timeout" "$@"
no_more
check_paths
check_timeout
need "$monopod" curl
need_manifests
need_daemon
[ -n "$node" ] || node=$(hostname)
node=${node,,}
for file in kubelet.conf admin.conf; do
	[ -e "$etc/$file" ] || die "there is no $etc/$file; pki.sh or kubeadm make it"
done

umask 077
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
of_admin() { sed -n "s/^    $1: //p" "$etc/admin.conf"; }
of_admin certificate-authority-data | base64 -d >"$work/ca"
of_admin client-certificate-data | base64 -d >"$work/crt"
of_admin client-key-data | base64 -d >"$work/key"
server=$(of_admin server)

# shows PATH TEXT says that the API server has something there with that in it.
shows() {
	curl -sS --fail --noproxy '*' --max-time 15 --cacert "$work/ca" --cert "$work/crt" --key "$work/key" "$server$1?pretty=false" 2>"$work/errors" | grep -qF "$2"
}

# await WHAT PATH TEXT waits until the API server shows it.
await() {
	until shows "$2" "$3"; do
		if [ "$SECONDS" -ge "$timeout_seconds" ]; then
			echo "${0##*/}: $1 not within $timeout; monopod needs kubeconfig: $etc/kubelet.conf in its configuration. $(cat "$work/errors")" >&2
			"$monopod" events >&2 || true
			exit 2
		fi
		sleep 1
	done
}

await "the node $node is Ready:" "/api/v1/nodes/$node" '"type":"Ready","status":"True"'
for c in "${components[@]}"; do
	await "the pod $c-$node is shown:" "/api/v1/namespaces/kube-system/pods/$c-$node" '"phase":"Running"'
done
echo "this machine is the node $node of $server"
