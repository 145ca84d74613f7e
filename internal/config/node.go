package config

import (
	"errors"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/capacity"
	"monopod/runner/spec/limits"
)

// nodeKeys are the keys about the resources of the machine that pods may use.
func nodeKeys() []Key {
	return []Key{
		{Path: "nodeLabels", Kind: kindTexts, doc: "Labels of this machine, as in `{disktype: ssd}`. Pods wait while the labels do not match their `nodeSelector` or required node affinity. `kubectl label node` adds others, but does not change these. Without any: only `kubernetes.io/os` and `kubernetes.io/arch` are compared with what pods select. These two and `kubernetes.io/hostname` are always set."},
		{Path: "nodeCapacity", Kind: kindTexts, doc: "Resources that pods may request as if the machine had them, as in `{cpu: \"16\", memory: 64Gi, ephemeral-storage: 1Ti}`: for manifests whose requests were written for larger machines. Shares, limits and eviction use the real capacity. Empty: the capacity of the machine."},
		{Path: "systemReserved", Kind: kindTexts, doc: "Resources reserved for other programs of the machine, as in `{cpu: 500m, memory: 512Mi, ephemeral-storage: 1Gi, pid: \"1000\"}`: pods cannot request them."},
		{Path: "kubeReserved", Kind: kindTexts, doc: "Resources reserved for monopod itself, in addition to `systemReserved`."},
		{Path: "enforceNodeAllocatable", Kind: KindStrings, def: []string{"pods"}, doc: "`pods`: limits of `cgroupRoot` keep all pods together from using the cpu, memory and process ids of `systemReserved` and `kubeReserved`. `none`: no such limits. A pod that requests more than is allocatable is refused either way."},
	}
}

// Values of enforceNodeAllocatable.
const (
	enforcePods = "pods"
	enforceNone = "none"
)

// Reserved returns the resources that pods cannot use.
func (c *Config) Reserved() (capacity.Reserved, error) {
	system, err1 := capacity.ParseReserved(c.SystemReserved)
	kube, err2 := capacity.ParseReserved(c.KubeReserved)
	return capacity.Reserved{System: system, Kube: kube}, errors.Join(err1, err2)
}

func (c *configCheck) node(cfg *Config) {
	if _, err := capacity.ParseClaimed(cfg.NodeCapacity); err != nil {
		c.add("nodeCapacity", err.Error(), "")
	}
	for _, m := range []struct {
		key     string
		written map[string]string
	}{{"systemReserved", cfg.SystemReserved}, {"kubeReserved", cfg.KubeReserved}} {
		if _, err := capacity.ParseReserved(m.written); err != nil {
			c.add(m.key, err.Error(), "")
		}
	}
	for _, e := range metav1validation.ValidateLabels(cfg.NodeLabels, field.NewPath("nodeLabels")) {
		c.add("nodeLabels", strings.TrimPrefix(e.Error(), "nodeLabels: "), "")
	}
	for _, e := range cfg.EnforceNodeAllocatable {
		c.oneOf("enforceNodeAllocatable", e, enforcePods, enforceNone)
	}
	if len(cfg.EnforceNodeAllocatable) > 1 && slices.Contains(cfg.EnforceNodeAllocatable, enforceNone) {
		c.add("enforceNodeAllocatable", "none stands beside others", "")
	}
}

// Enforced returns the limits of all pods together.
func (c *Config) Enforced(m capacity.Machine) (all limits.AllPods) {
	if r, err := c.Reserved(); err == nil && slices.Contains(c.EnforceNodeAllocatable, enforcePods) {
		l := capacity.LimitsOf(m, r)
		all = limits.AllPods{Memory: l.Memory, MilliCPU: l.MilliCPU, Pids: l.PIDs}
	}
	return all
}

// Values of podDNS.
const (
	PodDNSAuto = "auto"
	podDNSOff  = "off"
)
