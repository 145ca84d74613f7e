package apiserver

import (
	"net"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Variables from which clients in pods learn the address of the API server.
const (
	envServiceHost = "KUBERNETES_SERVICE_HOST"
	envServicePort = "KUBERNETES_SERVICE_PORT"
	envPort        = "KUBERNETES_PORT"
)

// isServiceVariable reports whether a variable is one of the Service `kubernetes`.
func isServiceVariable(name string) bool {
	return name == envServiceHost || name == envServicePort || name == envServicePort+"_HTTPS" || name == envPort || strings.HasPrefix(name, envPort+"_")
}

// serviceVariables are what a kubelet sets for the Service `kubernetes`, whatever enableServiceLinks says, sorted as docker's links were. There
// are no Services here: they name the API server itself.
func serviceVariables(host, port string) []corev1.EnvVar {
	tcp, address := envPort+"_"+port+"_TCP", "tcp://"+net.JoinHostPort(host, port)
	return []corev1.EnvVar{
		{Name: envServiceHost, Value: host},
		{Name: envServicePort, Value: port},
		{Name: envServicePort + "_HTTPS", Value: port},
		{Name: envPort, Value: address},
		{Name: tcp, Value: address},
		{Name: tcp + "_PROTO", Value: "tcp"},
		{Name: tcp + "_PORT", Value: port},
		{Name: tcp + "_ADDR", Value: host},
	}
}

// serverFor is the address of the API server as a pod reaches it: that of the kubeconfig. One on the loopback of this machine is reached by an
// address of the Node, unless the pod shares the network of the machine.
func serverFor(p *corev1.Pod, server string, node *corev1.Node) (host, port string, ok bool) {
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" {
		return "", "", false
	}
	host, port = u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
		if port == "" {
			port = "443"
		}
	}
	ip := net.ParseIP(host)
	if p.Spec.HostNetwork || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return host, port, true
	}
	if node == nil {
		return "", "", false
	}
	at := slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	if at < 0 {
		return "", "", false
	}
	return node.Status.Addresses[at].Address, port, true
}

// withServiceVariables adds variables to the containers of a document that set them neither by env nor by envFrom. local is the pod on this
// machine, nil if it does not exist yet. An existing pod keeps the variables it was created with, even if it has none: other ones would
// recreate its containers.
func withServiceVariables(doc, local *corev1.Pod, vars []corev1.EnvVar, objects map[object]*fetched) {
	for _, all := range [][]corev1.Container{doc.Spec.InitContainers, doc.Spec.Containers} {
		for i := range all {
			c := &all[i]
			give := vars
			if local != nil {
				give = serviceVariablesOf(local, c.Name)
			}
			own := definedBy(c, doc.Namespace, objects)
			give = slices.DeleteFunc(slices.Clone(give), func(v corev1.EnvVar) bool { return own[v.Name] })
			c.Env = append(give, c.Env...)
		}
	}
}

// serviceVariablesOf are those that a container of a pod has.
func serviceVariablesOf(p *corev1.Pod, name string) (vars []corev1.EnvVar) {
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			if all[i].Name != name {
				continue
			}
			for _, e := range all[i].Env {
				if isServiceVariable(e.Name) && e.ValueFrom == nil {
					vars = append(vars, e)
				}
			}
		}
	}
	return vars
}

// definedBy are the names of the service variables that a container sets itself.
func definedBy(c *corev1.Container, namespace string, objects map[object]*fetched) map[string]bool {
	own := map[string]bool{}
	for _, e := range c.Env {
		own[e.Name] = true
	}
	for _, from := range c.EnvFrom {
		var keys []string
		if from.ConfigMapRef != nil {
			keys = keysOf(objects[object{"configmaps", namespace, from.ConfigMapRef.Name}])
		}
		if from.SecretRef != nil {
			keys = keysOf(objects[object{"secrets", namespace, from.SecretRef.Name}])
		}
		for _, k := range keys {
			own[from.Prefix+k] = true
		}
	}
	return own
}

// keysOf are the keys of a ConfigMap or a Secret.
func keysOf(f *fetched) (keys []string) {
	if f == nil {
		return nil
	}
	switch o := f.doc.(type) {
	case *corev1.ConfigMap:
		for k := range o.Data {
			keys = append(keys, k)
		}
	case *corev1.Secret:
		for k := range o.Data {
			keys = append(keys, k)
		}
	}
	return keys
}
