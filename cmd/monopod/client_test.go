package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/node"
	"monopod/runner"
	"monopod/runner/ctrd/logs"
	"monopod/runner/runtimetest"
)

// fill writes the manifests of the golden tests for a daemon that has not been started.
func (d *testDaemon) fill() {
	d.fake.Fail = func(key manifests.Key, a runner.Action) error {
		if key.Name == "pull" && a.Kind == runner.EnsureImage {
			return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("pull example.com/app:1: no such host")}
		}
		return nil
	}
	d.put("10-web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe, runtimetest.ScriptServe)+`    ports: [{containerPort: 80, hostPort: 8080, protocol: TCP}]
    resources: {limits: {cpu: 2, memory: 64Mi}}
    volumeMounts: [{name: data, mountPath: /data}, {name: host, mountPath: /host, readOnly: true}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: host, hostPath: {path: /srv, type: Directory}}
`)
	// The flow style of podYAML ends with the last container, so that one is written out.
	d.put("10-web.yaml", strings.Replace(d.read("10-web.yaml"), `  - {name: b, image: example.com/app:1, command: [sh, -c, `+strconv.Quote(runtimetest.ScriptServe)+"]}\n",
		"  - name: b\n    image: example.com/app:1\n    command: [sh, -c, "+strconv.Quote(runtimetest.ScriptServe)+"]\n", 1))
	d.put("20-crash.yaml", daemontest.PodYAML("crash", runtimetest.ScriptFail))
	d.put("30-pull.yaml", strings.Replace(daemontest.PodYAML("pull", runtimetest.ScriptServe), "metadata: {", "metadata: {namespace: other, ", 1))
	d.put("40-again.yaml", daemontest.PodYAML("web", runtimetest.ScriptFail))
	d.put("50-broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	d.put("README.txt", "not a manifest\n")
}

func (d *testDaemon) read(name string) string {
	d.t.Helper()
	b, err := os.ReadFile(d.path("manifests", name))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// settled starts a daemon with the manifests of the golden tests and waits until all pods have reached their final state.
func settled(t *testing.T) *testDaemon {
	t.Helper()
	d := newDaemon(t)
	d.fill()
	d.fake.StopClock() // else it is tried again some time
	d.prog.Machine.Now = d.fake.Now
	d.start()
	d.shows("CrashLoopBackOff", "get", "pods")
	d.shows("ImagePullBackOff", "get", "pods")
	d.shows("2/2", "get", "pods")
	return d
}

func TestWhatTheClientCommandsPrint(t *testing.T) {
	d := settled(t)
	d.writeLogs()
	for _, c := range []struct {
		name string
		args []string
	}{
		{"get-pods", []string{"get", "pods"}},
		{"get-pods-wide", []string{"get", "po", "-A", "-o", "wide"}},
		{"get-pods-name", []string{"get", "pods", "-o", "name"}},
		{"get-pods-of-a-namespace", []string{"get", "pods", "-n", "other"}},
		{"get-pods-of-an-empty-namespace", []string{"get", "pods", "-n", "nothing"}},
		{"get-pod", []string{"get", "pod", "web"}},
		{"get-pod-yaml", []string{"get", "pod/web", "-o", "yaml"}},
		{"get-pod-of-another-namespace", []string{"get", "pod", "pull"}},
		{"get-pod-unknown", []string{"get", "pod", "nope"}},
		{"get-sources", []string{"get", "sources"}},
		{"get-sources-name", []string{"get", "sources", "-o", "name"}},
		{"get-nonsense", []string{"get", "pdos"}},
		{"get-too-much", []string{"get", "sources", "x"}},
		{"get-bad-format", []string{"get", "pods", "-o", "table"}},
		{"describe-web", []string{"describe", "pod", "web"}},
		{"describe-crash", []string{"describe", "pod", "default/crash"}},
		{"describe-pull", []string{"describe", "pod", "pull", "-n", "other"}},
		{"describe-nothing", []string{"describe", "pod"}},
		{"describe-node", []string{"describe", "node", "x"}},
		{"logs", []string{"logs", "web", "-c", "a"}},
		{"logs-default-container", []string{"logs", "web"}},
		{"logs-positional-container", []string{"logs", "web", "b"}},
		{"logs-timestamps-tail", []string{"logs", "web", "-c", "a", "--timestamps", "--tail=1"}},
		{"logs-limit", []string{"logs", "web", "-c", "a", "--limit-bytes=4"}},
		{"logs-since-time", []string{"logs", "web", "-c", "a", "--since-time=2026-01-01T00:00:01.5Z"}},
		{"logs-since-in-the-far-future-is-nothing", []string{"logs", "web", "-c", "a", "--since-time=2100-01-01T00:00:00Z"}},
		{"logs-previous-missing", []string{"logs", "web", "-c", "a", "--previous"}},
		{"logs-previous", []string{"logs", "crash", "--previous"}},
		{"logs-of-the-last-run-while-it-waits", []string{"logs", "crash"}},
		{"logs-waiting", []string{"logs", "-n", "other", "pull"}},
		{"logs-no-such-container", []string{"logs", "web", "-c", "z"}},
		{"logs-no-such-pod", []string{"logs", "nope"}},
		{"logs-bad-since", []string{"logs", "web", "--since=yesterday"}},
		{"logs-both-since", []string{"logs", "web", "--since=1m", "--since-time=2100-01-01T00:00:00Z"}},
		{"logs-negative-tail", []string{"logs", "web", "--tail=-5"}},
		{"logs-two-containers", []string{"logs", "web", "a", "-c", "b"}},
		{"unknown-command", []string{"gte"}},
		{"unknown-flag", []string{"get", "pods", "--wat"}},
		{"version-with-argument", []string{"version", "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.cmd(c.args...)
			got := fmt.Sprintf("$ monopod %s\n%s", strings.Join(c.args, " "), d.steady(r.stdout))
			if r.stderr != "" {
				got += "-- stderr --\n" + d.steady(r.stderr)
			}
			testfiles.Compare(t, filepath.Join("testdata", "client", c.name+".txt"), got+fmt.Sprintf("-- exit code %d --\n", r.code))
		})
	}
}

// writeLogs writes the output of the containers of web and crash, because the fake runs nothing.
func (d *testDaemon) writeLogs() {
	d.t.Helper()
	d.logLines("web", "a", "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n")
	d.logLines("web", "b", "2026-01-01T00:00:01Z stdout P half \n2026-01-01T00:00:02Z stdout F line\n")
	d.logLines("crash", "a", "2026-01-01T00:00:01Z stderr F it hurts\n")
}

// logLines writes the log of the last instance of a container, with its link, and returns its path.
func (d *testDaemon) logLines(pod, container, text string) string {
	d.t.Helper()
	p := d.pod(pod)
	var id string
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			id = strings.TrimPrefix(c.ContainerID, "containerd://")
		}
	}
	path := d.path("logs", "pods", fmt.Sprintf("default_%s_%s", pod, p.UID), container, "3.log")
	testfiles.Write(d.t, path, text)
	if err := logs.Link(d.path("logs", "containers"), logs.LinkName{Pod: pod, Namespace: "default", Container: container, ID: id}, path); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// pod returns `get pod NAME -o json`.
func (d *testDaemon) pod(name string) corev1.Pod {
	d.t.Helper()
	r := d.cmd("get", "pod", name, "-o", "json")
	var p corev1.Pod
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
		d.t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
	}
	return p
}

func TestJSONIsAPodListThatStrictToolsCanRead(t *testing.T) {
	d := settled(t)
	r := d.cmd("get", "pods", "-o", "json")
	var list corev1.PodList
	if err := yaml.UnmarshalStrict([]byte(r.stdout), &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 3 {
		t.Errorf("list is %s %s with %d items", list.APIVersion, list.Kind, len(list.Items))
	}
	for _, p := range list.Items {
		if p.Kind != "Pod" || p.APIVersion != "v1" || p.UID == "" || p.Spec.NodeName != "test-node" {
			t.Errorf("item %s: kind %q, version %q, uid %q, node %q", p.Name, p.Kind, p.APIVersion, p.UID, p.Spec.NodeName)
		}
		if src := p.Annotations[node.AnnotationSource]; !strings.HasPrefix(src, d.path("manifests")) || !strings.HasSuffix(src, ".yaml:1") {
			t.Errorf("source of %s is %q", p.Name, src)
		}
	}
	if why := list.Items[2].Annotations[node.AnnotationWhy]; !strings.Contains(why, "no such host") {
		t.Errorf("why of %s is %q", list.Items[2].Name, why)
	}
	var fromYAML corev1.PodList
	if err := yaml.UnmarshalStrict([]byte(d.cmd("get", "pods", "-o", "yaml").stdout), &fromYAML); err != nil || len(fromYAML.Items) != 3 {
		t.Errorf("yaml: %v, %d items", err, len(fromYAML.Items))
	}
	var inputs []model.Input
	if err := json.Unmarshal([]byte(d.cmd("get", "sources", "-o", "json").stdout), &inputs); err != nil || len(inputs) < 5 {
		t.Errorf("sources: %v, %d", err, len(inputs))
	}
}

func TestWatchShowsEachChangeUntilItIsStopped(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.start()
	for _, output := range []string{"", "json", "yaml", "name"} {
		t.Run("output "+output, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			p := d.program()
			out := &daemontest.SyncBuffer{}
			p.Stdout = out
			code := make(chan int, 1)
			go func() { code <- NewCommands(p).run(ctx, []string{"get", "pods", "-w", "-o", output}) }()
			name := "w" + output
			d.put(name+".yaml", daemontest.PodYAML(name, runtimetest.ScriptServe))
			want := map[string]string{"": "Running", "json": `"phase": "Running"`, "yaml": "phase: Running", "name": "pod/" + name}[output]
			d.eventually("the pod is shown running", func() error {
				if s := out.String(); !strings.Contains(s, want) || !strings.Contains(s, name) {
					return errors.New(s)
				}
				return nil
			})
			if err := os.Remove(d.path("manifests", name+".yaml")); err != nil {
				t.Fatal(err)
			}
			d.eventually("its end is shown", func() error {
				if s := out.String(); output == "" && !strings.Contains(s, "Deleted") {
					return errors.New(s)
				}
				if r := d.cmd("get", "pods", "-o", "name"); r.stdout != "" {
					return errors.New(r.stdout)
				}
				return nil
			})
			if n := strings.Count(out.String(), "NAMESPACE"); output == "" && n != 1 {
				t.Errorf("%d headers:\n%s", n, out)
			}
			stop()
			if c := <-code; c != program.ExitOK {
				t.Errorf("exit code %d after Ctrl-C", c)
			}
		})
	}
}

func TestAFollowedLogEndsWithItsContainer(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "spec:", "spec:\n  restartPolicy: Never", 1))
	d.start()
	d.shows("Running", "get", "pods")
	path := d.logLines("web", "a", "2026-01-01T00:00:01Z stdout F one\n")
	p := d.program()
	out := &daemontest.SyncBuffer{}
	p.Stdout = out
	code := make(chan int, 1)
	go func() { code <- NewCommands(p).run(t.Context(), []string{"logs", "-f", "web"}) }()
	says := func(want string) {
		t.Helper()
		d.eventually("the log says "+want, func() error {
			if s := out.String(); s != want {
				return errors.New(s)
			}
			return nil
		})
	}
	says("one\n")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "2026-01-01T00:00:02Z stdout F two")
	says("one\ntwo\n")
	if err := d.fake.Exit(manifests.Key{Namespace: "default", Name: "web"}, "a", 0); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != program.ExitOK {
			t.Errorf("exit code %d", c)
		}
	case <-time.After(daemontest.Patience):
		t.Error("logs -f goes on after the end of the container")
	}
}

func TestWithoutADaemonClientsSayHowToStartIt(t *testing.T) {
	d := newDaemon(t)
	for _, args := range [][]string{{"get", "pods"}, {"get", "sources"}, {"describe", "pod", "x"}, {"logs", "x"}, {"get", "pods", "-w"}} {
		r := d.cmd(args...)
		if r.code != program.ExitError || !strings.Contains(r.stderr, "is monopod running? Start it with `monopod run`") || !strings.Contains(r.stderr, d.path("run", "monopod.sock")) {
			t.Errorf("%v: code %d: %s", args, r.code, r.stderr)
		}
	}
	// A socket that a killed daemon has left behind.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path("stale.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if r := d.cmd("get", "pods", "--socket", d.path("stale.sock")); r.code != program.ExitError || !strings.Contains(r.stderr, "nobody answers on "+d.path("stale.sock")) {
		t.Errorf("stale socket: code %d: %s", r.code, r.stderr)
	}
}

func TestClientsFindTheSocketByFlagVariableOrConfiguration(t *testing.T) {
	d := newDaemon(t)
	p := d.program()
	p.Env.Environ = []string{"MONOPOD_CONFIG=" + d.path("config.yaml")}
	if got := p.FindSocket(""); got != d.path("run", "monopod.sock") {
		t.Errorf("by configuration: %s", got)
	}
	p.Env.Environ = append(p.Env.Environ, "MONOPOD_SOCKET=/by/variable")
	if got := p.FindSocket(""); got != "/by/variable" {
		t.Errorf("by variable: %s", got)
	}
	if got := p.FindSocket("/by/flag"); got != "/by/flag" {
		t.Errorf("by flag: %s", got)
	}
	testfiles.Write(t, d.path("config.yaml"), "nonsense: 1\n")
	p.Env.Environ = p.Env.Environ[:1]
	if got := p.FindSocket(""); got != program.BuiltInSocket {
		t.Errorf("with a bad configuration: %s", got)
	}
}
