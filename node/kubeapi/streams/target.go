package streams

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Target is the target of a proxied request: NAME, NAME:PORT or SCHEME:NAME:PORT.
type Target struct {
	// Secure reports whether the scheme is https.
	Secure bool
	Name   string
	// Port is a number, the name of a port, or empty.
	Port string
}

// ParseTarget parses the name in the path of a proxied request.
func ParseTarget(text string) (Target, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(text)
	if !valid {
		return Target{}, apierrors.NewBadRequest(fmt.Sprintf("%q is invalid; use NAME, NAME:PORT, http:NAME:PORT or https:NAME:PORT", text))
	}
	return Target{Secure: scheme == "https", Name: name, Port: port}, nil
}

// PodPort returns the number of a port of a pod. If the target has no port, it is the first port that a container declares, or else the
// default of the scheme.
func (t Target) PodPort(pod *corev1.Pod) (int, error) {
	if n, err := strconv.ParseUint(t.Port, 10, 16); err == nil && n > 0 {
		return int(n), nil
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if t.Port == "" || p.Name == t.Port {
				return int(p.ContainerPort), nil
			}
		}
	}
	switch {
	case t.Port != "":
		return 0, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no port %q", pod.Name, t.Port))
	case t.Secure:
		return 443, nil
	}
	return 80, nil
}

// Backend is a port of a pod that serves a Service.
type Backend struct {
	Pod  string
	Port int
}

// Backends returns the ready backends of a Service port: at least one, otherwise the error is 503.
func (t Target) Backends(service *corev1.Service, endpoints *corev1.Endpoints) ([]Backend, error) {
	name := t.Port
	if n, err := strconv.ParseInt(t.Port, 10, 64); err == nil {
		found := false
		for _, p := range service.Spec.Ports {
			if found = int64(p.Port) == n; found {
				name = p.Name
				break
			}
		}
		if !found {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", n, service.Name))
		}
	} else if name == "" && len(service.Spec.Ports) == 1 {
		name = service.Spec.Ports[0].Name
	}
	var all []Backend
	for _, s := range endpoints.Subsets {
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				if p.Name == name && a.TargetRef != nil && a.TargetRef.Kind == "Pod" {
					all = append(all, Backend{Pod: a.TargetRef.Name, Port: int(p.Port)})
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", service.Name))
	}
	return all, nil
}
