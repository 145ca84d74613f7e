#!/bin/sh
# Tests against a Kubernetes API, for examples/ci/workflow.yml. `monopod up --api` has set KUBECONFIG, and removes everything.
set -eu
kubectl apply -f examples/ci/pods.yaml
kubectl wait --for=condition=Ready pod/web --timeout=2m
[ "$(kubectl exec web -- wget -qO- http://localhost:8080/)" = "It works" ]
kubectl get nodes,pods
