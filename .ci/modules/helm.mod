module monopod/helm

go 1.26.8

godebug default=go1.26

require (
	dario.cat/mergo v1.0.2
	github.com/cpuguy83/go-md2man/v2 v2.0.7
	github.com/fxamacker/cbor/v2 v2.9.4
	github.com/go-openapi/swag v0.28.0
	github.com/go-openapi/swag/cmdutils v0.28.0
	github.com/go-openapi/swag/conv v0.28.0
	github.com/go-openapi/swag/fileutils v0.28.0
	github.com/go-openapi/swag/jsonutils v0.28.0
	github.com/go-openapi/swag/loading v0.28.0
	github.com/go-openapi/swag/mangling v0.28.0
	github.com/go-openapi/swag/netutils v0.28.0
	github.com/go-openapi/swag/pools v0.28.0
	github.com/go-openapi/swag/stringutils v0.28.0
	github.com/go-openapi/swag/typeutils v0.28.0
	github.com/go-openapi/swag/yamlutils v0.28.0
	github.com/prometheus/client_golang v1.24.1
	github.com/prometheus/common v0.70.1
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/net v0.61.0
	golang.org/x/time v0.16.0
	helm.sh/helm/v3 v3.22.0
	helm.sh/helm/v4 v4.3.1
	k8s.io/api v0.37.2
	k8s.io/apiextensions-apiserver v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/cli-runtime v0.37.2
	k8s.io/client-go v0.37.2
	k8s.io/component-base v0.37.2
	k8s.io/kubectl v0.37.2
	k8s.io/utils v0.0.0-20260707023825-cf1189d6abe3
)

// The versions of monopod: what its tests compile is not compiled again.
replace (
	github.com/google/gnostic-models => github.com/google/gnostic-models v0.7.0
)
