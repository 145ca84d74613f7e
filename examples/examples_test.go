package examples

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
	"monopod/runner/spec/volumeplan"
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
		content, err := decode.All(path, data, decode.Options{Source: "file"})
		if err != nil {
			t.Errorf("refused: %v", err)
			return nil
		}
		if len(content.Ignored) > 0 {
			t.Errorf("%s: %v", path, content.Ignored)
		}
		objects := manifests.NewObjects(content.Objects)
		for _, p := range content.Pods {
			n++
			planned(t, manifests.WithRefs(p, nil, objects))
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

func TestTheRestrictedExampleIsWhatItSays(t *testing.T) {
	for file, allowed := range map[string]bool{"restricted.yaml": true, "daemonset.yaml": false} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = decode.All(file, data, decode.Options{Policy: policy.Policy{PodSecurity: "restricted"}})
		if (err == nil) != allowed {
			t.Errorf("%s under the standard restricted: %v", file, err)
		}
	}
}

func planned(t *testing.T, p *manifests.Pod) {
	t.Helper()
	actions, _ := plan.Plan(time.Unix(1, 0), p, plan.Observed{NewUID: "uid"})
	starts := 0
	for _, a := range actions {
		if a.Kind == runner.StartContainer {
			starts++
		}
	}
	wanted := len(p.Object.Spec.Containers)
	if len(p.Object.Spec.InitContainers) > 0 {
		wanted = 1 // the first of them, before all others
	}
	if starts != wanted {
		t.Errorf("%s: %d containers would start first, want %d: %v", p.Key(), starts, wanted, actions)
	}
	host := spec.Host{Cgroups: spec.Cgroups{Root: "/monopod"}, MemoryBytes: 1 << 30, MilliCPU: 1000, NodeName: "node", NodeIPs: []string{"192.0.2.1"}, Capabilities: []string{"CAP_CHOWN"}}
	if _, err := volumeplan.ForPod(p.Object, host); err != nil {
		t.Errorf("%s: %v", p.Key(), err)
	}
	for _, c := range p.Object.Spec.Containers {
		in := spec.Input{Pod: p.Object, Container: c.Name, Host: host, Refs: p.Refs}
		in.Image.Entrypoint = []string{"/bin/program"}
		in.User = user(p.Object, c.Name)
		if err := build.Check(in); err != nil {
			t.Errorf("%s: container %s: %v", p.Key(), c.Name, err)
		}
	}
}

// user is what the runtime would find in the image.
func user(pod *corev1.Pod, container string) (u spec.User) {
	uid, gid, _ := build.RequestedUser(pod, container)
	if uid != nil {
		u.UID = uint32(*uid)
	}
	if gid != nil {
		u.GID = uint32(*gid)
	}
	return u
}
