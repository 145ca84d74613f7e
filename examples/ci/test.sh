#!/bin/sh
# The tests of examples/ci/workflow.yml. `monopod up` says where the pods are.
set -eu
fetch() { if command -v curl >/dev/null; then curl -fsS "$1"; else wget -qO- "$1"; fi; }

[ "$(fetch "http://$POD_WEB_IP:$POD_WEB_PORT_HTTP/")" = "It works" ]
[ "$(fetch "http://127.0.0.1:$POD_WEB_HOSTPORT_HTTP/")" = "It works" ]
monopod logs web >/dev/null # asks the agent of this run: MONOPOD_SOCKET is set
echo "the page is there, at its pod and at port $POD_WEB_HOSTPORT_HTTP of this machine"
