package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

const (
	deploymentFile = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: app}]}
`
	ownedFile = `apiVersion: v1
kind: Pod
metadata:
  name: web-5d9c-abcde
  labels: {a: b, pod-template-hash: 5d9c}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d9c, uid: r1, controller: true}]
spec: {containers: [{name: c, image: app}]}
`
)

// TestWhatAControllerOfAnotherFileMakesIsNotRunTwice, and counts for itself again without the controller.
func TestWhatAControllerOfAnotherFileMakesIsNotRunTwice(t *testing.T) {
	dir := t.TempDir()
	deploy, pods := filepath.Join(dir, "deploy.yaml"), filepath.Join(dir, "pods.yaml")
	watchertest.Must(t, os.WriteFile(pods, []byte(ownedFile), 0o600))
	s := standWith(t, Config{Path: dir, Load: realLoad}, hasty())
	s.Until("the pod alone", func(set watcher.Set) bool { return len(set.Pods) == 1 && len(set.Pods[0].Object.OwnerReferences) == 0 })

	watchertest.Must(t, os.WriteFile(deploy, []byte(deploymentFile), 0o600))
	set := s.Until("the controller alone", func(set watcher.Set) bool { return len(set.Workloads) == 1 && len(set.Pods) == 0 })
	i := slices.IndexFunc(set.Inputs, func(r model.Input) bool { return r.Input == pods })
	if i < 0 {
		t.Fatalf("no report on %s: %+v", pods, set.Inputs)
	}
	want := pods + ":1: pod default/web-5d9c-abcde: ignored: Deployment default/web creates it, so it would run twice"
	if r := set.Inputs[i]; r.State != model.InputIgnored || strings.Join(r.Errors, "\n") != want || len(r.Pods) > 0 {
		t.Errorf("%+v, want %s", r, want)
	}

	watchertest.Must(t, os.WriteFile(deploy, []byte("kind: Deploymnt\n"), 0o600))
	s.State(deploy, model.InputRefused)
	if set := s.Until("the last good content", func(watcher.Set) bool { return true }); len(set.Pods) > 0 {
		t.Error("a broken edit of the controller starts the pod")
	}
	watchertest.Must(t, os.Remove(deploy))
	s.Until("the pod again", func(set watcher.Set) bool { return len(set.Pods) == 1 && len(set.Workloads) == 0 })
	s.State(pods, model.InputAccepted)
}
