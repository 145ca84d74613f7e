#!/usr/bin/env bash
# Brings images of your own to monopod, without a registry.
#
#   images.sh ARCHIVE...                                              archives of images (OCI or docker), with their names in them
#   images.sh --registry R --version V --etcd-version V DIRECTORY     static programs: kube-apiserver, kube-controller-manager,
#                                                                     kube-scheduler and etcd, or some of them
#
# Archives are copied to PRELOAD_DIR (/var/lib/monopod/images), which is to be one of the preloadDirectories of monopod.
# Programs are packed first, each as R/PROGRAM:V, by examples/mkimage (MKIMAGE names it built; else Go builds it).
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "registry version etcd-version image" "$@"
check_paths
[ ${#rest[@]} -gt 0 ] || misused "name archives, or a directory with programs"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

mkimage=${MKIMAGE:-}
pack() { # PROGRAM
	local name=${1##*/} ref
	ref=$(image_of "$name")
	[ -n "$ref" ] || misused "what is the image with $1 to be called? Say --registry with --version (of etcd: --etcd-version), or --image $name=IMAGE"
	check_image "$ref"
	[ -x "$1" ] || die "$1 is no program"
	if [ -z "$mkimage" ]; then
		need go
		mkimage=$work/mkimage
		(cd "$here/../.." && CGO_ENABLED=0 go build -o "$mkimage" ./examples/mkimage)
	fi
	"$mkimage" -o "$work/${ref//[\/:]/_}.tar" -name "$ref" "$1"
	echo "$ref has $1"
	archives+=("$work/${ref//[\/:]/_}.tar")
}

archives=()
for path in "${rest[@]}"; do
	if [ -d "$path" ]; then
		found=
		for c in "${components[@]}"; do
			[ ! -e "$path/$c" ] || { pack "$path/$c" && found=yes; }
		done
		[ "$found" ] || die "none of ${components[*]} is in $path"
	else
		[ -f "$path" ] || die "there is no $path"
		case $path in
		*.tar | *.tar.gz | *.tgz | *.tar.zst) archives+=("$path") ;;
		*) die "$path is no archive (.tar, .tar.gz, .tgz, .tar.zst), and no directory" ;;
		esac
	fi
done
directory "$etc"
directory "$preload"
for archive in "${archives[@]}"; do
	target=$preload/${archive##*/}
	[ "$archive" -ef "$target" ] && continue
	read_record
	ours=
	if [ ! -e "$target" ] || as_made "$target"; then ours=yes; fi
	# a reader must never see half an archive
	cp "$archive" "$preload/.${archive##*/}"
	mv "$preload/.${archive##*/}" "$target"
	[ -z "$ours" ] || made "$target"
done
echo "archives in $preload: ${archives[*]##*/}"
