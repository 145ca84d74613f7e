//go:build e2e

package ctrdtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/runner"
)

// ClaimPod is a pod of one container that runs a script and then sleeps.
func ClaimPod(name, script, mounts, volumes string, more ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  %s
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
    %s
  volumes: %s
`, name, strings.Join(more, "\n  "), TestImage, "exec 2>&1; "+script+"; exec sleep 1000", mounts, volumes)
}

const (
	// OnData mounts the volume d of a ClaimPod.
	OnData = "volumeMounts: [{name: d, mountPath: /data}]"
	// ByData has that volume, of the claim data.
	ByData = "[{name: d, persistentVolumeClaim: {claimName: data}}]"
)

// Claim returns the manifest of a PersistentVolumeClaim with more fields of its spec.
func Claim(name, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%s}\n", name, more)
}

// VolumeYAML returns the manifest of a PersistentVolume.
func VolumeYAML(name, size, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: %s}, %s}\n", name, size, more)
}

// Waits checks that a pod waits for its volume with a text.
func (s *Stage) Waits(name, text string) {
	s.T.Helper()
	reason, why := "", ""
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if reason, why = s.Why(name); reason == runner.ReasonFailedMount && strings.Contains(why, text) {
			return
		}
	}
	s.T.Fatalf("pod %s: %s %q, want %q", name, reason, why, text)
}

// Clear removes all manifests and waits until the pods are gone.
func (s *Stage) Clear() {
	s.T.Helper()
	s.Play("# nothing")
	Within(s.T, 20*time.Second, "the pods are gone", func() bool { return len(s.Pool.Pods())+len(s.Index.List()) == 0 })
	s.Idle(s.T)
}

// PIDOf returns the process of the only container of a pod.
func (s *Stage) PIDOf(name string) uint32 {
	s.T.Helper()
	return s.PID(s.T, manifests.Key{Namespace: "default", Name: name})
}

// Again closes the agent and starts the next one on its state. The pods keep running.
func (w *World) Again(s *Stage, between func()) *Stage {
	s.T.Helper()
	s.Stop()
	s.Agent.Stop(s.T)
	between()
	return w.Stage(s.T)
}

// Read returns the content of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	Check(t, err)
	return string(b)
}

// LoopDevice makes a block device of a file.
func LoopDevice(t testing.TB, file string) string {
	t.Helper()
	f, err := os.Create(file)
	Check(t, err)
	Check(t, f.Truncate(16<<20))
	Check(t, f.Close())
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { Check(t, exec.Command("losetup", "--detach", dev).Run()) })
	return dev
}
