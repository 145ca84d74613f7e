// Package request parses the path and query of Kubernetes API requests.
//
// It must not read bodies or access objects. Goroutines: none.
package request

import (
	"monopod/node/kubeapi/kinds"
)

// Request is a parsed request.
type Request struct {
	// Verb is the verb for authorization: get, list, watch, create, update, patch, delete, deletecollection. For paths without objects it
	// is the method in lower case.
	Verb string
	// Kind is nil for paths that are not about objects, such as /version.
	Kind *kinds.Kind
	// Namespace is empty for all namespaces and for cluster-scoped kinds, Name is empty for collections.
	Namespace, Name string
	// Subresource is empty for the object itself.
	Subresource string
	// Rest is the unescaped path after the subresource proxy, with its leading slash. It may have any content, including "..".
	Rest string
}
