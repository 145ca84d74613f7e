package warn

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
)

// references warns of documents that a unit waits for.
func (c *checker) references(u *unit) {
	r := refs{c, u}
	for i := range u.spec.Volumes {
		r.volume(fmt.Sprintf("spec.volumes[%d].", i), &u.spec.Volumes[i])
	}
	u.containers(func(path string, k *corev1.Container) {
		for i, from := range k.EnvFrom {
			at := fmt.Sprintf("%s.envFrom[%d].", path, i)
			if m := from.ConfigMapRef; m != nil {
				r.configMap(at+"configMapRef.name", m.Name, m.Optional)
			}
			if s := from.SecretRef; s != nil {
				r.secret(at+"secretRef.name", s.Name, s.Optional)
			}
		}
		for i := range k.Env {
			if from := k.Env[i].ValueFrom; from != nil {
				r.variable(fmt.Sprintf("%s.env[%d].valueFrom.", path, i), from)
			}
		}
	})
	if name := u.spec.RuntimeClassName; name != nil && c.objects.RuntimeClass(*name) == nil {
		r.missing("spec.runtimeClassName", "RuntimeClass "+*name, "add the document, or omit the field")
	}
	pod := &manifests.Pod{Object: &corev1.Pod{Spec: *u.spec}, Refs: &manifests.Refs{PriorityClass: c.objects.PriorityClass(u.spec.PriorityClassName)}}
	if name := manifests.MissingPriorityClass(pod); name != "" {
		r.missing("spec.priorityClassName", "PriorityClass "+name, "add the document, or correct the name")
	}
}

// refs looks at what one unit refers to.
type refs struct {
	*checker
	unit *unit
}

const addOptional = "add the document, or write optional: true"

func (r refs) missing(field, what, hint string) {
	r.warn(r.unit.about(field, r.thereIsNo(what)+": the pod waits for it", hint))
}

func (r refs) configMap(field, name string, optional *bool) *corev1.ConfigMap {
	m := r.objects.ConfigMap(r.unit.id.Namespace, name)
	if m == nil && !ptr.Deref(optional, false) {
		r.missing(field, "ConfigMap "+r.unit.id.Namespace+"/"+name, addOptional)
	}
	return m
}

func (r refs) secret(field, name string, optional *bool) *corev1.Secret {
	s := r.objects.Secret(r.unit.id.Namespace, name)
	if s == nil && !ptr.Deref(optional, false) {
		r.missing(field, "Secret "+r.unit.id.Namespace+"/"+name, addOptional)
	}
	return s
}

func (r refs) variable(at string, from *corev1.EnvVarSource) {
	noKey := func(field, key, what string, there, optional bool) {
		if !there && !optional {
			r.warn(r.unit.about(at+field+".key", fmt.Sprintf("%s has no key %q: the container waits for it", what, key), "add the key, or write optional: true"))
		}
	}
	if k := from.ConfigMapKeyRef; k != nil {
		if m := r.configMap(at+"configMapKeyRef.name", k.Name, k.Optional); m != nil {
			_, there := m.Data[k.Key]
			noKey("configMapKeyRef", k.Key, "ConfigMap "+m.Namespace+"/"+m.Name, there, ptr.Deref(k.Optional, false))
		}
	}
	if k := from.SecretKeyRef; k != nil {
		if s := r.secret(at+"secretKeyRef.name", k.Name, k.Optional); s != nil {
			_, there := s.Data[k.Key]
			noKey("secretKeyRef", k.Key, "Secret "+s.Namespace+"/"+s.Name, there, ptr.Deref(k.Optional, false))
		}
	}
}

func (r refs) volume(at string, v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.files(at, v.ConfigMap.Name, v.ConfigMap.Optional)
	case v.Secret != nil:
		r.secret(at+"secret.secretName", v.Secret.SecretName, v.Secret.Optional)
	case v.PersistentVolumeClaim != nil:
		r.claim(at+"persistentVolumeClaim.claimName", v.PersistentVolumeClaim.ClaimName)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			s, at := &v.Projected.Sources[i], fmt.Sprintf("%sprojected.sources[%d].", at, i)
			if s.ConfigMap != nil {
				r.files(at, s.ConfigMap.Name, s.ConfigMap.Optional)
			}
			if s.Secret != nil {
				r.secret(at+"secret.name", s.Secret.Name, s.Secret.Optional)
			}
		}
	}
}

// files looks for a ConfigMap that is mounted. The one with the certificates of the API is made for each pod.
func (r refs) files(at, name string, optional *bool) {
	if name != manifests.RootCAName {
		r.configMap(at+"configMap.name", name, optional)
	}
}

func (r refs) claim(field, name string) {
	c := r.objects.PersistentVolumeClaim(r.unit.id.Namespace, name)
	if c == nil && !r.made(name) {
		r.missing(field, "PersistentVolumeClaim "+r.unit.id.Namespace+"/"+name,
			fmt.Sprintf("add {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", name))
	}
}

// made reports whether a StatefulSet creates a claim of this name.
func (r refs) made(name string) bool {
	for _, u := range r.units {
		if u.id.Namespace != r.unit.id.Namespace {
			continue
		}
		for _, claim := range u.claims {
			for _, pod := range u.names {
				if name == claim+"-"+pod {
					return true
				}
			}
		}
	}
	return false
}

// ports warns of ports of the machine that two pods want.
func (c *checker) ports() {
	type owner struct {
		manifests.HostPort
		unit *unit
	}
	taken := map[int32][]owner{}
	for _, u := range c.units {
		var own []owner
		manifestPorts(u, func(field string, h manifests.HostPort) {
			own = append(own, owner{h, u})
			if u.around {
				return
			}
			if u.copies > 1 {
				c.warn(u.about(field, fmt.Sprintf("its %d pods cannot share host port %s: all but one wait", u.copies, h), "set replicas: 1, or remove hostPort and use a Service"))
			}
			for _, o := range taken[h.Port] {
				if o.Overlaps(h) && (u.id.Kind != "Pod" || o.unit.id.Kind != "Pod") { // of two Pods that is an error
					c.warn(u.about(field, fmt.Sprintf("host port %s is also used by %s at %s: one of them waits", h, o.unit.id, place(o.unit.origin)), "change the port of one of them"))
					break
				}
			}
		})
		for _, o := range own {
			taken[o.Port] = append(taken[o.Port], o)
		}
	}
}

// manifestPorts calls f for each port of the machine that containers of a unit take for as long as they run.
func manifestPorts(u *unit, f func(field string, h manifests.HostPort)) {
	lasting := map[string]bool{}
	for k := range manifests.LongRunningContainers(u.spec) {
		lasting[k.Name] = true
	}
	u.containers(func(path string, k *corev1.Container) {
		for i := range k.Ports {
			p := &k.Ports[i]
			h := manifests.HostPortOf(p)
			if h.Port == 0 && u.spec.HostNetwork {
				h.Port = p.ContainerPort
			}
			if h.Port != 0 && lasting[k.Name] {
				f(fmt.Sprintf("%s.ports[%d]", path, i), h)
			}
		}
	})
}
