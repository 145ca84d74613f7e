package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ownPodsOnly is the taint of a node that runs its own pods only.
const ownPodsOnly = "monopod.dev/own-pods-only:NoSchedule"

// apiServerKeys are the keys about the API server that this machine is reported to.
func apiServerKeys() []configKey {
	return []configKey{
		{path: "kubeconfig", kind: kindPath, doc: "File that says to which Kubernetes API server this machine and its pods are reported, and as whom; see apiserver.md. Empty: to none."},
		{path: "bootstrapKubeconfig", kind: kindPath, doc: "File with which a client certificate is asked for when `kubeconfig` does not exist, which is written then."},
		{path: "certDirectory", kind: kindPath, derived: "`pki` in `rootDirectory`", doc: "Where certificates that an API server has signed are kept, with their keys."},
		{path: "rotateCertificates", kind: kindBool, def: true, doc: "Whether a client certificate that was asked for is replaced before it ends."},
		{path: "serverTLSBootstrap", kind: kindBool, def: false, doc: "Whether a serving certificate is asked for, too."},
		{path: "registerNode", kind: kindBool, def: true, doc: "Whether the Node object is made when there is none."},
		{path: "apiServerPods", kind: kindBool, def: false, doc: "Whether pods that the API server binds to this node run here, besides those of manifests; see apiserver.md. Those of manifests win over them."},
		{path: "registerWithTaints", kind: kindStrings, def: []string{ownPodsOnly}, doc: "Taints of the Node when it is made, as `key=value:NoSchedule`. The default keeps schedulers away: only the pods of this machine's own manifests run here; with `apiServerPods` it is left out."},
		{path: "nodeLeaseDurationSeconds", kind: kindInt, def: int64(40), doc: "How long the API server believes that this machine lives after it was last heard of. The lease is renewed four times in it."},
		{path: "nodeStatusUpdateFrequency", kind: kindDuration, def: 10 * time.Second, doc: "How often is looked whether the status of the Node has changed."},
		{path: "nodeStatusReportFrequency", kind: kindDuration, def: 5 * time.Minute, doc: "How often the status of the Node is sent when it has not."},
		{path: "eventRecordQPS", kind: kindInt, def: int64(50), doc: "Most events that are sent to the API server in a second. 0: no limit."},
		{path: "eventBurst", kind: kindInt, def: int64(100), doc: "Most events that are sent at once."},
	}
}

// deriveAPIServer fills in what depends on other keys.
func (c *Config) deriveAPIServer() {
	if c.CertDirectory == "" {
		c.CertDirectory = filepath.Join(c.RootDirectory, "pki")
	}
	if c.APIServerPods {
		c.RegisterWithTaints = slices.DeleteFunc(slices.Clone(c.RegisterWithTaints), func(t string) bool { return t == ownPodsOnly })
	}
}

// apiServer checks the values about the API server.
func (c *configCheck) apiServer(cfg *Config) {
	if cfg.BootstrapKubeconfig != "" && cfg.Kubeconfig == "" {
		c.add("bootstrapKubeconfig", "has no effect without kubeconfig", "set kubeconfig to the file that shall be written")
	}
	if cfg.APIServerPods && cfg.Kubeconfig == "" {
		c.add("apiServerPods", "has no effect without kubeconfig", "set kubeconfig to the file that says which API server")
	}
	for _, t := range cfg.RegisterWithTaints {
		if _, err := parseTaint(t); err != nil {
			c.add("registerWithTaints", err.Error(), "write it as key=value:NoSchedule")
		}
	}
	c.between("nodeLeaseDurationSeconds", cfg.NodeLeaseDurationSeconds, 1, 3600)
	for _, d := range []struct {
		key string
		v   time.Duration
	}{{"nodeStatusUpdateFrequency", cfg.NodeStatusUpdateFrequency}, {"nodeStatusReportFrequency", cfg.NodeStatusReportFrequency}} {
		if d.v < time.Second {
			c.add(d.key, fmt.Sprintf("%v is less than 1s", d.v), "")
		}
	}
	c.between("eventRecordQPS", cfg.EventRecordQPS, 0, 10_000)
	c.between("eventBurst", cfg.EventBurst, 1, 10_000)
}

// parseTaint reads key=value:Effect or key:Effect.
func parseTaint(text string) (corev1.Taint, error) {
	at := strings.LastIndex(text, ":")
	rest, effect := text[:max(at, 0)], text[at+1:]
	key, value, _ := strings.Cut(rest, "=")
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	switch {
	case len(validation.IsQualifiedName(key)) > 0, len(validation.IsValidLabelValue(value)) > 0:
		return t, fmt.Errorf("%q is not a taint", text)
	case t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectPreferNoSchedule && t.Effect != corev1.TaintEffectNoExecute:
		return t, fmt.Errorf("%q is not an effect of a taint", effect)
	}
	return t, nil
}
