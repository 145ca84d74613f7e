package testbed

import (
	"fmt"
	"os"
	"path/filepath"
)

// Everything is a configuration with nearly every feature: an API server, a trace collector and a source that do not answer, all ports,
// rules for users and images, thresholds, and a memory budget. It serves to measure the cost of all that.
type Everything struct {
	// Served, Open and Health are ports on 127.0.0.1: with TLS, without TLS, and for health.
	Served, Open, Health int32
	// Lines are the lines of the configuration, in YAML.
	Lines []string
}

// Token is a bearer token that may get metrics from Everything.Served.
const Token = "0123456789abcdef"

// NewEverything writes the required files to dir. Each call of port must return an unused port.
func NewEverything(dir string, port func() int32) (Everything, error) {
	e := Everything{Served: port(), Open: port(), Health: port()}
	dead := func() string { return fmt.Sprintf("127.0.0.1:%d", port()) }
	for name, text := range map[string]string{
		"kubeconfig": "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://" + dead() + "'}}]\n" +
			"users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n",
		"tokens": Token + ",prometheus\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return e, err
		}
	}
	e.Lines = []string{
		"kubeconfig: " + filepath.Join(dir, "kubeconfig"), "apiServerPods: true", "nodeLabels: {site: lab}",
		"address: 127.0.0.1", fmt.Sprintf("port: %d", e.Served), fmt.Sprintf("readOnlyPort: %d", e.Open), fmt.Sprintf("healthzPort: %d", e.Health),
		"authentication: {tokenFile: " + filepath.Join(dir, "tokens") + "}", `authorization: {mode: Rules, rules: {"user:prometheus": [metrics, stats]}}`,
		"enableProfilingHandler: true", "tracing: {endpoint: '" + dead() + "', samplingRatePerMillion: 1000000}",
		"imagePolicy: [{match: registry.example, action: deny}, {match: '*'}]", "imageMaximumGCAge: 100h",
		"evictionSoft: {memory.available: 20Mi, pid.available: 1%}", "evictionSoftGracePeriod: {memory.available: 1m, pid.available: 1m}",
		"sources: [{name: fleet, url: 'http://" + dead() + "/pods'}]", "autoRollback: {enabled: true}", "shutdownGracePeriod: 30s", "agentMemoryBudget: 96Mi",
	}
	return e, nil
}
