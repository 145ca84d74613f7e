//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// scratchClass is a StorageClass whose directories are removed with their claims.
const scratchClass = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: scratch}\nprovisioner: rancher.io/local-path\nreclaimPolicy: Delete\n"

// TestClaimsOverThePowerCut: a StatefulSet and a pod find their data again after a kill of the agent and a power cut. The data of the set
// is kept; that of the pod's claim is removed with the claim, as its class specifies, but not before the pod.
func TestClaimsOverThePowerCut(t *testing.T) {
	in := newInstance(t)
	in.start()
	set := fmt.Sprintf(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: %%d
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: c, image: %s, command: [sh, -c, "echo $HOSTNAME >> /data/runs; exec sleep 1000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: scratch, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, image)
	pod := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %s, command: [sh, -c, "echo run >> /data/runs; exec sleep 1000"], volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: one}}]
`, image)
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: one}\nspec: {storageClassName: scratch, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	in.put("class", scratchClass)
	in.put("db", fmt.Sprintf(set, 2))
	in.put("one", pod)
	in.pod("one", "waits for its claim", func(p corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "FailedMount"
	})
	in.put("claim", claim)
	runs := func(claim, want string) {
		t.Helper()
		in.eventually("claim "+claim+" has its data", func() error {
			b, err := os.ReadFile(filepath.Join(in.dir, "root", "volumes", "default", claim, "runs"))
			if err == nil && string(b) != want {
				err = fmt.Errorf("it holds %q", b)
			}
			return err
		})
	}
	for _, name := range []string{"one", "db-0", "db-1"} {
		in.ready(name)
	}
	runs("one", "run\n")
	runs("data-db-0", "db-0\n")
	runs("data-db-1", "db-1\n")
	in.kill9()
	in.powerCut()
	in.start()
	runs("one", "run\nrun\n")
	runs("data-db-0", "db-0\ndb-0\n")
	runs("data-db-1", "db-1\ndb-1\n")
	in.put("db", fmt.Sprintf(set, 1))
	in.podNames("one", "db-0")
	in.put("db", fmt.Sprintf(set, 2))
	runs("data-db-1", strings.Repeat("db-1\n", 3))

	in.drop("claim")
	in.eventually("the claim is not wanted any more", func() error {
		out, err := in.run("get", "sources", "-o", "name")
		if err == nil && strings.Contains(out, "/claim.yaml") {
			err = errors.New(out)
		}
		return err
	})
	in.ready("one")
	runs("one", "run\nrun\n")
	in.drop("one")
	in.drop("db")
	in.eventually("the directory of the claim is gone", func() error {
		_, err := os.Stat(filepath.Join(in.dir, "root", "volumes", "default", "one"))
		if err == nil {
			return errors.New("it is there")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	in.podNames()
	runs("data-db-0", "db-0\ndb-0\n")
}
