#!/usr/bin/env bash
# Gives kubeadm's manifests the annotations by which monopod updates them as a group: in order, and taken back as a whole.
#
#   group.sh [--ready-deadline D] [--soak D]
#
# Only lines are added, to the files in KUBERNETES_DIR/manifests. Those that have them already stay as they are.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "ready-deadline soak" "$@"
no_more
check_paths
need_manifests
for duration in "$ready_deadline" "$soak"; do
	check "a duration" "$duration" '([0-9]+(ms|s|m|h))+'
done
order=0
for c in "${components[@]}"; do
	file=$manifests/$c.yaml
	if ! grep -q '^    monopod.dev/update-group:' "$file"; then
		lines="    monopod.dev/update-group: control-plane\n    monopod.dev/update-order: \"$order\"\n"
		lines+="    monopod.dev/auto-rollback: \"true\"\n    monopod.dev/ready-deadline: $ready_deadline\n    monopod.dev/soak: $soak"
		if grep -q '^  annotations:$' "$file"; then
			at='^  annotations:$'
		else
			at='^metadata:$' lines="  annotations:\n$lines"
		fi
		cp -p "$file" "$manifests/.$c.new"
		sed -i "/$at/a\\$lines" "$manifests/.$c.new"
		mv "$manifests/.$c.new" "$file"
	fi
	[ "$order" = 2 ] || order=$((order + 1))
done
echo "the manifests in $manifests are a group; up.sh carries that out"
