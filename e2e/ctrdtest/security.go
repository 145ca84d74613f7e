//go:build e2e

package ctrdtest

import (
	"fmt"
	"strings"
	"testing"

	"monopod/manifests/decode"
	"monopod/manifests/policy"
)

// Tell starts a pod whose container c runs a script, and returns what that wrote to its termination message. The
// manifest has %s where the image and the command belong.
func (a *Agent) Tell(t *testing.T, manifest, script string) string {
	t.Helper()
	command := fmt.Sprintf("image: %s\n    command: [sh, -c, %q]", TestImage, "{ "+script+"; } > /dev/termination-log 2>&1")
	pods, err := decode.Pods("/x/pod.yaml", []byte(fmt.Sprintf(manifest, command)), decode.Options{
		Source: "file", Policy: policy.Policy{AllowedUnsafeSysctls: []string{"kernel.msg*"}},
	})
	Check(t, err)
	pod := pods[0]
	if err := StartPod(t.Context(), a, pod); err != nil {
		t.Fatal(err)
	}
	message := a.Exit(t, pod.Key()).Exit.Message
	if err := RemovePod(t.Context(), a, pod.Key()); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(message)
}
