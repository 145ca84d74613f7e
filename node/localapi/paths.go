package localapi

import (
	"net/url"
)

// Group is the API group of monopod's own kinds, and Base the path of its version.
const (
	Group = "monopod.dev"
	Base  = "/apis/" + Group + "/v1alpha1"
)

// PodReports returns the path of the pods of a namespace, as `monopod get pods` shows them; empty means all namespaces.
func PodReports(namespace string) string {
	if namespace == "" {
		return Base + "/podreports"
	}
	return Base + "/namespaces/" + url.PathEscape(namespace) + "/podreports"
}

// PodReport returns the path of a pod, or, with sub, of its subresource.
func PodReport(namespace, name, sub string) string {
	return below(PodReports(namespace)+"/"+url.PathEscape(name), sub)
}

// Pod returns the path of a subresource of a pod in the Kubernetes API.
func Pod(namespace, name, sub string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name) + "/" + sub
}

// Self returns a path below the agent that serves the request, whatever its node name is.
func Self(sub string) string { return below(Base+"/agents/self", sub) }

func below(path, sub string) string {
	if sub == "" {
		return path
	}
	return path + "/" + sub
}
