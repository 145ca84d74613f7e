package lookup

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/model"
	"monopod/internal/objects"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/runner/runtimetest"
)

// TestACommandReachesAPodByItsNameOrByWhatOwnsIt asks a daemon with a Deployment of two pods, and two Services before them.
func TestACommandReachesAPodByItsNameOrByWhatOwnsIt(t *testing.T) {
	t.Parallel()
	d := clitest.New(t, commands)
	d.StartWorkloads()
	for _, c := range []struct {
		kind, name string
		pod        string // or
		err        string
		said       string
	}{
		{"Pod", "web-1", "web-1", "", ""},
		{"Deployment", "web", "web-0", "", "Found 2 pods, using pod/web-0\n"},
		{"Service", "web", "web-0", "", "Found 2 pods, using pod/web-0\n"},
		{"Pod", "wbe-1", "", `pod "wbe-1" not found in namespace "default"`, ""},
		{"Deployment", "nope", "", "not found", ""},
		{"ReplicationController", "old", "", "has no pods; see `monopod why -n default old`", ""},
		{"ConfigMap", "settings", "", "a ConfigMap has no pods; name a pod, a workload or a service", ""},
	} {
		p := d.Program()
		var errs bytes.Buffer
		p.Stderr = &errs
		r, err := NewCommands(p.Program).Reach(t.Context(), d.Client(), program.Object{Kind: c.kind, Key: manifests.Key{Namespace: "default", Name: c.name}})
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %s: %v, want %s", c.kind, c.name, err, c.err)
		case c.err == "" && (err != nil || r.Key() != manifests.Key{Namespace: "default", Name: c.pod}):
			t.Errorf("%s %s: %v, want pod %s", c.kind, c.name, err, c.pod)
		}
		if errs.String() != c.said {
			t.Errorf("%s %s says %q, want %q", c.kind, c.name, &errs, c.said)
		}
	}
	var missing program.NotFoundError
	if _, err := FindObject(t.Context(), d.Client(), program.Object{Kind: "Job", Key: manifests.Key{Namespace: "default", Name: "nope"}}); !errors.As(err, &missing) {
		t.Errorf("a caller cannot tell that it is not there: %v", err)
	}
	item, err := FindObject(t.Context(), d.Client(), program.Object{Kind: "Job", Key: manifests.Key{Namespace: "default", Name: "once"}})
	if err != nil || item.Kind != "Job" || item.Object.GetName() != "once" {
		t.Errorf("%v: %+v", err, item)
	}
}

// TestWhatIsNotThereMayBeElsewhere: the answer tells where to look.
func TestWhatIsNotThereMayBeElsewhere(t *testing.T) {
	t.Parallel()
	d := clitest.New(t, commands)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Ready("web")
	find := func(namespace, name string) string {
		if _, err := FindPod(t.Context(), d.Client(), manifests.Key{Namespace: namespace, Name: name}); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, c := range []struct{ namespace, name, want string }{
		{"default", "web", ""},
		{"other", "web", "default"},
	} {
		if got := find(c.namespace, c.name); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s/%s: %q, want %q", c.namespace, c.name, got, c.want)
		}
	}
	if got := find("default", "nothing-alike"); strings.Contains(got, "get sources") {
		t.Errorf("all could be read: %s", got)
	}
	d.Put("broken.yaml", "kind: Pod\n")
	d.Eventually("the file is refused", func() error {
		if got := find("default", "nothing-alike"); !strings.Contains(got, "; not all inputs could be read, see `monopod get sources`") {
			return errors.New(got)
		}
		return nil
	})
}

func TestAPortIsThatOfThePodWhoseServiceIsNamed(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
		{Name: "http", ContainerPort: 8080}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "admin", ContainerPort: 9000, Protocol: corev1.ProtocolTCP},
	}}}}}
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "main", Port: 80, TargetPort: intstr.FromString("http")}, {Name: "same", Port: 443}, {Port: 81, TargetPort: intstr.FromInt32(9000)}, {Name: "lost", Port: 82, TargetPort: intstr.FromString("nope")},
	}}}
	for _, c := range []struct {
		text            string
		direct, through int
	}{
		{"http", 8080, 0},
		{"admin", 9000, 0},
		{"80", 80, 8080},
		{"main", 0, 8080},
		{"443", 443, 443},
		{"81", 81, 9000},
		{"82", 82, 0},
		{"8080", 8080, 0},
		{"dns", 0, 0},
		{"65536", 0, 0},
		{"-1", 0, 0},
		{"", 0, 0},
	} {
		if got := (Reached{Pod: pod, by: objects.Item{Kind: "Pod", Object: pod}}).Port(c.text); got != c.direct {
			t.Errorf("%q of the pod: %d, want %d", c.text, got, c.direct)
		}
		if c.text == "" {
			continue // a port of a Service needs no name
		}
		if got := (Reached{Pod: pod, by: objects.Item{Kind: "Service", Object: service}}).Port(c.text); got != c.through {
			t.Errorf("%q of the Service: %d, want %d", c.text, got, c.through)
		}
	}
}

func TestSelectorsAndProblems(t *testing.T) {
	t.Parallel()
	if s, err := ParseSelector(""); err != nil || !s.Empty() {
		t.Errorf("nothing selects everything: %v, %v", s, err)
	}
	var usage program.UsageError
	if _, err := ParseSelector("a=b=c"); !errors.As(err, &usage) || !strings.Contains(err.Error(), `-l "a=b=c": `) {
		t.Errorf("%v", err)
	}
	for state, want := range map[model.InputState]bool{model.InputAccepted: false, model.InputIgnored: false, model.InputRefused: true, model.InputUnreachable: true} {
		if got := IsProblem(model.Input{State: state}); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
}
