package diagnose

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/logfile"
	"monopod/internal/testfiles"
	"monopod/runner/podstatus"
	"monopod/runner/runtimetest"
)

// listening writes a proc file system in which process 70 of the container with id aaa, and process 80 of no container, listen on ports.
func listening(t *testing.T, ports ...int) (proc string) {
	t.Helper()
	proc = t.TempDir()
	var table strings.Builder
	table.WriteString("  sl  local_address rem_address st ...\n")
	for i, port := range ports {
		fmt.Fprintf(&table, "%4d: 00000000:%04X 00000000:0000 0A 0:0 0:0 0 0 0 %d\n", i, port, 1000+port)
	}
	for pid, cgroup := range map[int]string{70: "0::/pods/aaa", 80: "0::/system.slice/nginx"} {
		dir := filepath.Join(proc, fmt.Sprint(pid))
		testfiles.Write(t, filepath.Join(dir, "cgroup"), cgroup)
		testfiles.Write(t, filepath.Join(dir, "comm"), fmt.Sprintf("program%d\n", pid))
		testfiles.Write(t, filepath.Join(dir, "net", "tcp"), table.String())
		testfiles.Write(t, filepath.Join(dir, "fd", "0"), "")
	}
	for i, port := range ports { // the first one is of the container
		pid := "80"
		if i == 0 {
			pid = "70"
		}
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", 1000+port), filepath.Join(proc, pid, "fd", fmt.Sprint(3+i))); err != nil {
			t.Fatal(err)
		}
	}
	testfiles.Write(t, filepath.Join(proc, "self", "net", "tcp"), table.String())
	return proc
}

// running returns the status of a pod on the host network whose container has the id aaa.
func running(edit func(*corev1.Pod)) podstatus.Status {
	p := runtimetest.NewPod("web", runtimetest.NewContainer("c", "serve")).Object
	p.Spec.HostNetwork = true
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://aaa", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	edit(p)
	return podstatus.Status{Pod: p}
}

func TestWhoListensOnThePortThatAProgramCouldNotOpen(t *testing.T) {
	e := &Explainer{Proc: listening(t, 80, 8080, 9090)}
	of := running(func(*corev1.Pod) {})
	for name, c := range map[string]struct {
		output string
		edit   func(*corev1.Container)
		want   string
	}{
		"the output has its number":    {"bind: address already in use :8080", func(c *corev1.Container) { c.Args = []string{"9090"} }, "8080 program80 "},
		"of a container":               {"listen tcp :80: bind: address already in use", func(*corev1.Container) {}, "80 program70 default/web c"},
		"a number in the command":      {"address already in use", func(c *corev1.Container) { c.Command = []string{"serve", "--port=9090"} }, "9090 program80 "},
		"a number in the environment":  {"address already in use", func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "ADDR", Value: "0.0.0.0:8080"}} }, "8080 program80 "},
		"no port is mentioned":         {"it crashed", func(c *corev1.Container) { c.Args = []string{"9090"} }, ""},
		"no port, but the pod has one": {"it crashed", func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 8080}} }, "8080 program80 "},
		"nobody listens there":         {"listen tcp :81: bind: address already in use", func(*corev1.Container) {}, ""},
	} {
		pod := runtimetest.NewPod("other", runtimetest.NewContainer("c", "serve")).Object
		pod.Spec.Containers[0].Command = nil
		c.edit(&pod.Spec.Containers[0])
		var got []string
		for _, l := range e.holders(map[string][]string{"c": strings.Split(c.output, "\n")}, pod, []podstatus.Status{of}) {
			got = append(got, strings.TrimSuffix(fmt.Sprintf("%d %s %s %s", l.Port, l.Name, l.Pod, l.Container), " "))
			if l.Protocol != "TCP" || l.IP != "" {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhoListensInsideAContainerThatRefusesProbes(t *testing.T) {
	e := &Explainer{Proc: listening(t, 80, 8080)}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want []int
	}{
		"own network": {func(p *corev1.Pod) { p.Spec.HostNetwork = false }, []int{80, 8080}},
		// the machine has listeners that are not the pod's
		"host network": {func(*corev1.Pod) {}, []int{80}},
		"it has ended": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running = nil }, nil},
		"no process":   {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://bbb" }, nil},
		"another one":  {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "other" }, nil},
	} {
		s := running(c.edit)
		var got []int
		for _, l := range e.inside(s.Pod, "c", []podstatus.Status{s}) {
			got = append(got, l.Port)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTheLastLinesAreThoseOfTheInstanceThatEnded(t *testing.T) {
	logs := filepath.Join(t.TempDir(), "pods")
	line := func(text string) string { return "2026-01-02T03:04:05.000000000Z stdout F " + text + "\n" }
	for file, text := range map[string]string{
		"ended/0.log": line("old"), "ended/1.log": line("one") + line("two"), "running/0.log": line("fine"), "init/0.log": line("first"),
	} {
		testfiles.Write(t, filepath.Join(logs, "default_web_u", file), text)
	}
	end := &corev1.ContainerStateTerminated{ContainerID: "containerd://aaa"}
	s := running(func(p *corev1.Pod) {
		p.UID = "u"
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", ContainerID: "containerd://iii", State: corev1.ContainerState{Terminated: end}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "ended", ContainerID: "containerd://aaa", LastTerminationState: corev1.ContainerState{Terminated: end}},
			{Name: "running", ContainerID: "containerd://bbb", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "lost", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}, // nobody knows which one ended
			{Name: "unwritten", ContainerID: "containerd://ccc", State: corev1.ContainerState{Terminated: end}},
		}
	})
	got := (&Explainer{Logs: logfile.New(logs)}).output(t.Context(), s.Pod)
	if len(got) != 2 || !slices.Equal(got["ended"], []string{"one", "two"}) || !slices.Equal(got["init"], []string{"first"}) {
		t.Errorf("%q", got)
	}
}
