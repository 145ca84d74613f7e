package examples

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/spec"
)

func TestEachExampleLoadsAndHasAPlanAndASpec(t *testing.T) {
	n := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pods, err := manifests.Load(path, data, manifests.Options{Source: "file"})
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		for _, p := range pods {
			n++
			planned(t, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 3 {
		t.Errorf("only %d pods found", n)
	}
}

func planned(t *testing.T, p *manifests.Pod) {
	t.Helper()
	actions, _ := runner.Plan(time.Unix(1, 0), p, runner.Observed{NewUID: "uid"})
	starts := 0
	for _, a := range actions {
		if a.Kind == runner.StartContainer {
			starts++
		}
	}
	if starts != len(p.Object.Spec.Containers) {
		t.Errorf("%s: %d containers would start, %d are written: %v", p.Key(), starts, len(p.Object.Spec.Containers), actions)
	}
	host := spec.Host{Cgroups: spec.Cgroups{Root: "/monopod"}, MemoryBytes: 1 << 30, MilliCPU: 1000, NodeName: "node", NodeIPs: []string{"192.0.2.1"}, Capabilities: []string{"CAP_CHOWN"}}
	if _, err := spec.Volumes(p.Object, host); err != nil {
		t.Errorf("%s: %v", p.Key(), err)
	}
	for _, c := range p.Object.Spec.Containers {
		in := spec.Input{Pod: p.Object, Container: c.Name, Host: host}
		in.Image.Entrypoint = []string{"/bin/program"}
		in.User = user(p.Object, c.Name)
		if err := spec.Check(in); err != nil {
			t.Errorf("%s: container %s: %v", p.Key(), c.Name, err)
		}
	}
}

// user is what the runtime would find in the image.
func user(pod *corev1.Pod, container string) (u spec.User) {
	uid, gid, _ := spec.RequestedUser(pod, container)
	if uid != nil {
		u.UID = uint32(*uid)
	}
	if gid != nil {
		u.GID = uint32(*gid)
	}
	return u
}
