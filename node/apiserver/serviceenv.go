package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/serviceenv"
)

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
				if serviceenv.Is(e.Name) && e.ValueFrom == nil {
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
