// A module of its own: monopod itself must not depend on k8s.io/kubernetes. Run "go mod tidy" before building.
module oracle

go 1.26.0
require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/kubernetes v1.37.2
)
