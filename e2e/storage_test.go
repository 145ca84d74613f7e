//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAnEvictedPodComesBack as a new pod, whose volume is empty. The agent is killed while the pod waits.
func TestAnEvictedPodComesBack(t *testing.T) {
	in := newInstance(t)
	in.start()
	host := filepath.Join(in.dir, "host")
	if err := os.Mkdir(host, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(host, 0o777); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: eats}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - name: c
    image: %s
    command: [sh, -c, "ls /v >> /host/seen; echo seen >> /host/seen; dd if=/dev/zero of=/v/f bs=64k count=$(cat /host/count 2>/dev/null || echo 32); %[3]s"]
    volumeMounts: [{name: v, mountPath: /v}, {name: host, mountPath: /host}]
  - name: other
    image: %[1]s
    command: [sh, -c, "%[3]s"]
    volumeMounts: [{name: host, mountPath: /host}]
  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}, {name: host, hostPath: {path: %[2]s}}]
`, image, host, "trap 'test ! -e /host/stop || exit' TERM; while :; do sleep 1; done")
	// The grace period is longer than the test: only an eviction ends the containers earlier.
	t.Cleanup(func() { in.write(filepath.Join(host, "stop"), "") })
	in.put("eats", text)
	first := in.ready("eats")
	p := in.pod("eats", "is evicted", func(p corev1.Pod) bool { return p.Status.Reason == "Evicted" })
	if p.Status.Phase != corev1.PodFailed || p.Status.Message != `Usage of EmptyDir volume "v" exceeds the limit "1Mi".` || p.UID != first.UID {
		t.Errorf("%s", brief(p))
	}
	in.pod("eats", "has stopped", func(p corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated == nil {
				return false
			}
		}
		return true
	})
	in.write(filepath.Join(host, "count"), "4")
	in.kill9()
	in.start()
	if again := in.ready("eats"); again.UID == first.UID || again.Status.Reason != "" {
		t.Errorf("%s", brief(again))
	}
	in.eventually("its volume was empty each time", func() error {
		b, err := os.ReadFile(filepath.Join(host, "seen"))
		if err == nil && string(b) != "seen\nseen\n" {
			err = fmt.Errorf("it had %q", b)
		}
		return err
	})
}
