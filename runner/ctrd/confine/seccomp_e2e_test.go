//go:build e2e

package confine_test

import (
	"fmt"
	"testing"

	"monopod/e2e/ctrdtest"
	"monopod/runner/ctrd"
)

// TestSeccompByDefault is seccompDefault of the configuration.
func TestSeccompByDefault(t *testing.T) {
	a := ctrdtest.NewWorld(t).OpenWith(t, func(c *ctrd.Config) { c.SeccompDefault = true })
	defer a.End(t)
	const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: confined}
spec:
  hostNetwork: true
  containers:
  - name: c
    securityContext: %s
    `
	for security, want := range map[string]string{"{}": "2", "{seccompProfile: {type: Unconfined}}": "0", "{privileged: true}": "0"} {
		if got := a.Tell(t, fmt.Sprintf(manifest, security)+"%s\n", `sed -n 's/^Seccomp:[[:space:]]*//p' /proc/self/status`); got != want {
			t.Errorf("%s: seccomp mode %s, want %s", security, got, want)
		}
	}
}
