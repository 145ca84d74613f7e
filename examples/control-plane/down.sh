#!/usr/bin/env bash
# Takes the control plane away: its pods, and with --purge all files that these scripts have made.
#
#   down.sh [--purge] [--timeout D]
#
# Without --purge the keys, the manifests and what etcd stores stay, so that up.sh goes on where it was. With --purge all
# that goes, and with it THE WHOLE CLUSTER. Files that were there before these scripts, such as kubeadm's, stay in any case.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "purge timeout" "$@"
no_more
check_paths
check_timeout
need "$monopod"
"$monopod" delete pod -n kube-system "${components[@]}" --ignore-not-found --timeout "$timeout"
if [ -z "$purge" ]; then
	echo "the pods are gone; $etc and $data stay, and down.sh --purge removes what these scripts made there"
	exit 0
fi
record=$etc/.made-by-monopod-example
[ -e "$record" ] || die "these scripts have made nothing in $etc"
mapfile -t files < <(sort -ru "$record")
rm -f "$record"
for file in "${files[@]}"; do
	case $file in
	"$data") rm -rf --one-file-system "$file" ;;
	*) if [ -d "$file" ]; then rmdir --ignore-fail-on-non-empty "$file"; else rm -f "$file"; fi ;;
	esac
done
echo "what these scripts had made is gone"
