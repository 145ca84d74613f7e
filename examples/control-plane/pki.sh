#!/usr/bin/env bash
# Makes the keys, certificates and kubeconfigs of a control plane, with openssl.
#
#   pki.sh [--address IP] [--node NAME] [--service-cidr CIDR]
#
# The files are those of `kubeadm init phase certs all` and `kubeadm init phase kubeconfig all`, in
# KUBERNETES_DIR (/etc/kubernetes). What is there is checked and kept, also authorities of your own: run it again at
# any time. To renew a certificate or a kubeconfig, remove the file (not its key) and run it again.
set -euo pipefail
source "$(dirname "$0")/lib.sh"
flags "address node service-cidr" "$@"
no_more
need openssl
check_paths
check_machine
umask 077

years() { echo $(($1 * 365)); }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# the configuration of the machine's openssl must not matter
printf '[req]\ndistinguished_name = dn\n[dn]\n' >"$work/openssl.cnf"
export OPENSSL_CONF=$work/openssl.cnf

quietly() { "$@" 2>"$work/errors" || die "$1 $2: $(cat "$work/errors")"; }

key() {
	[ -e "$1" ] && return
	quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/key"
	publish "$work/key" "$1"
}

# matches CERTIFICATE KEY says that they belong together.
matches() { [ "$(openssl x509 -in "$1" -noout -pubkey)" = "$(openssl pkey -in "$2" -pubout)" ]; }

# sign KEY SUBJECT EXTENSIONS CA makes $work/crt; a certificate without a CA is its own.
sign() {
	local by days
	if [ -n "${4:-}" ]; then
		by=(-CA "$4.crt" -CAkey "$4.key") days=$(years 1)
	else
		by=(-signkey "$1") days=$(years 10)
	fi
	printf '%b' "$3" >"$work/extensions"
	quietly openssl req -new -key "$1" -subj "$2" -out "$work/request"
	quietly openssl x509 -req -in "$work/request" "${by[@]}" -set_serial "0x$(openssl rand -hex 8)" \
		-days "$days" -sha256 -extfile "$work/extensions" -out "$work/crt"
}

authority() { # FILE NAME
	if [ -e "$1.crt" ]; then
		[ ! -e "$1.key" ] || matches "$1.crt" "$1.key" || die "$1.key is not the key of $1.crt"
		return
	fi
	directory "$(dirname "$1")" 700
	key "$1.key"
	sign "$1.key" "/CN=$2" "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,digitalSignature,keyEncipherment,keyCertSign\nsubjectKeyIdentifier=hash\nsubjectAltName=DNS:$2\n"
	publish "$work/crt" "$1.crt"
}

# certificate FILE CA SUBJECT USAGE [NAMES]: a pair that is there is checked instead.
certificate() {
	local file=$1 ca=$2 name
	if [ -e "$file.crt" ]; then
		[ -e "$file.key" ] || die "there is $file.crt, but no $file.key: remove it or bring its key back"
		matches "$file.crt" "$file.key" || die "$file.key is not the key of $file.crt"
		openssl verify -CAfile "$ca.crt" "$file.crt" >/dev/null 2>&1 ||
			die "$file.crt was not signed by $ca.crt, or has expired: remove it to have another one made"
		for name in $(tr , ' ' <<<"${5:-}"); do
			case $name in
			IP:*) openssl x509 -in "$file.crt" -noout -checkip "${name#IP:}" | grep -q "does match" ;;
			DNS:*) openssl x509 -in "$file.crt" -noout -checkhost "${name#DNS:}" | grep -q "does match" ;;
			esac || die "$file.crt is not for ${name#*:}: remove it to have another one made"
		done
		return
	fi
	[ -e "$ca.key" ] || die "$file.crt is missing, and without $ca.key it cannot be made"
	key "$file.key"
	local extensions="basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=$4\nauthorityKeyIdentifier=keyid\n"
	[ -z "${5:-}" ] || extensions+="subjectAltName=$5\n"
	sign "$file.key" "$3" "$extensions" "$ca"
	publish "$work/crt" "$file.crt"
}

# kubeconfig FILE SUBJECT: the key is in it, and nowhere else.
kubeconfig() {
	local file=$etc/$1.conf user=${2##*/CN=}
	if [ -e "$file" ]; then
		grep -q "^    server: https://$address:6443\$" "$file" || die "$file is not for https://$address:6443: remove it to have another one made"
		sed -n 's/^    client-certificate-data: //p' "$file" | base64 -d >"$work/client.crt"
		openssl verify -CAfile "$pki/ca.crt" "$work/client.crt" >/dev/null 2>&1 ||
			die "the certificate in $file was not signed by $pki/ca.crt, or has expired: remove $file to have another one made"
		return
	fi
	rm -f "$work/client.key"
	quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/client.key"
	sign "$work/client.key" "$2" "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth\nauthorityKeyIdentifier=keyid\n" "$pki/ca"
	cat >"$work/conf" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    server: https://$address:6443
    certificate-authority-data: $(base64 -w 0 "$pki/ca.crt")
users:
- name: $user
  user:
    client-certificate-data: $(base64 -w 0 "$work/crt")
    client-key-data: $(base64 -w 0 "$work/client.key")
contexts:
- name: $user@kubernetes
  context:
    cluster: kubernetes
    user: $user
current-context: $user@kubernetes
YAML
	publish "$work/conf" "$file"
}

directory "$etc"
authority "$pki/ca" kubernetes
authority "$pki/front-proxy-ca" front-proxy-ca
authority "$pki/etcd/ca" etcd-ca

local_names="DNS:$node,DNS:localhost,IP:$address,IP:127.0.0.1"
certificate "$pki/apiserver" "$pki/ca" /CN=kube-apiserver serverAuth \
	"DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,$local_names,IP:$(first_service)"
certificate "$pki/apiserver-kubelet-client" "$pki/ca" /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
certificate "$pki/front-proxy-client" "$pki/front-proxy-ca" /CN=front-proxy-client clientAuth
certificate "$pki/etcd/server" "$pki/etcd/ca" "/CN=$node" serverAuth,clientAuth "$local_names"
certificate "$pki/etcd/peer" "$pki/etcd/ca" "/CN=$node" serverAuth,clientAuth "$local_names"
certificate "$pki/etcd/healthcheck-client" "$pki/etcd/ca" /CN=kube-etcd-healthcheck-client clientAuth
certificate "$pki/apiserver-etcd-client" "$pki/etcd/ca" /CN=kube-apiserver-etcd-client clientAuth

# service accounts: tokens are signed with the key, and checked with the public one
[ -e "$pki/sa.key" ] || [ ! -e "$pki/sa.pub" ] || die "there is $pki/sa.pub, but no $pki/sa.key: remove it or bring its key back"
key "$pki/sa.key"
quietly openssl pkey -in "$pki/sa.key" -pubout -out "$work/pub"
if [ ! -e "$pki/sa.pub" ]; then
	publish "$work/pub" "$pki/sa.pub"
elif [[ $(<"$pki/sa.pub") != *"$(<"$work/pub")"* ]]; then # it may have older keys, too
	die "$pki/sa.pub is not the public key of $pki/sa.key: remove it to have it made anew"
fi

kubeconfig admin /O=system:masters/CN=kubernetes-admin
kubeconfig controller-manager /CN=system:kube-controller-manager
kubeconfig scheduler /CN=system:kube-scheduler
kubeconfig kubelet "/O=system:nodes/CN=system:node:$node"
echo "keys and certificates are in $pki, kubeconfigs in $etc"
