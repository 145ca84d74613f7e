//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

// sleeper is a pod of one container that runs a shell script and exits immediately on SIGTERM.
func sleeper(name, script string, more ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
%s
`, name, name, image, "trap 'exit 0' TERM; "+script+"; while :; do sleep 3600 & wait $!; done", strings.Join(more, "\n"))
}

func containerID(p corev1.Pod, name string) string {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == name {
			return s.ContainerID
		}
	}
	return ""
}

func TestAManifestBecomesAPodAndGoesWithItsFile(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("one", sleeper("one", "echo hello from $POD; echo oops >&2", `    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`))
	p := in.ready("one")
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || !strings.HasPrefix(p.Status.PodIP, strings.TrimSuffix(in.subnet, "0/24")) {
		t.Errorf("phase and address are %s", brief(p))
	}
	in.eventually("both lines are in the log", func() error {
		out, err := in.run("logs", "one")
		if err == nil && !strings.Contains(out, "hello from one\n") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	files, err := filepath.Glob(filepath.Join(in.dir, "logs/pods", "default_one_"+string(p.UID), "c", "0.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("log files: %v %v", files, err)
	}
	links, _ := filepath.Glob(filepath.Join(in.dir, "logs/containers", "one_default_c-*.log"))
	if len(links) != 1 {
		t.Errorf("links in containers/: %v", links)
	}
	out, err := in.run("describe", "pod", "one")
	if err != nil || !strings.Contains(out, "one.yaml") {
		t.Errorf("describe does not name the file: %v\n%s", err, out)
	}
	in.drop("one")
	in.gone("one")
}

func TestAnEditOfOneContainerRestartsOnlyThatOne(t *testing.T) {
	in := newInstance(t)
	in.start()
	pod := func(greeting, label string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: duo, labels: {v: %q}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: a, image: %[2]s, command: [sh, -c, "trap 'exit 0' TERM; echo %[3]s; while :; do sleep 3600 & wait $!; done"]}
  - {name: b, image: %[2]s, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"]}
`, label, image, greeting)
	}
	in.put("duo", pod("first", "1"))
	before := in.ready("duo")
	in.put("duo", pod("second", "1"))
	after := in.pod("duo", "has a new container a", func(p corev1.Pod) bool {
		return isReady(p) && containerID(p, "a") != containerID(before, "a")
	})
	if containerID(after, "b") != containerID(before, "b") {
		t.Error("container b was restarted by an edit of a")
	}
	if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("uid or address changed: %s %s, then %s %s", before.UID, before.Status.PodIP, after.UID, after.Status.PodIP)
	}
	in.put("duo", pod("second", "2"))
	labeled := in.pod("duo", "shows its new label", func(p corev1.Pod) bool { return p.Labels["v"] == "2" })
	if containerID(labeled, "a") != containerID(after, "a") || containerID(labeled, "b") != containerID(after, "b") {
		t.Error("a change of labels restarted a container")
	}
	in.put("duo", strings.Replace(pod("second", "2"), "spec:", "spec:\n  hostname: other", 1))
	replaced := in.pod("duo", "has a new sandbox", func(p corev1.Pod) bool { return isReady(p) && p.UID != before.UID })
	if containerID(replaced, "b") == containerID(before, "b") {
		t.Error("a change of the sandbox left container b alone")
	}
}

// beforeEvents returns the part of describe about the current state; earlier problems are among the events.
func beforeEvents(described string) string {
	now, _, _ := strings.Cut(described, "\nEvents:\n")
	return now
}

// untouched returns a check that the present pods are still the same ones, running, with the same processes.
func (in *instance) untouched(names ...string) (check func(when string)) {
	in.t.Helper()
	seen := func(when string) (all map[string]corev1.Pod) {
		in.t.Helper()
		in.eventually(when+" all are ready", func() (err error) {
			if all, err = in.pods(); err != nil {
				return err
			}
			for _, name := range names {
				if p := all[name]; !isReady(p) {
					return fmt.Errorf("%s is %s", name, brief(p))
				}
			}
			return nil
		})
		return all
	}
	was, pids := seen("before"), map[string]int{}
	for _, name := range names {
		pids[name] = in.pidOf(name)
	}
	return func(when string) {
		in.t.Helper()
		all := seen(when)
		for _, name := range names {
			p, before := all[name], was[name]
			if p.UID != before.UID || containerID(p, "c") != containerID(before, "c") || restarts(p) != restarts(before) || p.DeletionTimestamp != nil {
				in.t.Errorf("%s: %s was touched: %s", when, name, brief(p))
			}
			id := strings.TrimPrefix(containerID(before, "c"), "containerd://")
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pids[name])); err != nil || !strings.Contains(string(b), id) {
				in.t.Errorf("%s: process %d of %s is gone: %v", when, pids[name], name, err)
			}
		}
	}
}

func TestABadEditNeverStopsWhatRuns(t *testing.T) {
	in := newInstance(t)
	in.start()
	good := sleeper("steady", "echo up")
	in.put("steady", good)
	in.put("beside", sleeper("beside", "echo up"))
	untouched := in.untouched("steady", "beside")
	path := filepath.Join(in.manifests, "steady.yaml")
	reported := func(says string) {
		t.Helper()
		in.eventually("the problem is reported", func() error {
			sources, err1 := in.run("get", "sources")
			pods, err2 := in.run("describe", "pod", "steady")
			if strings.Contains(sources+beforeEvents(pods), says) {
				return nil
			}
			return errors.Join(err1, err2, fmt.Errorf("%q is not in:\n%s\n%s", says, sources, pods))
		})
	}
	cases := []struct {
		name, text, says string
	}{
		{"a typo in a field", strings.Replace(good, "image:", "imag:", 1), `did you mean "image"`},
		{"half a file", good[:len(good)/2], "spec.containers[0]: expected a mapping"},
		{"an empty file", "", "it is empty"},
		{"not YAML", "{{{ nonsense", "steady.yaml:1:2: "},
		{"a pod that is not valid", strings.Replace(good, "name: c", "name: C_", 1), "spec.containers[0].name"},
		{"a key that is given twice", good + "  containers: []\n", "duplicate field"},
		{"a field that cannot be honored", good + "  schedulingGates: [{name: example.com/gate}]\n", "schedulingGates"},
		{"an image that nobody has", strings.Replace(good, image, "127.0.0.1:1/none:1", 1), "ErrImagePull"},
		{"a host path that is not there", good + "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: /no/such/dir, type: Directory}}]\n", "hostPath"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			reported(c.says)
			untouched("then")
		})
	}
	in.put("steady", good)
	in.eventually("all is fine again", in.fine)
	untouched("with the good file again")
	t.Run("a backup of the file with another name", func(t *testing.T) {
		in.write(path+".bak", strings.Replace(good, "echo up", "echo backup", 1))
		reported("steady.yaml.bak")
		untouched("then")
	})
	t.Run("the agent starts anew with a broken file", func(t *testing.T) {
		in.put("steady", "{{{ nonsense")
		in.kill9()
		in.start()
		reported("steady.yaml:1:2: ")
		untouched("then")
		in.put("steady", good)
		in.eventually("all is fine again", in.fine)
		untouched("with the good file again")
	})
}

// TestADirectoryThatIsGoneStopsNoPod unmounts the file system of the directory, and then removes the directory.
func TestADirectoryThatIsGoneStopsNoPod(t *testing.T) {
	in := newInstance(t, "fileCheckFrequency: 1s") // nothing tells of what is unmounted
	mount := func() {
		t.Helper()
		if err := syscall.Mount("monopod-e2e", in.manifests, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() error { return syscall.Unmount(in.manifests, syscall.MNT_DETACH) }
	mount()
	t.Cleanup(func() { _ = unmount() }) // should the test fail before
	in.start()
	fill := func() {
		for _, name := range []string{"one", "two"} {
			in.put(name, sleeper(name, "echo up"))
		}
	}
	fill()
	untouched := in.untouched("one", "two")
	if err := unmount(); err != nil {
		t.Fatal(err)
	}
	in.reports("Unreachable")
	untouched("unmounted")
	mount()
	fill()
	in.eventually("the files are read again", func() error {
		out, err := in.run("get", "sources")
		if err == nil && (strings.Contains(out, "Unreachable") || strings.Count(out, "Accepted") < 3) {
			err = errors.New(out)
		}
		return err
	})
	untouched("mounted again")
	if err := unmount(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(in.manifests); err != nil {
		t.Fatal(err)
	}
	in.reports("Unreachable")
	untouched("removed")
	in.kill9()
	in.start()
	in.reports("Unreachable")
	untouched("not there at the start of the agent")
	if err := os.Mkdir(in.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	in.put("two", sleeper("two", "echo up"))
	in.put("three", sleeper("three", "echo up"))
	in.ready("three")
	in.gone("one") // now it is known that nobody wants it
}

func TestPodsOutliveTheAgent(t *testing.T) {
	in := newInstance(t)
	in.start()
	const pods = 30
	for i := range pods {
		network := "  hostNetwork: true"
		if i%3 == 0 {
			network = ""
		}
		in.put(fmt.Sprintf("p%d", i), sleeper(fmt.Sprintf("p%d", i), "n=0; echo start", network))
	}
	before := map[string]string{}
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		before[name] = containerID(in.ready(name), "c")
	}
	same := func(when string) {
		t.Helper()
		for name, id := range before {
			p := in.ready(name)
			if containerID(p, "c") != id || p.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("%s: %s was restarted: %s", when, name, brief(p))
			}
		}
	}
	in.kill9()
	t0 := time.Now()
	in.start()
	in.eventually("all pods are shown", func() error {
		all, err := in.pods()
		if err == nil && len(all) != pods {
			err = fmt.Errorf("%d pods", len(all))
		}
		return err
	})
	t.Logf("re-adopted %d pods %v after the start of the new agent (with the race detector)", pods, time.Since(t0))
	same("after kill -9")
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM the agent ended with %v", err)
	}
	in.start()
	same("after SIGTERM")
}

func TestAnExitWhileTheAgentIsAwayIsSeenWithItsCode(t *testing.T) {
	in := newInstance(t)
	gate := filepath.Join(in.dir, "gate")
	if err := os.Mkdir(gate, 0o755); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.put("away", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: away}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: %s
    command: [sh, -c, "echo first; until [ -e /gate/go ]; do sleep 0.05; done; echo last words; touch /gate/gone; exit 7"]
    volumeMounts: [{name: gate, mountPath: /gate}]
  volumes: [{name: gate, hostPath: {path: %s, type: Directory}}]
`, image, gate))
	in.ready("away")
	in.kill9()
	if err := os.WriteFile(filepath.Join(gate, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	in.eventually("the container has exited", func() error {
		_, err := os.Stat(filepath.Join(gate, "gone"))
		return err
	})
	in.start()
	p := in.pod("away", "has failed", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if term := p.Status.ContainerStatuses[0].State.Terminated; term == nil || term.ExitCode != 7 || term.Reason != "Error" {
		t.Errorf("the exit is %s", brief(p))
	}
	in.eventually("the last words are in the log", func() error {
		out, err := in.run("logs", "away")
		if err == nil && out != "first\nlast words\n" {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
}

func TestOutputWhileTheAgentIsAwayIsNotLost(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("count", sleeper("count", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; [ $((i%50)) = 0 ] && sleep 0.02; done; echo the end"))
	in.ready("count")
	for range 4 {
		in.kill9()
		in.start()
	}
	in.eventually("the last line has arrived", func() error {
		out, err := in.run("logs", "count", "--tail", "1")
		if err == nil && !strings.Contains(out, "the end") {
			err = fmt.Errorf("last line is %q", out)
		}
		return err
	})
	out, err := in.run("logs", "count")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i := range 3000 {
		if i >= len(lines) || lines[i] != fmt.Sprintf("line %d", i+1) {
			t.Fatalf("line %d of %d is wrong or missing: %q", i+1, len(lines), lines[min(i, len(lines)-1)])
		}
	}
}

func TestCrashBackOffSurvivesTheAgent(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("crash", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: crash}
spec:
  containers: [{name: c, image: %s, command: [sh, -c, "echo run; exit 3"]}]
`, image))
	waiting := func(p corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CrashLoopBackOff"
	}
	p := in.pod("crash", "waits after its second exit", waiting)
	ended := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if ended == nil || ended.ExitCode != 3 {
		t.Fatalf("last state is %s", brief(p))
	}
	in.kill9()
	in.start()
	again := in.pod("crash", "still waits", waiting)
	if id := again.Status.ContainerStatuses[0].LastTerminationState.Terminated.ContainerID; id != ended.ContainerID {
		t.Errorf("the agent forgot the back-off: container is %s, was %s", id, ended.ContainerID)
	}
	third := in.pod("crash", "is started a third time", func(p corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 2 })
	in.eventually("the third exit is known", func() error {
		all, err := in.pods()
		if err == nil {
			third = all["crash"]
			if t3 := third.Status.ContainerStatuses[0].LastTerminationState.Terminated; t3 == nil || t3.ContainerID == ended.ContainerID {
				err = errors.New(brief(third))
			}
		}
		return err
	})
	t3 := third.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if wait := t3.StartedAt.Sub(ended.FinishedAt.Time); wait < 9*time.Second || wait > 19*time.Second {
		t.Errorf("second restart came %v after the exit, want the 10 s of the back-off", wait)
	}
	if out, err := in.run("logs", "crash", "--previous"); err != nil || out != "run\n" {
		t.Errorf("logs --previous: %q %v", out, err)
	}
}

func TestHostPortsAnswerOnLoopbackAndOnTheNodeAddress(t *testing.T) {
	in := newInstance(t)
	in.start()
	port := fmt.Sprint(ports.Take(t))
	onPort := "    ports: [{containerPort: 80, hostPort: " + port + "}]"
	in.put("www", sleeper("www", "mkdir -p /tmp/w && echo served >/tmp/w/index.html && (httpd -f -p 80 -h /tmp/w &)", onPort))
	p := in.ready("www")
	for _, addr := range []string{"127.0.0.1:" + port, p.Status.HostIP + ":" + port, p.Status.PodIP + ":80"} {
		in.eventually(addr+" answers", func() error {
			c := http.Client{Timeout: 2 * time.Second}
			r, err := c.Get("http://" + addr + "/")
			if err != nil {
				return err
			}
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			if err == nil && string(b) != "served\n" {
				err = fmt.Errorf("answer is %q", b)
			}
			return err
		})
	}
	in.put("xtaken", sleeper("xtaken", "echo", onPort))
	in.explains("xtaken", cause.HostPortPod, port+"/TCP is taken by pod default/www")
	out, err := in.run("describe", "pod", "xtaken")
	if err != nil || !strings.Contains(beforeEvents(out), port) {
		t.Errorf("describe does not name the port: %v\n%s", err, out)
	}
	in.drop("www")
	in.ready("xtaken")
}

func TestTwoInstancesDoNotMeet(t *testing.T) {
	a, b := newInstance(t), newInstance(t)
	a.start()
	b.start()
	a.put("same", sleeper("same", "echo a"))
	b.put("same", sleeper("same", "echo b"))
	pa, pb := a.ready("same"), b.ready("same")
	if pa.UID == pb.UID || pa.Status.PodIP == pb.Status.PodIP {
		t.Errorf("two instances share a pod: %s %s", brief(pa), brief(pb))
	}
	a.drop("same")
	a.gone("same")
	if p := b.ready("same"); containerID(p, "c") != containerID(pb, "c") {
		t.Error("removing the pod of one instance touched the other")
	}
	second := exec.Command(filepath.Join(a.bin, "monopod"), "run", "--config", a.config)
	out, err := second.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), strconv.Itoa(a.cmd.Process.Pid)) {
		t.Errorf("a second instance on the same directories: %v\n%s", err, out)
	}
}

func TestAPodComesBackAfterAReboot(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("phoenix", sleeper("phoenix", "echo run"))
	in.put("done", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"done"},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":%q,"command":["sh","-c","exit 0"]}]}}`, image))
	before := in.ready("phoenix")
	done := in.pod("done", "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	in.eventually("the exit is on the disk", func() error {
		// the record of the shim goes when it is
		if left, _ := filepath.Glob(filepath.Join(in.state, "exits", "*")); len(left) > 0 {
			return fmt.Errorf("exit records %v", left)
		}
		return nil
	})
	in.kill9()
	in.powerCut()
	in.start()
	after := in.pod("phoenix", "runs again", func(p corev1.Pod) bool { return isReady(p) && containerID(p, "c") != containerID(before, "c") })
	if after.UID != before.UID {
		t.Errorf("uid was %s, is %s", before.UID, after.UID)
	}
	if p := in.pod("done", "is still there", func(p corev1.Pod) bool { return true }); p.Status.Phase != corev1.PodSucceeded || containerID(p, "c") != containerID(done, "c") {
		t.Errorf("a completed pod ran again: %s", brief(p))
	}
}

// powerCut reduces the instance to what a power cut leaves: nothing in /run, no process, no mount.
func (in *instance) powerCut() {
	in.t.Helper()
	for _, pid := range in.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	in.eventually("all processes of the instance are gone", func() error {
		if left := in.processes(); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		in.t.Fatal(err)
	}
	var points []string
	for line := range strings.SplitSeq(string(b), "\n") {
		if f := strings.Fields(line); len(f) > 4 && (strings.HasPrefix(f[4], in.state+"/") || strings.HasPrefix(f[4], in.dir+"/")) {
			points = append(points, f[4])
		}
	}
	slices.Reverse(points)
	for _, p := range points {
		if err := syscall.Unmount(p, syscall.MNT_DETACH); err != nil {
			in.t.Errorf("unmount %s: %v", p, err)
		}
	}
	if err := os.RemoveAll(in.state); err != nil {
		in.t.Fatal(err)
	}
	if err := os.MkdirAll(in.state, 0o755); err != nil {
		in.t.Fatal(err)
	}
}

// processes returns the shims of the instance and their children.
func (in *instance) processes() []int {
	parent := map[int]int{}
	mine := map[int]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if f[0] == "Z" {
			continue
		}
		parent[pid], _ = strconv.Atoi(f[1])
		cwd, _ := os.Readlink(d + "/cwd")
		cmdline, _ := os.ReadFile(d + "/cmdline")
		mine[pid] = strings.HasPrefix(cwd, in.state+"/") || strings.Contains(string(cmdline), in.state)
	}
	var pids []int
	for pid := range parent {
		for p := pid; p > 1; p = parent[p] {
			if mine[p] {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

func TestValidateSpeaksLikeACompiler(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - name: c\n    imag: y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	out, err := exec.Command(filepath.Join(binaries(t), "monopod-client"), "validate", dir).CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), bad+":7:5: ") || !strings.Contains(string(out), `did you mean "image"`) {
		t.Errorf("validate: %v\n%s", err, out)
	}
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	examples = append(examples, "../examples/volumes")
	for _, paths := range [][]string{examples, {"../examples/hello/manifests"}, {"../examples/ci/pods.yaml", "../examples/ci/smoke.yaml"}} {
		out, err := exec.Command(filepath.Join(binaries(t), "monopod-client"), append([]string{"validate"}, paths...)...).CombinedOutput()
		if err != nil {
			t.Errorf("the examples are refused: %v\n%s", err, out)
		}
	}
	jsonOut, err := exec.Command(filepath.Join(binaries(t), "monopod-client"), "validate", "-o", "json", dir).Output()
	if !errors.As(err, &exit) || !json.Valid(jsonOut) {
		t.Errorf("validate -o json: %v\n%s", err, jsonOut)
	}
}

func TestWithoutPodNetworkTheHostNetworkStillServes(t *testing.T) {
	in := newInstance(t)
	taken := strings.TrimSuffix(in.subnet, "0/24") + "77/32"
	if out, err := exec.Command("ip", "address", "add", taken, "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free := func() { _ = exec.Command("ip", "address", "del", taken, "dev", "lo").Run() }
	t.Cleanup(free)
	in.start()
	in.put("host", sleeper("host", "echo", "  hostNetwork: true"))
	in.ready("host")
	in.put("net", sleeper("net", "echo"))
	in.eventually("the pod says which address is in the way", func() error {
		out, err := in.run("describe", "pod", "net")
		if err == nil && (!strings.Contains(out, "podCIDR") || !strings.Contains(out, "overlaps")) {
			err = errors.New(out)
		}
		return err
	})
	free()
	in.ready("net")
}
