package config

import (
	"errors"
	"maps"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/node/capacity"
	"monopod/runner/spec/limits"
)

// nodeKeys are about what of the machine pods may have.
func nodeKeys() []Key {
	return []Key{
		{Path: "nodeLabels", Kind: kindTexts, doc: "Labels of this machine, as in `{disktype: ssd}`. Pods whose `nodeSelector` or required node affinity they do not meet wait. Empty: of what pods select only `kubernetes.io/os` and `kubernetes.io/arch` matter, which are those of the machine. They, and `kubernetes.io/hostname`, are always there."},
		{Path: "nodeCapacity", Kind: kindTexts, doc: "What pods may request as if the machine had it, as in `{cpu: \"16\", memory: 64Gi, ephemeral-storage: 1Ti}`: for manifests whose requests were written for larger machines. Shares, limits and eviction go by what there really is. Empty: what the machine has."},
		{Path: "systemReserved", Kind: kindTexts, doc: "What the programs of the machine need, as in `{cpu: 500m, memory: 512Mi, ephemeral-storage: 1Gi, pid: \"1000\"}`: pods cannot request it."},
		{Path: "kubeReserved", Kind: kindTexts, doc: "What monopod itself needs, beside `systemReserved`."},
		{Path: "enforceNodeAllocatable", Kind: KindStrings, def: []string{"pods"}, doc: "`pods`: all pods together are kept from the cpu, memory and process ids of `systemReserved` and `kubeReserved` by limits of `cgroupRoot`. `none`: they are not. What cannot be allocated is refused either way."},
	}
}

// Values of enforceNodeAllocatable.
const (
	enforcePods = "pods"
	enforceNone = "none"
)

// Reserved is what is kept from pods.
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

// Labels are those of this machine; nil when nobody has given it any.
func (c *Config) Labels(p manifests.Platform) map[string]string {
	if len(c.NodeLabels) == 0 {
		return nil
	}
	all := p.Labels()
	all["kubernetes.io/hostname"] = c.NodeName
	maps.Copy(all, c.NodeLabels)
	return all
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
