#!/usr/bin/env bash
# Asks each component how it is, at the addresses that are written in the manifests.
#
#   health.sh
#
# What is not well is asked again for a minute: who has lost the API server looks for it again after up to 30 s.
# kube-apiserver is asked with the authority of the cluster. The others answer to this machine only, and the two managers
# with certificates that they make themselves at each start.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "" "$@"
no_more
need curl
need_manifests

failed=
ask() { # COMPONENT URL [OPTIONS OF CURL...]
	local answer
	if answer=$(curl -sS --fail-with-body --noproxy '*' --max-time 15 --retry 60 --retry-max-time 60 --retry-all-errors --retry-delay 1 "${@:3}" "$2" 2>&1); then
		printf '%-24s %s is well\n' "$1" "$2"
	else
		printf '%-24s %s: %s\n' "$1" "$2" "$(tail -n 20 <<<"$answer")" >&2
		failed=yes
	fi
}

apiserver=$manifests/kube-apiserver.yaml
host=$(argument "$apiserver" advertise-address)
[[ $host != *:* ]] || host="[$host]"
local_only() { # COMPONENT PORT PATH
	local bind port
	bind=$(argument "$manifests/$1.yaml" bind-address) port=$(argument "$manifests/$1.yaml" secure-port)
	case $bind in
	"" | 0.0.0.0) bind=127.0.0.1 ;;
	*:*) bind="[$bind]" ;;
	esac
	ask "$1" "https://$bind:${port:-$2}$3" --insecure
}

ask etcd "$(argument "$manifests/etcd.yaml" listen-metrics-urls)/readyz"
ask kube-apiserver "https://$host:$(argument "$apiserver" secure-port)/readyz" --cacert "$pki/ca.crt"
local_only kube-controller-manager 10257 /healthz
local_only kube-scheduler 10259 /readyz
[ -z "$failed" ]
