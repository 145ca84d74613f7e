package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ownPodsOnly is the default taint of the Node: only pods of this machine's own manifests run here.
const ownPodsOnly = "monopod.dev/own-pods-only:NoSchedule"

// apiServerKeys are the keys about the API server to which this machine is reported; kubeAPIKeys are about the API that monopod serves.
func apiServerKeys() []Key {
	return []Key{
		{Path: "kubeconfig", Kind: kindPath, doc: "kubeconfig of another Kubernetes API server, to which this machine and its pods are reported; see `monopod docs apiserver`. Empty: none. The API that monopod itself serves is `apiServer.address`."},
		{Path: "bootstrapKubeconfig", Kind: kindPath, doc: "kubeconfig used to request a client certificate when `kubeconfig` does not exist; `kubeconfig` is then written."},
		{Path: "certDirectory", Kind: kindPath, derived: "`pki` in `rootDirectory`", doc: "Directory for certificates signed by the API server, with their keys."},
		{Path: "rotateCertificates", Kind: kindBool, def: true, doc: "Whether a requested client certificate is renewed before it expires."},
		{Path: "serverTLSBootstrap", Kind: kindBool, def: false, doc: "Whether a serving certificate is requested from the API server, too."},
		{Path: "registerNode", Kind: kindBool, def: true, doc: "Whether the Node object is created when it is missing."},
		{Path: "apiServerPods", Kind: kindBool, def: false, doc: "Whether pods that the API server of `kubeconfig` binds to this node run here, in addition to those of manifests; see `monopod docs apiserver`. On conflict the pod of a manifest wins."},
		{Path: "apiServerServices", Kind: kindBool, def: false, doc: "Whether to implement Services of the API server of `kubeconfig` for `apiServerPods` pods, with the same cluster IPs and node ports, on machines without kube-proxy. Only pods of this machine are endpoints. `serviceSubnet` must not be off."},
		{Path: "registerWithTaints", Kind: KindStrings, def: []string{ownPodsOnly}, doc: "Taints of the Node when it is created, as `key=value:NoSchedule`. The default keeps schedulers away, so that only the pods of this machine's own manifests run here; with `apiServerPods` it is omitted."},
		{Path: "nodeLeaseDurationSeconds", Kind: kindInt, def: int64(40), doc: "Seconds after which the API server considers this machine dead when its lease is not renewed. The lease is renewed four times in that period."},
		{Path: "nodeStatusUpdateFrequency", Kind: kindDuration, def: 10 * time.Second, doc: "Interval at which the status of the Node is computed; it is sent when it has changed."},
		{Path: "nodeStatusReportFrequency", Kind: kindDuration, def: 5 * time.Minute, doc: "Interval at which an unchanged status of the Node is sent."},
		{Path: "eventRecordQPS", Kind: kindInt, def: int64(50), doc: "Maximum number of events sent to the API server per second. 0: no limit."},
		{Path: "eventBurst", Kind: kindInt, def: int64(100), doc: "Maximum burst of events sent to the API server."},
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
		c.add("bootstrapKubeconfig", "has no effect without kubeconfig", "set kubeconfig to the file to be written")
	}
	if cfg.APIServerPods && cfg.Kubeconfig == "" {
		c.add("apiServerPods", "has no effect without kubeconfig", "set kubeconfig to the file that names the API server")
	}
	if cfg.APIServerServices && !cfg.APIServerPods {
		c.add("apiServerServices", "has no effect without apiServerPods", "set apiServerPods: true")
	}
	for _, t := range cfg.RegisterWithTaints {
		if _, err := ParseTaint(t); err != nil {
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

// ParseTaint reads key=value:Effect or key:Effect.
func ParseTaint(text string) (corev1.Taint, error) {
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
