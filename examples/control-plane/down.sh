#!/usr/bin/env bash
# Takes the control plane away: its pods, and with --purge all files that these scripts have made.
#
#   down.sh [--purge] [--timeout D]
#
# Without --purge the keys, the manifests and what etcd stores stay, so that up.sh goes on where it was. With --purge all
# that goes, and with it THE WHOLE CLUSTER. Files that were there before these scripts, such as kubeadm's, stay in any case,
# and so do keys, archives and a directory of etcd that have taken the place of those that these scripts made; they are named.
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
[ -e "$record" ] || die "these scripts have made nothing in $etc"
read_record
mapfile -t paths < <(printf '%s\n' "${!what_was_made[@]}" | sort -r)
rm -f "$record"
rest_of=
for path in "${paths[@]}"; do
	stays=
	if [ ! -e "$path" ] && [ ! -L "$path" ]; then
		continue
	elif [ -d "$path" ] && [ ! -L "$path" ] && [ "$path" != "$data" ]; then
		rmdir --ignore-fail-on-non-empty "$path"
		[ ! -d "$path" ] || stays="there is more in it than what these scripts have made"
	elif as_made "$path"; then
		rm -rf --one-file-system "$path"
	else
		stays="it is not what these scripts have made"
	fi
	if [ -n "$stays" ]; then
		echo "$path stays: $stays"
		rest_of="the rest of "
	fi
done
echo "${rest_of}what these scripts had made is gone"
