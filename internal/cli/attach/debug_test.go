package attach

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/runner/runtimetest"
)

func TestDebugAddsAContainer(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Ready("web")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"debug", 2, "usage: monopod debug POD"},
		{"debug gone --image i", 1, `pod "gone" not found`},
		{"debug web --profile none", 2, `unknown profile "none"`},
		{"debug web --target none", 1, `has no container "none"`},
		{"debug web -c dbg", 0, ""},
		{"debug web", 0, "Defaulting debug container name to debugger-"},
		{"debug web -c dbg --image other:1", 1, "may not be changed"},
		{"debug web -i -c short -- exit&3", 3, "container short terminated with exit code 3"},
	} {
		p := d.Program()
		var out, errs bytes.Buffer
		p.Stdin, p.Stdout, p.Stderr = strings.NewReader(""), &out, &errs
		args := strings.Fields(c.args)
		args[len(args)-1] = strings.ReplaceAll(args[len(args)-1], "&", " ")
		if code := commands(t.Context(), p, args); code != c.code || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit code %d, %q", c.args, code, &errs)
		}
	}
	d.Eventually("it runs", func() error {
		pod, err := d.Client().Pod(t.Context(), "default", "web")
		if err != nil {
			return err
		}
		for _, s := range pod.Status.EphemeralContainerStatuses {
			if s.Name == "dbg" && s.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status.EphemeralContainerStatuses)
	})
}

func TestWhatADebuggerIs(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}, {Name: "b", Image: "b:1", ImagePullPolicy: corev1.PullNever}}}}
	for name, c := range map[string]struct {
		o    debugOptions
		want string
	}{
		"of the first":  {debugOptions{profile: profileBaseline}, "a:1  "},
		"of the target": {debugOptions{profile: profileGeneral, target: "b"}, "b:1 Never b [SYS_PTRACE]"},
		"of its own":    {debugOptions{profile: profileSysadmin, target: "b", image: "c:1"}, "c:1  b privileged"},
	} {
		e, err := c.o.ephemeral(pod, []string{"sh"})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(e.Image, " ", e.ImagePullPolicy, " ", e.TargetContainerName)
		switch s := e.SecurityContext; {
		case s == nil:
		case s.Privileged != nil:
			got += " privileged"
		default:
			got += fmt.Sprint(" ", s.Capabilities.Add)
		}
		if got != c.want || !strings.HasPrefix(e.Name, "debugger-") {
			t.Errorf("%s: %q, %s", name, got, e.Name)
		}
	}
}
