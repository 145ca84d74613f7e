//go:build e2e

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestAttackSwappedFiles: a container that swaps directories of a volume for FIFOs holds up neither a pod with fsGroup that mounts
// the volume, nor the end of the agent.
func TestAttackSwappedFiles(t *testing.T) {
	a := newAttacked(t)
	a.put("claim", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: shared}\nspec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}\n")
	pod := func(name, security, script string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {%s}
  containers:
  - name: c
    image: %s
    command: [sh, -c, '%s']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: shared}}]
`, name, security, image, script)
	}
	a.put("swapper", pod("swapper", "", `cd /data; for i in 1 2 3 4 5 6 7 8; do mkdir -p d$i; mkfifo f$i; done; `+
		`while :; do for i in 1 2 3 4 5 6 7 8; do mv -T d$i x; mv f$i d$i; mv d$i f$i; mv -T x d$i; done; done`))
	a.ready("swapper")
	a.survives("swapped files", func() {
		for i := range 5 {
			name := fmt.Sprintf("group-%d", i)
			a.put(name, pod(name, "fsGroup: 4321", "exec sleep 3600"))
			a.ready(name)
		}
	})
	started := time.Now()
	if err := a.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(started); d > 10*time.Second {
		t.Errorf("the agent took %v to end", d)
	}
	a.start()
	if p := a.ready("group-0"); p.Status.Phase != corev1.PodRunning {
		t.Errorf("%s", brief(p))
	}
}
