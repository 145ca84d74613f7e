#!/usr/bin/env bash
# Makes the four manifests of a control plane with your images.
#
#   render.sh --registry R --version V --etcd-version V   R/kube-apiserver:V ..., R/etcd:V
#   render.sh --image COMPONENT=IMAGE ...                 an image as it is; it may be added to the above
#
#   --address IP, --node NAME   of this machine; what pki.sh was told
#   --service-cidr CIDR         of Services (10.96.0.0/12); what pki.sh was told
#   --ready-deadline D          within which a changed pod must be Ready (5m)
#   --soak D                    for how long it must stay so (30s)
#
# The manifests are written to KUBERNETES_DIR/manifests (/etc/kubernetes/manifests), where kubeadm has them. One that
# is there and says something else, as kubeadm's own, is not overwritten: upgrade.sh changes images.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "address node registry version etcd-version service-cidr ready-deadline soak image" "$@"
no_more
check_paths
check_machine
for duration in "$ready_deadline" "$soak"; do
	check "a duration" "$duration" '([0-9]+(ms|s|m|h))+'
done
umask 077
for c in "${components[@]}"; do
	image[$c]=$(image_of "$c")
	[ -n "${image[$c]}" ] || misused "which image has $c? Say --registry with --version and --etcd-version, or --image $c=IMAGE"
	check_image "${image[$c]}"
done

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
different=()
for c in "${components[@]}"; do
	sed -e '1,/^apiVersion:/ { /^#/d }' \
		-e "s|^\(    image: \).*|\1${image[$c]}|" \
		-e "s|192\.0\.2\.10|$address|g" \
		-e "s|--name=node\$|--name=$node|; s|--initial-cluster=node=|--initial-cluster=$node=|" \
		-e "s|--service-cluster-ip-range=.*|--service-cluster-ip-range=$service_cidr|" \
		-e "s|^\(      path: \)/etc/kubernetes|\1$etc|; s|^\(      path: \)/var/lib/etcd\$|\1$data|" \
		-e "s|^\(    monopod.dev/ready-deadline: \).*|\1$ready_deadline|; s|^\(    monopod.dev/soak: \).*|\1$soak|" \
		"$here/manifests/$c.yaml" >"$work/$c.yaml"
	if [ -e "$manifests/$c.yaml" ] && ! cmp -s "$work/$c.yaml" "$manifests/$c.yaml"; then
		different+=("$manifests/$c.yaml")
	fi
done
[ ${#different[@]} -eq 0 ] || die "${different[*]}: there already, and not the same; upgrade.sh changes images, and what is to be made anew is to be removed first"
directory "$etc"
directory "$manifests"
directory "$data" 700
for c in "${components[@]}"; do
	[ -e "$manifests/$c.yaml" ] || publish "$work/$c.yaml" "$manifests/$c.yaml"
done
echo "the manifests are in $manifests"
