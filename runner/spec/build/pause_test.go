package build

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/spec/spectest"
)

func TestPauseMakesTheNamespaceThatContainersJoin(t *testing.T) {
	pod := spectest.Pod(func(p *corev1.Pod, _ *corev1.Container) { p.Spec.ShareProcessNamespace = new(true) })
	in := spectest.Input(pod, "app")
	in.Sandbox.PIDNS = "/run/monopod/ns/s1/pid"
	in.Host.MinOOMScoreAdj = -1000
	app, err := Spec(in)
	if err != nil {
		t.Fatal(err)
	}
	if path, _ := namespace(app, specs.PIDNamespace); path != in.Sandbox.PIDNS {
		t.Errorf("the container's process namespace is %q", path)
	}
	pause := Pause(in, "/bin/shim")
	if path, ok := namespace(pause, specs.PIDNamespace); path != "" || !ok {
		t.Errorf("process 1 joins %q (listed: %t)", path, ok)
	}
	for _, kind := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
		want, _ := namespace(app, kind)
		if got, ok := namespace(pause, kind); got != want || !ok {
			t.Errorf("%s is %q, want %q", kind, got, want)
		}
	}
	p := pause.Process
	if c := p.Capabilities; len(c.Bounding)+len(c.Effective)+len(c.Permitted)+len(c.Ambient)+len(c.Inheritable) > 0 {
		t.Errorf("process 1 has capabilities: %v", c)
	}
	if p.User.UID == 0 || !p.NoNewPrivileges || !pause.Root.Readonly || *p.OOMScoreAdj != -998 {
		t.Errorf("process 1 is %+v in a root that is read-only: %t", p, pause.Root.Readonly)
	}
}
