// Package podhash hashes the parts of a pod that decide what must be replaced when its manifest changes.
//
// The hashes are stored with running pods: they must not change with a new version of monopod, of Go or of the Kubernetes API.
package podhash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

// The hashes are kept in labels on running pods, so they must not change with a new version of monopod, of Go
// or of the Kubernetes API: that would restart every pod. They are therefore taken over JSON with sorted keys
// that holds only what is set, and golden tests pin some of them.
//
// All of them take a defaulted pod.

// Pod returns a hash that differs if two manifests of a pod differ in anything that counts. Ephemeral containers do not: they are added to
// a running pod, and no manifest has them.
func Pod(p *corev1.Pod) string { return Of(withoutObserved(p)) }

// Sandbox is the hash of what cannot change without recreating the whole pod: its identity, its network and the namespaces that containers
// share. Labels, annotations and the fields of single containers are excluded, except host ports. Init containers are included, sidecars
// are not: a step that has run before everything else can only run again with everything after it.
func Sandbox(p *corev1.Pod) string {
	spec := &p.Spec
	s := sandboxParts{
		UID:                   string(p.UID),
		HostNetwork:           spec.HostNetwork,
		HostIPC:               spec.HostIPC,
		HostUsers:             spec.HostUsers,
		ShareProcessNamespace: spec.ShareProcessNamespace,
		Hostname:              spec.Hostname,
		HostnameOverride:      spec.HostnameOverride,
		Subdomain:             spec.Subdomain,
		SetHostnameAsFQDN:     spec.SetHostnameAsFQDN,
		HostAliases:           spec.HostAliases,
		DNSPolicy:             spec.DNSPolicy,
		DNSConfig:             spec.DNSConfig,
		RuntimeClassName:      spec.RuntimeClassName,
	}
	if spec.SecurityContext != nil {
		s.Sysctls = spec.SecurityContext.Sysctls
	}
	if !spec.HostNetwork {
		s.HostPorts = hostPorts(spec)
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; !manifests.IsSidecar(c) {
			s.InitContainers = append(s.InitContainers, c.Name+" "+Container(p, c.Name))
		}
	}
	return Of(s)
}

// sandboxParts are the parts of a pod that Sandbox covers.
type sandboxParts struct {
	UID                   string               `json:"uid,omitempty"`
	HostNetwork           bool                 `json:"hostNetwork,omitempty"`
	HostIPC               bool                 `json:"hostIPC,omitempty"`
	HostUsers             *bool                `json:"hostUsers,omitempty"`
	ShareProcessNamespace *bool                `json:"shareProcessNamespace,omitempty"`
	Hostname              string               `json:"hostname,omitempty"`
	HostnameOverride      *string              `json:"hostnameOverride,omitempty"`
	Subdomain             string               `json:"subdomain,omitempty"`
	SetHostnameAsFQDN     *bool                `json:"setHostnameAsFQDN,omitempty"`
	HostAliases           []corev1.HostAlias   `json:"hostAliases,omitempty"`
	DNSPolicy             corev1.DNSPolicy     `json:"dnsPolicy,omitempty"`
	DNSConfig             *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`
	RuntimeClassName      *string              `json:"runtimeClassName,omitempty"`
	Sysctls               []corev1.Sysctl      `json:"sysctls,omitempty"`
	HostPorts             []string             `json:"hostPorts,omitempty"`
	InitContainers        []string             `json:"initContainers,omitempty"`
}

// hostPorts lists the port mappings of a pod, whichever container has them and in whatever order.
func hostPorts(spec *corev1.PodSpec) []string {
	var ports []string
	for c := range manifests.LongRunningContainers(spec) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, fmt.Sprintf("%s:%d:%d/%s", p.HostIP, p.HostPort, p.ContainerPort, p.Protocol))
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// Container covers what a process of the container can notice: its definition, the volumes it mounts and
// the fields of the pod that reach into it. Left out is what only the agent acts on (pull policy, probes,
// restart and message policies, ports) and what the environment of a container does not follow in Kubernetes
// either (labels and annotations, but manifests.AnnotationRestarted), and cpu and memory, which Resources covers. It is empty
// for a container that the pod does not have.
func Container(p *corev1.Pod, container string) string {
	found := manifests.FindContainer(&p.Spec, container)
	if found == nil {
		return ""
	}
	c := *found // a copy, to blank fields in
	parts := containerParts{
		HostPID:     p.Spec.HostPID,
		HostIPC:     p.Spec.HostIPC,
		HostNetwork: p.Spec.HostNetwork,
		HostUsers:   p.Spec.HostUsers,
		Volumes:     mountedVolumes(p.Spec.Volumes, &c),
		Fields:      specFields(&p.Spec, c.Env),
		Devices:     deviceAnnotations(p.Annotations),
		Restarted:   p.Annotations[manifests.AnnotationRestarted],
	}
	if p.Spec.SecurityContext != nil {
		pod := *p.Spec.SecurityContext
		pod.Sysctls = nil
		parts.Pod = &pod
	}
	c.ImagePullPolicy = ""
	c.Ports = nil
	c.TerminationMessagePolicy = ""
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
	c.RestartPolicy, c.RestartPolicyRules, c.ResizePolicy = nil, nil, nil
	dropResizable(&c)
	parts.Container = &c
	return Of(parts)
}

// containerParts are the parts of a pod that Container covers.
type containerParts struct {
	Container   *corev1.Container          `json:"container"`
	Volumes     []corev1.Volume            `json:"volumes,omitempty"`
	Pod         *corev1.PodSecurityContext `json:"pod,omitempty"`
	HostPID     bool                       `json:"hostPID,omitempty"`
	HostIPC     bool                       `json:"hostIPC,omitempty"`
	HostNetwork bool                       `json:"hostNetwork,omitempty"`
	HostUsers   *bool                      `json:"hostUsers,omitempty"`
	Fields      map[string]string          `json:"fields,omitempty"`
	Devices     map[string]string          `json:"devices,omitempty"`
	Restarted   string                     `json:"restarted,omitempty"`
}

// deviceAnnotations returns the annotations that assign devices to containers.
func deviceAnnotations(annotations map[string]string) map[string]string {
	devices := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			devices[key] = value
		}
	}
	return devices
}

// mountedVolumes returns the volumes that a container uses, by name.
func mountedVolumes(volumes []corev1.Volume, c *corev1.Container) []corev1.Volume {
	var used []corev1.Volume
	for _, v := range volumes {
		if manifests.UsesVolume(c, v.Name) {
			used = append(used, v)
		}
	}
	sort.Slice(used, func(i, j int) bool { return used[i].Name < used[j].Name })
	return used
}

// specFields returns the fields of the spec that the environment shows.
func specFields(spec *corev1.PodSpec, env []corev1.EnvVar) map[string]string {
	fields := map[string]string{}
	for _, e := range env {
		if e.ValueFrom == nil || e.ValueFrom.FieldRef == nil {
			continue
		}
		switch path := e.ValueFrom.FieldRef.FieldPath; path {
		case "spec.serviceAccountName":
			fields[path] = spec.ServiceAccountName
		}
	}
	return fields
}

// Of is the hash of what is set in a value.
func Of(v any) string {
	sum := sha256.Sum256(canonical(v))
	return hex.EncodeToString(sum[:16])
}

// canonical is the JSON of a value without fields that are empty, keys sorted. Values that never marshal do not
// occur: pods come from JSON.
func canonical(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", v, err))
	}
	if text, ok := canonicalText(data); ok {
		return text
	}
	return canonicalTree(data)
}

// canonicalTree is the canonical form of any JSON.
func canonicalTree(data []byte) []byte {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		panic(fmt.Sprintf("decode: %v", err))
	}
	tree, _ = prune(tree)
	data, err := json.Marshal(tree)
	if err != nil {
		panic(fmt.Sprintf("marshal: %v", err))
	}
	return data
}

// prune removes fields that are null, "", [] or {}, since whether those are written at all differs between
// versions of the API. Numbers and booleans stay: user 0 is not "no user". Elements of lists stay too.
func prune(v any) (pruned any, isSet bool) {
	switch v := v.(type) {
	case nil:
		return nil, false
	case string:
		return v, v != ""
	case []any:
		for i := range v {
			v[i], _ = prune(v[i])
		}
		return v, len(v) > 0
	case map[string]any:
		for key, value := range v {
			inner, isSet := prune(value)
			if !isSet {
				delete(v, key)
				continue
			}
			v[key] = inner
		}
		return v, len(v) > 0
	}
	return v, true
}

// withoutObserved returns a copy of a pod for Pod, without the fields that the API server sets in a dump of a cluster.
func withoutObserved(p *corev1.Pod) *corev1.Pod {
	c := *p
	c.SelfLink = "" //nolint:staticcheck // dumps of old clusters have it
	c.ResourceVersion, c.CreationTimestamp, c.ManagedFields, c.Status = "", metav1.Time{}, nil, corev1.PodStatus{}
	c.Spec.EphemeralContainers = nil
	return &c
}
