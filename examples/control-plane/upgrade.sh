#!/usr/bin/env bash
# Changes the images in the manifests, and has monopod carry that out: etcd, then kube-apiserver, then the others, each when
# those before it are Ready. If one does not become Ready, or does not stay so, monopod takes all of them back; then the
# manifests are put back too, and the exit code is 1.
#
#   upgrade.sh --version V                   the tag of kube-apiserver, kube-controller-manager, kube-scheduler
#   upgrade.sh --etcd-version V              the tag of etcd
#   upgrade.sh --image COMPONENT=IMAGE ...   a whole name
#
#   --timeout D   how long to wait for all of it (10m); when it is over the exit code is 2, and the upgrade goes on
#
# What is in order and taken back is what has the annotations of render.sh; group.sh gives them to kubeadm's manifests.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "version etcd-version image timeout" "$@"
no_more
check_paths
check_timeout
need "$monopod" curl
need_manifests
[ -n "$version$etcd_version${image[*]}" ] || misused "what is to be changed? Say --version, --etcd-version or --image"
need_daemon

# next IMAGE COMPONENT is the image that it is to have.
next() {
	local tag=$version
	[ "$2" = etcd ] && tag=$etcd_version
	if [ -n "${image[$2]:-}" ]; then
		echo "${image[$2]}"
	elif [ -z "$tag" ]; then
		echo "$1"
	else
		[[ $1 != *@* ]] || die "$2 has the image $1, which has a digest: say --image $2=IMAGE"
		[[ ${1##*/} == *:* ]] && echo "${1%:*}:$tag" || echo "$1:$tag"
	fi
}

new=$(mktemp -d)
old=$(mktemp -d)
trap 'rm -r "$new" "$old"' EXIT
cp -p "$manifests"/*.yaml "$old"
cp -p "$manifests"/*.yaml "$new"
for c in "${components[@]}"; do
	was=$(sed -n 's/^    image: //p' "$manifests/$c.yaml")
	[[ -n $was && $was != *$'\n'* ]] || die "$manifests/$c.yaml does not have one container"
	will=$(next "$was" "$c")
	check_image "$will"
	[ "$was" = "$will" ] && continue
	echo "$c: $was -> $will"
	sed -i "s|^\(    image: \).*|\1$will|" "$new/$c.yaml"
done
"$monopod" validate "$new" >/dev/null

# put DIRECTORY replaces the manifests, each whole.
put() {
	local c
	for c in "${components[@]}"; do
		cmp -s "$1/$c.yaml" "$manifests/$c.yaml" || { cp -p "$1/$c.yaml" "$manifests/.$c.new" && mv "$manifests/.$c.new" "$manifests/$c.yaml"; }
	done
}

put "$new"
status=0
carry_out || status=$?
case $status in
0) "$here/health.sh" || status=1 ;;
1)
	put "$old"
	# what is written is what runs again: this restarts nothing
	carry_out >/dev/null || die "and it could not be taken back within $timeout"
	die "the upgrade has failed; the manifests and all pods are as they were before"
	;;
*) echo "${0##*/}: not done within $timeout; it goes on, \`$monopod get pods -n kube-system\` shows how" >&2 ;;
esac
exit "$status"
