package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"monopod/internal/config"
	"monopod/internal/daemon"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/dirlock"
	"monopod/internal/program"
	"monopod/internal/run"
	"monopod/internal/testfiles"
	"monopod/internal/trial"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// runBench runs `once`, `up` and `down` in this process, each slot on a fake machine of its own.
type runBench struct {
	*testDaemon
	mu sync.Mutex
	// machines are the fakes by root directory.
	machines map[string]*runtimetest.Fake
	// fail is given to machines that are made.
	fail func(manifests.Key, runner.Action) error
	// kept are the configurations of runs that were left.
	kept []*config.Loaded
	// opened gets the configuration of each runtime that is opened.
	opened []*config.Loaded
}

func newRunBench(t *testing.T) *runBench {
	t.Helper()
	return &runBench{testDaemon: newDaemon(t), machines: map[string]*runtimetest.Fake{}}
}

func (b *runBench) machine(root string) *runtimetest.Fake {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.machines[root] == nil {
		b.machines[root] = runtimetest.NewFake()
		b.machines[root].Fail = b.fail
	}
	return b.machines[root]
}

func (b *runBench) keep(_ context.Context, cfg *config.Loaded, file string) error {
	b.kept = append(b.kept, cfg)
	_, err := os.Stat(file)
	return err
}

// prog returns a command line with its own output.
func (b *runBench) prog() (*program.Program, *bytes.Buffer, *bytes.Buffer) {
	p := b.program()
	p.Machine.Open = func(_ context.Context, cfg *config.Loaded, _ containers.Deps) (containers.Runtime, error) {
		f := b.machine(cfg.RootDirectory)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.opened = append(b.opened, cfg)
		return &daemontest.FakeRuntime{Fake: f}, nil
	}
	p.Machine.Runs = daemon.RunMachine{SubnetLocks: b.path("subnets.lock"), Free: func(string) error { return nil }, Keep: b.keep}
	p.Env.Environ = append(p.Env.Environ, "PATH="+os.Getenv("PATH"))
	out, errs := &bytes.Buffer{}, &bytes.Buffer{}
	p.Stdout, p.Stderr = out, errs
	return p, out, errs
}

func (b *runBench) do(args ...string) result { return b.doContext(b.t.Context(), args...) }

func (b *runBench) doContext(ctx context.Context, args ...string) result {
	p, out, errs := b.prog()
	flags := []string{args[0], "--config", b.path("config.yaml")}
	if args[0] == "once" || args[0] == "up" {
		flags = append(flags, "--min-ready", "0s")
	}
	code := NewCommands(p).run(ctx, append(flags, args[1:]...))
	return result{out.String(), errs.String(), code}
}

// file writes a manifest for -f and returns its path.
func (b *runBench) file(name, text string) string {
	b.t.Helper()
	path := b.path(name)
	testfiles.Write(b.t, path, text)
	return path
}

// nothingLeft checks that no run has left a pod or a file but its log and its lock.
func (b *runBench) nothingLeft() {
	b.t.Helper()
	for root, f := range b.machines {
		if keys, err := f.List(context.Background()); err != nil || len(keys) > 0 {
			b.t.Errorf("%s: pods are left: %v %v", root, keys, err)
		}
		entries, err := os.ReadDir(root)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != dirlock.LockName && e.Name() != run.RunLog {
				b.t.Errorf("left: %s", filepath.Join(root, e.Name()))
			}
		}
	}
	if _, err := os.Stat(b.path("run-runs")); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("the state directories are left: %v", err)
	}
}

func once(name, script string) string {
	return daemontest.PodYAML(name, script) + "  restartPolicy: Never\n"
}

func TestOnceSaysHowThePodsCameOut(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		flags []string
		// late rows end by --timeout, which is doubled while it is too short for the other pods.
		late bool
		code int
		rows []string
	}{
		"ready and finished": {
			files: []string{daemontest.PodYAML("web", runtimetest.ScriptServe), once("load", runtimetest.ScriptSucceed)}, code: 0,
			rows: []string{"default load 0/1 Completed ok", "default web 1/1 Running ok"},
		},
		"one has failed": {
			files: []string{daemontest.PodYAML("web", runtimetest.ScriptServe), once("load", runtimetest.ScriptFail)}, code: 1,
			rows: []string{"default load 0/1 Error failed", "default web 1/1 Running ok"},
		},
		"one is not up in time": {
			files: []string{daemontest.PodYAML("web", runtimetest.ScriptServe), daemontest.PodYAML("pull", runtimetest.ScriptServe)}, late: true, code: 2,
			rows: []string{"default web 1/1 Running ok", "default pull 0/1 ImagePullBackOff waiting"},
		},
		"one has failed, and one is not up in time": {
			files: []string{once("load", runtimetest.ScriptFail), daemontest.PodYAML("pull", runtimetest.ScriptServe)}, late: true, code: 1,
			rows: []string{"default load 0/1 Error failed", "default pull 0/1 ImagePullBackOff waiting"},
		},
		"the first that fails is enough": {
			files: []string{once("load", runtimetest.ScriptFail), daemontest.PodYAML("pull", runtimetest.ScriptServe)}, flags: []string{"--fail-fast"}, code: 1,
			rows: []string{"default load 0/1 Error failed", "default pull waiting"},
		},
		"a Job is waited for": {
			files: []string{"apiVersion: batch/v1\nkind: Job\nmetadata: {name: sums}\nspec:\n  completions: 2\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: a, image: example.com/app:1, command: [sh, -c, " + strconv.Quote(runtimetest.ScriptSucceed) + "]}]\n"},
			rows:  []string{"default sums-0 0/1 Completed ok", "default sums-1 0/1 Completed ok", "default job/sums ok"},
		},
		"a Deployment is waited for": {
			files: []string{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: a, image: example.com/app:1, command: [sh, -c, " + strconv.Quote(runtimetest.ScriptServe) + "]}]\n"},
			rows:  []string{"default web-0 1/1 Running ok", "default web-1 1/1 Running ok", "default deployment/web ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRunBench(t)
			b.fail = func(key manifests.Key, a runner.Action) error {
				if key.Name == "pull" && a.Kind == runner.EnsureImage {
					return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("no such host")}
				}
				return nil
			}
			args := append([]string{"once", "--rm", "--finish", "--junit", b.path("junit.xml"), "--json", b.path("report.json")}, c.flags...)
			for i, text := range c.files {
				args = append(args, "-f", b.file(fmt.Sprintf("%d.yaml", i), text))
			}
			if !c.late {
				if err := cameOut(b.do(args...), c.code, c.rows); err != nil {
					t.Error(err)
				}
			}
			for limit := 300 * time.Millisecond; c.late; limit *= 2 {
				err := cameOut(b.do(append(args, "--timeout", limit.String())...), c.code, c.rows)
				if err == nil {
					break
				}
				if limit > daemontest.Patience {
					t.Fatal(err)
				}
			}
			b.nothingLeft()
			var report trial.Report
			text := b.readPath("report.json")
			if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Pods) == 0 {
				t.Errorf("%v: %s", err, text)
			}
			if !strings.Contains(b.readPath("junit.xml"), "<testcase classname=\"default\"") {
				t.Errorf("no JUnit report: %s", b.readPath("junit.xml"))
			}
		})
	}
}

// cameOut compares what `once` has printed and returned.
func cameOut(r result, code int, rows []string) error {
	var errs []error
	if r.code != code {
		errs = append(errs, fmt.Errorf("exit code %d, want %d:\n%s%s", r.code, code, r.stdout, r.stderr))
	}
	for _, want := range rows {
		if !slices.ContainsFunc(strings.Split(r.stdout, "\n"), func(line string) bool { return hasWords(line, want) }) {
			errs = append(errs, fmt.Errorf("no line %q in\n%s%s", want, r.stdout, r.stderr))
		}
	}
	return errors.Join(errs...)
}

// hasWords reports whether a line contains the words in this order.
func hasWords(line, words string) bool {
	fields := strings.Fields(line)
	for w := range strings.FieldsSeq(words) {
		i := slices.Index(fields, w)
		if i < 0 {
			return false
		}
		fields = fields[i+1:]
	}
	return true
}

func (b *runBench) readPath(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

func TestRunsThatCannotBeginSaySoAndTouchNothing(t *testing.T) {
	b := newRunBench(t)
	good := b.file("good.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	bad := b.file("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
	empty := b.file("empty.yaml", "# nothing\n")
	ports := b.file("ports.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "labels:", "annotations: {monopod.dev/free-host-ports: http}, labels:", 1))
	for name, c := range map[string]struct {
		args []string
		code int
		err  string
	}{
		"no file":                    {[]string{"once"}, program.ExitNotRun, "with -f"},
		"an argument":                {[]string{"once", "-f", good, "x"}, program.ExitNotRun, "unexpected argument"},
		"an unknown flag":            {[]string{"up", "--nope"}, program.ExitNotRun, "unknown flag"},
		"a time that is none":        {[]string{"up", "-f", good, "--timeout", "-1s"}, program.ExitNotRun, "cannot be negative"},
		"an unknown format":          {[]string{"once", "-f", good, "-o", "xml"}, program.ExitNotRun, "unknown output format"},
		"two users of stdout":        {[]string{"up", "-f", good, "-o", "json", "--", "true"}, program.ExitNotRun, "--json FILE"},
		"a bad configuration":        {[]string{"up", "-f", good, "--run-pod-cidr", "10.84.0.1/16", "--", "true"}, program.ExitNotRun, "runPodCIDR"},
		"a manifest that is refused": {[]string{"once", "-f", good, "-f", bad}, program.ExitError, "bad.yaml:4"},
		"the same for up":            {[]string{"up", "-f", bad, "--", "true"}, program.ExitNotRun, "bad.yaml:4"},
		"a pod twice":                {[]string{"once", "-f", good, "-f", b.file("again.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))}, program.ExitError, "already defined"},
		"no pods":                    {[]string{"once", "-f", empty}, program.ExitError, "there are no pods in it"},
		"no such file":               {[]string{"once", "-f", b.path("nope")}, program.ExitError, "no such file"},
		"a port that is not there":   {[]string{"up", "-f", ports, "--", "true"}, program.ExitNotRun, `no container has a port "http"`},
	} {
		t.Run(name, func(t *testing.T) {
			if r := b.do(c.args...); r.code != c.code || !strings.Contains(r.stderr, c.err) {
				t.Errorf("code %d, want %d: %s", r.code, c.code, r.stderr)
			}
		})
	}
	p, _, errs := b.prog()
	p.Euid = func() int { return 1000 }
	if code := NewCommands(p).run(t.Context(), []string{"up", "-f", good, "--config", b.path("config.yaml"), "--", "true"}); code != program.ExitNotRun || !strings.Contains(errs.String(), "must be started by root") {
		t.Errorf("not root: code %d: %s", code, errs)
	}
	if len(b.opened) > 0 {
		t.Errorf("a runtime was opened %d times", len(b.opened))
	}
}

func TestARuntimeThatCannotBeOpenedEndsARun(t *testing.T) {
	t.Parallel()
	b := newRunBench(t)
	p, _, errs := b.prog()
	p.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return nil, errors.New("runc is not in PATH")
	}
	code := NewCommands(p).run(t.Context(), []string{"once", "--rm", "--config", b.path("config.yaml"), "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))})
	if code != program.ExitNotRun || !strings.Contains(errs.String(), "runc is not in PATH") {
		t.Errorf("code %d: %s", code, errs)
	}
	if firstSlot(b).Used() {
		t.Error("there is something left to remove")
	}
}

func TestUpRunsACommandAmongThePods(t *testing.T) {
	b := newRunBench(t)
	web := strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "labels:", "annotations: {monopod.dev/free-host-ports: all}, labels:", 1)
	web = strings.Replace(web, "image: example.com/app:1,", "image: example.com/app:1, ports: [{name: http, containerPort: 8080}],", 1)
	file := b.file("web.yaml", web)
	r := b.do("up", "-f", file, "--", "sh", "-c", `echo "$POD_WEB_IP $POD_WEB_PORT_HTTP $POD_WEB_HOSTPORT $MONOPOD_SOCKET"; exit 7`)
	f := strings.Fields(r.stdout)
	if r.code != 7 || len(f) != 4 || net.ParseIP(f[0]) == nil || f[1] != "8080" || f[3] != b.path("run-runs", "0", "monopod.sock") {
		t.Fatalf("code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if port, err := strconv.Atoi(f[2]); err != nil || port < 1024 {
		t.Errorf("host port %s", f[2])
	}
	b.nothingLeft()
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"success":           {[]string{"true"}, 0},
		"a signal":          {[]string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM)},
		"not found":         {[]string{"/no/such/program"}, run.ExitNotFound},
		"not in PATH":       {[]string{"no-such-program"}, run.ExitNotFound},
		"not a program":     {[]string{file}, run.ExitCannotExecute},
		"its flags are its": {[]string{"sh", "-c", "exit 9", "--rm"}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			if r := b.do(append([]string{"up", "-f", file}, c.args...)...); r.code != c.code {
				t.Errorf("code %d, want %d: %s", r.code, c.code, r.stderr)
			}
			b.nothingLeft()
		})
	}
}

func TestUpDoesNotRunTheCommandWhenAPodFails(t *testing.T) {
	b := newRunBench(t)
	proof := b.path("proof")
	b.fail = func(key manifests.Key, a runner.Action) error {
		if key.Name == "bad" && a.Kind == runner.EnsureImage {
			return &runner.StepError{Reason: runner.ReasonErrImageNeverPull, Err: errors.New("it is not here")}
		}
		return nil
	}
	file := b.file("bad.yaml", daemontest.PodYAML("bad", runtimetest.ScriptServe))
	r := b.do("up", "-f", file, "--json", b.path("report.json"), "--", "touch", proof)
	if r.code != program.ExitNotRun || !strings.Contains(r.stderr, "it is not here") || r.stdout != "" {
		t.Errorf("code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if _, err := os.Stat(proof); err == nil {
		t.Error("the command was run")
	}
	if text := b.readPath("report.json"); !strings.Contains(text, `"result": "failed"`) || strings.Contains(text, `"command"`) {
		t.Errorf("report: %s", text)
	}
	b.nothingLeft()
}

func TestUpWithoutACommandEndsWithItsInput(t *testing.T) {
	b := newRunBench(t)
	r := b.do("up", "-o", "json", "--until-eof", "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe)))
	var report trial.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 0 || report.Result != trial.OK || report.Pods[0].IP == "" {
		t.Errorf("code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	b.nothingLeft()
}

func TestASignalWhilePodsComeUpRemovesThem(t *testing.T) {
	for _, command := range []string{"once", "up"} {
		b := newRunBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		b.fail = func(key manifests.Key, a runner.Action) error {
			if a.Kind == runner.EnsureImage {
				cancel()
				return &runner.StepError{Reason: runner.ReasonErrImagePull, Err: errors.New("no such host")}
			}
			return nil
		}
		r := b.doContext(ctx, command, "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe)))
		if r.code != program.ExitSignal {
			t.Errorf("%s: code %d: %s", command, r.code, r.stderr)
		}
		b.nothingLeft()
	}
}

func TestWhatOnceLeavesIsLookedAfterAndDownRemovesIt(t *testing.T) {
	b := newRunBench(t)
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\n"
	file := b.file("web.yaml", settings+daemontest.PodYAML("web", runtimetest.ScriptServe))
	r := b.do("once", "-f", file, "--env", b.path("env"))
	if env := b.readPath("env"); !strings.Contains(env, "POD_WEB_IP=10.") || !strings.HasSuffix(env, "\nMONOPOD_SOCKET="+b.path("run-runs", "0", "monopod.sock")+"\n") {
		t.Errorf("environment: %s", env)
	}
	if r.code != 0 || len(b.kept) != 1 || !strings.Contains(r.stderr, "monopod down 0") {
		t.Fatalf("code %d, %d agents: %s", r.code, len(b.kept), r.stderr)
	}
	// The agent that takes over must find the same: then it touches nothing.
	kept := firstSlot(b)
	cfg, err := kept.Read()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(cfg.StaticPodPath, "*.json"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		c, err := decode.All(f, text, decode.Options{Source: "file"})
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		for _, p := range c.Pods {
			found[p.Key().String()] = podhash.Sandbox(p.Object)
		}
		for _, o := range c.Objects {
			found[o.String()] = ""
		}
	}
	original, err := decode.All("web.yaml", []byte(b.readPath("web.yaml")), decode.Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"default/web": podhash.Sandbox(original.Pods[0].Object), "ConfigMap default/c": "", "Secret default/s": ""}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Only `down` removes it.
	if r := b.do("up", "-f", file, "--", "sh", "-c", "echo $MONOPOD_SOCKET"); r.code != 0 || !strings.Contains(r.stdout, b.path("run-runs", "1")) {
		t.Errorf("beside it: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := b.do("cleanup", "--runs"); r.code != 0 {
		t.Errorf("cleanup: %s", r.stderr)
	}
	if keys, _ := b.machine(kept.Root).List(t.Context()); len(keys) != 1 {
		t.Errorf("pods left: %v", keys)
	}
	if r := b.do("down"); r.code != program.ExitUsage || !strings.Contains(r.stderr, "There are: 0") {
		t.Errorf("down: code %d: %s", r.code, r.stderr)
	}
	if r := b.do("down", "3"); r.code != program.ExitError || !strings.Contains(r.stderr, "no run 3") {
		t.Errorf("down 3: code %d: %s", r.code, r.stderr)
	}
	if r := b.do("down", "--all"); r.code != 0 || r.stdout != "run 0 is removed\n" {
		t.Errorf("down --all: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	delete(b.machines, b.path("root-runs", "1")) // cleanup has removed it as a whole
	b.nothingLeft()
}

// firstSlot is the first slot of the bench.
func firstSlot(b *runBench) *run.Slot {
	c := &config.Loaded{}
	c.RootDirectory, c.StateDirectory = b.path("root"), b.path("run")
	return run.NewSlot(c, 0)
}

// deadRun leaves what a run leaves that is killed.
func (b *runBench) deadRun() (root string) {
	b.t.Helper()
	if r := b.do("once", "-f", b.file("dead.yaml", daemontest.PodYAML("dead", runtimetest.ScriptServe))); r.code != 0 {
		b.t.Fatalf("code %d: %s", r.code, r.stderr)
	}
	root = b.kept[len(b.kept)-1].RootDirectory
	if err := os.Remove(filepath.Join(root, run.KeptFile)); err != nil {
		b.t.Fatal(err)
	}
	return root
}

func TestWhatADeadRunLeftIsRemovedByTheNextOrByCleanupButNeverALiveOne(t *testing.T) {
	for name, next := range map[string][]string{
		"up":             {"up", "-f", "web.yaml", "--", "true"},
		"once":           {"once", "--rm", "-f", "web.yaml"},
		"cleanup":        {"cleanup"},
		"cleanup --runs": {"cleanup", "--runs"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRunBench(t)
			t.Chdir(b.dir)
			b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
			root := b.deadRun()
			live, err := dirlock.TakeLocks(0, root) // somebody lives there after all
			if err != nil {
				t.Fatal(err)
			}
			if r := b.do(next...); r.code != 0 {
				t.Errorf("code %d: %s", r.code, r.stderr)
			}
			if keys, _ := b.machine(root).List(t.Context()); len(keys) != 1 {
				t.Errorf("the pods of a live run are %v", keys)
			}
			live.Release()
			if r := b.do(next...); r.code != 0 || !strings.Contains(r.stderr, "removing what a run that was killed has left (run 0)") {
				t.Errorf("code %d: %s", r.code, r.stderr)
			}
			if keys, _ := b.machine(root).List(t.Context()); len(keys) != 0 {
				t.Errorf("pods left: %v", keys)
			}
			if _, err := os.Stat(root); (err != nil) != (name == "cleanup --runs") {
				t.Errorf("the directory with the images: %v", err)
			}
		})
	}
}

func TestRunsAtTheSameTimeHaveNothingInCommon(t *testing.T) {
	b := newRunBench(t)
	file := b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	const n = 4
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			// Each waits until all are there.
			script := fmt.Sprintf("touch %[1]s/here-%[2]d; for i in $(seq 6000); do [ $(ls %[1]s/here-* | wc -l) = %[3]d ] && exit 0; sleep 0.01; done; exit 1", b.dir, i, n)
			if r := b.do("up", "-f", file, "--", "sh", "-c", script); r.code != 0 {
				t.Errorf("code %d: %s", r.code, r.stderr)
			}
		})
	}
	group.Wait()
	unique := map[string]map[string]bool{}
	for _, cfg := range b.opened {
		for key, v := range map[string]string{"root": cfg.RootDirectory, "state": cfg.StateDirectory, "subnet": cfg.PodCIDR, "bridge": cfg.BridgeName, "cgroup": cfg.CgroupRoot, "logs": cfg.PodLogsDir} {
			if unique[key] == nil {
				unique[key] = map[string]bool{}
			}
			unique[key][v] = true
		}
	}
	for key, values := range unique {
		if len(values) != n {
			t.Errorf("%d runs have these of %s: %v", n, key, values)
		}
	}
	b.nothingLeft()
}

func TestASlotThatOthersTakeAndDropIsHeldOrTakenWhole(t *testing.T) {
	t.Parallel()
	b := newRunBench(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			s := firstSlot(b)
			for taken := 0; taken < 12; {
				err := s.Lock()
				if dirlock.IsHeld(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				taken++
				err = os.WriteFile(filepath.Join(s.Root, "mine"), nil, 0o600)
				if err == nil && !s.Has("mine") {
					err = errors.New("somebody else has removed a file of this run")
				}
				if err = errors.Join(err, os.RemoveAll(s.State), s.Drop()); err != nil {
					t.Error(err)
				}
				_ = os.Remove(filepath.Dir(s.State))
				s.Release()
			}
		})
	}
	group.Wait()
}

func TestASubnetThatIsTakenIsNotChosen(t *testing.T) {
	b := newRunBench(t)
	cfg, err := config.Load(&config.Flags{File: b.path("config.yaml")}, b.program().Env)
	if err != nil {
		t.Fatal(err)
	}
	m := daemon.RunMachine{SubnetLocks: b.path("subnets.lock"), Free: func(s string) error {
		if s == "10.84.0.0/24" || s == "10.84.2.0/24" {
			return errors.New("it overlaps a route")
		}
		return nil
	}}
	for i, want := range []string{"10.84.1.0/24", "10.84.3.0/24", "10.84.4.0/24"} {
		s := run.NewSlot(cfg, i)
		defer s.Release()
		if got, err := s.ChooseSubnet(m); got != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	cfg.RunPodCIDR = "10.84.2.0/24"
	if got, err := run.NewSlot(cfg, 9).ChooseSubnet(m); err == nil || !strings.Contains(err.Error(), "overlaps a route") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestTheConfigurationOfARunIsReadAsItWasWritten(t *testing.T) {
	b := newRunBench(t)
	testfiles.Write(t, b.path("config.yaml"), "rootDirectory: root\nstateDirectory: run\nstaticPodURL: http://example.com/\nstaticPodURLHeader: {Authorization: [secret]}\nsources: [{name: fleet, url: https://example.com/fleet}]\nsourceOrder: [fleet]\nregistryConfig: auth.json\nmaxPods: 7\ncpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nruntimeHandlers: {x: crun}\nallowedUnsafeSysctls: [net.core.*]\n")
	base, err := config.Load(&config.Flags{File: b.path("config.yaml")}, b.program().Env)
	if err != nil {
		t.Fatal(err)
	}
	s := run.NewSlot(base, 5)
	cfg := s.Config("10.84.9.0/24")
	if err := s.Write(cfg); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cfg.Config, got.Config, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
	if strings.Contains(b.readPath("root-runs/5/run.yaml"), "secret") {
		t.Error("a secret was written")
	}
}

func TestTheAgentOfWhatOnceLeavesReservesItsPorts(t *testing.T) {
	b := newRunBench(t)
	web := strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "labels:", "annotations: {monopod.dev/free-host-ports: http}, labels:", 1)
	web = strings.Replace(web, "image: example.com/app:1,", "image: example.com/app:1, ports: [{name: http, containerPort: 8080}, {containerPort: 8081}],", 1)
	file := b.file("web.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\n"+web)
	r := b.do("once", "-o", "json", "-f", file)
	var report trial.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || len(b.kept) != 1 {
		t.Fatalf("code %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	address := fmt.Sprintf(":%d", report.Pods[0].Ports[0].Host)
	listen := func() error {
		l, err := net.Listen("tcp4", address)
		if err == nil {
			err = l.Close()
		}
		return err
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	held := run.ReserveAgain(b.kept[0], logger)
	if err := listen(); len(held) != 1 || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%d ports are held; listen on %s: %v", len(held), address, err)
	}
	if again := run.ReserveAgain(b.kept[0], logger); len(again) != 0 || !strings.Contains(log.String(), "address already in use") {
		t.Errorf("%d ports are held twice: %s", len(again), log.String())
	}
	if err := errors.Join(run.CloseAll(held), listen()); err != nil {
		t.Errorf("it is not free again: %v", err)
	}
	if r := b.do("down", "0"); r.code != 0 {
		t.Errorf("down: code %d: %s", r.code, r.stderr)
	}
	if held := run.ReserveAgain(b.kept[0], logger); held != nil {
		t.Errorf("%d ports of a run that is gone are held", len(held))
	}
	b.nothingLeft()
}

// sleeper finds the child of a process that has become sleep.
func sleeper(parent int) (pid int, err error) {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, f := range all {
		text, _ := os.ReadFile(f)
		for child := range strings.FieldsSeq(string(text)) {
			if name, _ := os.ReadFile("/proc/" + child + "/comm"); string(name) == "sleep\n" {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, errors.New("there is none")
}

func TestACommandDiesWithTheProcessThatRunsIt(t *testing.T) {
	if os.Getenv("TEST_RUN_A_COMMAND") != "" {
		p := newProgram()
		_, _ = run.NewCommands(p).Command(context.Background(), []string{"sleep", "1000"}, os.Environ())
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe, "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), "TEST_RUN_A_COMMAND=1")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	var pid int
	d := newDaemon(t)
	d.eventually("the command runs", func() (err error) {
		pid, err = sleeper(child.Process.Pid)
		return err
	})
	command, err := os.FindProcess(pid) // this one, even if its number is that of another later
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Kill() })
	_ = child.Process.Kill()
	_ = child.Wait()
	d.eventually("the command has ended", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return errors.New("it goes on")
	})
}
