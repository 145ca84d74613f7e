# shellcheck shell=bash disable=SC2034
# What the scripts of this directory share. It is sourced, not run.
#
# Where things are. Each can be set by a variable of the environment.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
etc=${KUBERNETES_DIR:-/etc/kubernetes}          # keys, certificates, kubeconfigs and manifests, as kubeadm has them
data=${ETCD_DIR:-/var/lib/etcd}                 # what etcd stores
preload=${PRELOAD_DIR:-/var/lib/monopod/images} # archives of images: one of the preloadDirectories of monopod
monopod=${MONOPOD:-monopod}
manifests=$etc/manifests
pki=$etc/pki
record=$etc/.made-by-monopod-example # what these scripts have made
components=(etcd kube-apiserver kube-controller-manager kube-scheduler)

# What is written by render.sh, and said by flags.
address=${ADDRESS:-}
node=${NODE_NAME:-}
registry=${REGISTRY:-}
version=
etcd_version=
service_cidr=10.96.0.0/12
ready_deadline=${READY_DEADLINE:-5m}
soak=${SOAK:-30s}
timeout=10m
timeout_seconds=600
purge=
rest=()
declare -A image=()
declare -A what_was_made=()
not_noted=()

die() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# misused is about the command line.
misused() {
	echo "${0##*/}: $*; ${0##*/} --help says more" >&2
	exit 2
}

# help prints the comment at the head of a script.
help() {
	sed -n '2,/^[^#]/ { s/^# \{0,1\}//p }' "$0"
	exit 0
}

# flags "NAME..." "$@" reads the flags that the script takes, as --NAME VALUE or --NAME=VALUE; what is no flag is left in rest.
flags() {
	local known=" $1 " name value
	shift
	while [ $# -gt 0 ]; do
		name=${1%%=*} name=${name#--}
		case $1 in
		-h | --help) help ;;
		--help=*) misused "--help takes no value" ;;
		--*) [[ $known == *" $name "* ]] || misused "there is no flag --$name" ;;
		-*) misused "there is no flag $1" ;;
		*) rest+=("$1") && shift && continue ;;
		esac
		case $1 in
		--purge) value=yes ;;
		--purge=*) misused "--purge takes no value" ;;
		*=*) value=${1#*=} ;;
		*) value=${2:-} && shift ;;
		esac
		[ -n "$value" ] || misused "--$name needs a value"
		shift
		case $name in
		image) named "$value" ;;
		*) printf -v "${name//-/_}" %s "$value" ;;
		esac
	done
}

# named takes COMPONENT=IMAGE.
named() {
	local component=${1%%=*}
	[[ $1 == *=?* && " ${components[*]} " == *" $component "* ]] ||
		misused "--image takes COMPONENT=IMAGE, where the component is one of ${components[*]}, not $1"
	image[$component]=${1#*=}
}

# no_more refuses arguments that are no flags.
no_more() { [ ${#rest[@]} -eq 0 ] || misused "${rest[0]} is one argument too many"; }

# check WHAT VALUE PATTERN refuses what cannot be put into a file as it is.
check() { [[ $2 =~ ^($3)$ ]] || die "$2 is not $1"; }

check_paths() {
	local path
	for path in "$etc" "$data" "$preload"; do
		check "an absolute path of plain characters" "$path" '(/[A-Za-z0-9._-]+)+'
	done
}

# check_timeout refuses what is no time, or none at all, and fills in timeout_seconds.
check_timeout() {
	check "a duration" "$timeout" '([0-9]+(ms|s|m|h))+'
	local left=$timeout ms=0
	local -A unit=([ms]=1 [s]=1000 [m]=60000 [h]=3600000)
	while [[ $left =~ ^([0-9]+)(ms|s|m|h)(.*)$ ]]; do
		ms=$((ms + 10#${BASH_REMATCH[1]} * unit[${BASH_REMATCH[2]}]))
		left=${BASH_REMATCH[3]}
	done
	[ "$ms" -gt 0 ] || die "within $timeout nothing can be done"
	timeout_seconds=$(((ms + 999) / 1000))
}

# check_machine fills in and checks the address and the name of this machine.
check_machine() {
	[ -n "$address" ] || address=$(ip -4 route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
	[ -n "$address" ] || die "this machine has no default route; say its address with --address"
	[ -n "$node" ] || node=$(hostname)
	node=${node,,}
	check "a name of a machine" "$node" '[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?'
	check "an IPv4 address" "$address" '((25[0-5]|(2[0-4]|1[0-9]|[1-9]|)[0-9])(\.|$)){4}'
	[[ $address != 127.* && $address != 0.0.0.0 ]] || die "$address is no address that kube-apiserver can advertise; say another one with --address"
	check "a range of Services (an IPv4 CIDR of /12 to /29)" "$service_cidr" '((25[0-5]|(2[0-4]|1[0-9]|[1-9]|)[0-9])[./]){4}(1[2-9]|2[0-9])'
}

# first_service is the address of the Service kubernetes: the first one of the range.
first_service() {
	local IFS=./ a b c d bits
	read -r a b c d bits <<<"$service_cidr"
	local n=$(((a << 24 | b << 16 | c << 8 | d) >> (32 - bits) << (32 - bits) | 1))
	echo "$((n >> 24)).$((n >> 16 & 255)).$((n >> 8 & 255)).$((n & 255))"
}

# image_of COMPONENT is the image that the flags name for it; empty: they name none.
image_of() {
	local tag=$version
	[ "$1" = etcd ] && tag=$etcd_version
	if [ -n "${image[$1]:-}" ]; then
		echo "${image[$1]}"
	elif [ -n "$registry" ] && [ -n "$tag" ]; then
		echo "$registry/$1:$tag"
	fi
}

check_image() { check "a name of an image" "$1" '[a-zA-Z0-9][a-zA-Z0-9._:/-]*[a-zA-Z0-9](@sha256:[0-9a-f]{64})?'; }

# need refuses to go on without a program.
need() {
	local program
	for program in "$@"; do
		command -v "$program" >/dev/null || die "the program $program is needed, and is not installed"
	done
}

# need_manifests refuses to go on without the four manifests.
need_manifests() {
	local c
	for c in "${components[@]}"; do
		[ -e "$manifests/$c.yaml" ] || die "there is no $manifests/$c.yaml; render.sh or kubeadm make it"
	done
}

# need_daemon refuses to go on without monopod.
need_daemon() { "$monopod" get pods -n kube-system >/dev/null; }

# carry_out has monopod run the manifests, and waits until they are Ready and no trial goes on: Ready is not all, what
# is on trial must stay so for its soak time. It returns 0, 1 for what has failed or was taken back, or 2 out of time.
# A daemon that does not answer, as one that is restarted, is asked again until then: no answer says nothing.
carry_out() {
	local c pod status=0 end=$((SECONDS + timeout_seconds))
	"$monopod" apply -f "$manifests" --wait --timeout "$timeout" || return
	for c in "${components[@]}"; do
		until pod=$(timeout 30 "$monopod" get pod -n kube-system "$c" -o json 2>&1) && [[ $pod != *'"monopod.dev/update":'* ]]; do
			if [ "$SECONDS" -ge "$end" ]; then
				[[ $pod == *'"monopod.dev/update":'* ]] || echo "$pod" >&2
				return 2
			fi
			sleep 1
		done
		[[ $pod != *'"monopod.dev/rollback":'* ]] || status=1
	done
	return "$status"
}

# identity PATH tells what was made here from what has taken its place: of a file it is the SHA-256 sum, of a directory
# the number of its inode and its time of birth. Manifests are edited, and stay what they are.
identity() {
	local sum
	case $1 in
	"$manifests"/*) echo manifest ;;
	*)
		if [ -d "$1" ]; then
			stat -c %i/%.9W "$1"
		else
			sum=$(sha256sum <"$1")
			echo "${sum%% *}"
		fi
		;;
	esac
}

# made notes what these scripts have made, for down.sh --purge: a line "IDENTITY PATH" each, the last one of a path counts.
made() {
	local path id
	for path in "$@"; do
		id=$(identity "$path")
		printf '%s %s\n' "$id" "$path" >>"$record"
	done
}

# read_record reads the lines of made into what_was_made.
read_record() {
	local id path
	what_was_made=()
	[ -e "$record" ] || return 0
	while read -r id path; do
		[ -z "$path" ] || what_was_made[$path]=$id
	done <"$record"
}

# as_made PATH says that a file or directory is there, and is the one that these scripts have made.
as_made() { [ -e "$1" ] && [ ! -L "$1" ] && [ "${what_was_made[$1]:-}" = "$(identity "$1")" ]; }

# directory makes one, and those above it, and notes those that were not there.
directory() {
	[ -d "$1" ] && return
	directory "$(dirname "$1")"
	mkdir -m "${2:-755}" "$1"
	not_noted+=("$1")
	if [ -d "$etc" ]; then # the record is in it
		made "${not_noted[@]}"
		not_noted=()
	fi
}

# publish TEMPORARY FILE puts a file in its place, whole or not at all, readable by root only. What is in the making has a
# name that is not read as a manifest, and is beside it: from another file system it could not be put there in one go.
publish() {
	local new
	new=$(dirname "$2")/.${2##*/}.new
	install -m 600 "$1" "$new"
	sync "$new"
	mv "$new" "$2"
	sync "$(dirname "$2")"
	made "$2"
}

# argument FILE NAME is the value of a flag in a manifest.
argument() { sed -n "s/^ *- --$2=//p" "$1"; }
