#!/bin/sh
# Signs manifests for a source with `signature: {kind: dsse}`:
#
#   openssl genpkey -algorithm ed25519 -out key.pem
#   ./sign.sh key.pem 7 < pods.yaml > pods.dsse.json
#
# The number is the version of the set: a higher one each time.
set -eu
key=$1 version=$2 kind=application/vnd.monopod.manifests+yaml
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT
{ echo "# monopod.dev/set-version: $version"; cat; } > "$dir/payload"
{ printf 'DSSEv1 %d %s %d ' ${#kind} "$kind" "$(wc -c < "$dir/payload")"; cat "$dir/payload"; } > "$dir/encoded"
openssl pkeyutl -sign -rawin -inkey "$key" -in "$dir/encoded" -out "$dir/signature"
printf '{"payloadType":"%s","payload":"%s","signatures":[{"sig":"%s"}]}\n' \
  "$kind" "$(base64 -w 0 "$dir/payload")" "$(base64 -w 0 "$dir/signature")"
