package run

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
	"monopod/internal/daemontest/clitest"
	"monopod/internal/dirlock"
	"monopod/internal/program"
	"monopod/internal/run/hostports"
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
	*clitest.Daemon
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
	return &runBench{Daemon: newDaemon(t), machines: map[string]*runtimetest.Fake{}}
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
func (b *runBench) prog() (*clitest.Process, *bytes.Buffer, *bytes.Buffer) {
	p := b.Program()
	p.Machine.Open = func(_ context.Context, cfg *config.Loaded, _ containers.Deps) (containers.Runtime, error) {
		f := b.machine(cfg.RootDirectory)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.opened = append(b.opened, cfg)
		return &daemontest.FakeRuntime{Fake: f}, nil
	}
	p.Machine.Runs = daemon.RunMachine{SubnetLocks: b.Path("subnets.lock"), Free: func(string) error { return nil }, Keep: b.keep}
	p.Env.Environ = append(p.Env.Environ, "PATH="+os.Getenv("PATH"))
	out, errs := &bytes.Buffer{}, &bytes.Buffer{}
	p.Stdout, p.Stderr = out, errs
	return p, out, errs
}

func (b *runBench) do(args ...string) clitest.Result { return b.doContext(b.T.Context(), args...) }

func (b *runBench) doContext(ctx context.Context, args ...string) clitest.Result {
	p, out, errs := b.prog()
	flags := []string{args[0], "--config", b.Path("config.yaml")}
	if args[0] == "once" || args[0] == "up" {
		flags = append(flags, "--min-ready", "0s")
	}
	code := commands(ctx, p, append(flags, args[1:]...))
	return clitest.Printed(out.String(), errs.String(), code)
}

// file writes a manifest for -f and returns its path.
func (b *runBench) file(name, text string) string {
	b.T.Helper()
	path := b.Path(name)
	testfiles.Write(b.T, path, text)
	return path
}

// nothingLeft checks that no run has left a pod or a file but its log and its lock.
func (b *runBench) nothingLeft() {
	b.T.Helper()
	for root, f := range b.machines {
		if keys, err := f.List(context.Background()); err != nil || len(keys) > 0 {
			b.T.Errorf("%s: pods are left: %v %v", root, keys, err)
		}
		entries, err := os.ReadDir(root)
		if err != nil {
			b.T.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != dirlock.LockName && e.Name() != RunLog {
				b.T.Errorf("left: %s", filepath.Join(root, e.Name()))
			}
		}
	}
	if _, err := os.Stat(b.Path("run-runs")); !errors.Is(err, os.ErrNotExist) {
		b.T.Errorf("the state directories are left: %v", err)
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
		"one fails after it was Ready": {
			files: []string{once("slow", runtimetest.ScriptFailSoon)}, code: 1,
			rows: []string{"default slow 0/1 Error failed"},
		},
		"a server that may end, as --until asks": {
			files: []string{once("server", runtimetest.ScriptServe)}, flags: []string{"--until", "ready"}, code: 0,
			rows: []string{"default server 1/1 Running ok"},
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
		"a Job with a sidecar that is killed at its end": {
			files: []string{"apiVersion: batch/v1\nkind: Job\nmetadata: {name: sums}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n" +
				"      initContainers: [{name: proxy, restartPolicy: Always, image: example.com/app:1, command: [sh, -c, " + strconv.Quote(runtimetest.ScriptSlowStop) + "]}]\n" +
				"      containers: [{name: a, image: example.com/app:1, command: [sh, -c, " + strconv.Quote(runtimetest.ScriptFailSoon) + "]}]\n"},
			code: 1,
			rows: []string{"default sums-0 failed container a ended with exit code 7", "default job/sums failed the Job has failed: pod sums-0: container a ended with exit code 7"},
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
			args := append([]string{"once", "--rm", "--junit", b.Path("junit.xml"), "--json", b.Path("report.json")}, c.flags...)
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

func TestScriptsOfBeforeUntilAreUnderstoodAndWarned(t *testing.T) {
	b := newRunBench(t)
	server, fails := b.file("server.yaml", once("server", runtimetest.ScriptServe)), b.file("fails.yaml", once("fails", runtimetest.ScriptFailSoon))
	for _, c := range []struct {
		args []string
		code int
		errs string
	}{
		{[]string{"--finish", "-f", fails}, 1, "monopod: --finish is deprecated; use --until finished\n"},
		{[]string{"--finish=false", "-f", server}, 0, "monopod: --finish is deprecated; use --until ready\n"},
		{[]string{"--finish=perhaps", "-f", server}, program.ExitNotRun, "invalid argument \"perhaps\""},
		{[]string{"--until", "Ready", "-f", server}, program.ExitNotRun, `unknown --until "Ready"; one of ready, finished`},
	} {
		if r := b.do(append([]string{"once", "--rm", "-o", "json"}, c.args...)...); r.Code != c.code || strings.Count(r.Stderr, c.errs) != 1 || strings.Contains(r.Stdout, "deprecated") {
			t.Errorf("%v: code %d:\n%s%s", c.args, r.Code, r.Stdout, r.Stderr)
		}
	}
	b.nothingLeft()
}

func TestUpIsContentWithAReadyPodOfAnyRestartPolicy(t *testing.T) {
	b := newRunBench(t)
	if r := b.do("up", "-f", b.file("server.yaml", once("server", runtimetest.ScriptServe)), "--", "true"); r.Code != 0 {
		t.Errorf("code %d: %s", r.Code, r.Stderr)
	}
	b.nothingLeft()
}

// cameOut compares what `once` has printed and returned.
func cameOut(r clitest.Result, code int, rows []string) error {
	var errs []error
	if r.Code != code {
		errs = append(errs, fmt.Errorf("exit code %d, want %d:\n%s%s", r.Code, code, r.Stdout, r.Stderr))
	}
	for _, want := range rows {
		if !slices.ContainsFunc(strings.Split(r.Stdout, "\n"), func(line string) bool { return hasWords(line, want) }) {
			errs = append(errs, fmt.Errorf("no line %q in\n%s%s", want, r.Stdout, r.Stderr))
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
	b.T.Helper()
	text, err := os.ReadFile(b.Path(name))
	if err != nil {
		b.T.Fatal(err)
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
		"no file":                    {[]string{"once"}, program.ExitNotRun, "use -f FILE"},
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
		"no such file":               {[]string{"once", "-f", b.Path("nope")}, program.ExitError, "no such file"},
		"a port that is not there":   {[]string{"up", "-f", ports, "--", "true"}, program.ExitNotRun, `no container has a port "http"`},
	} {
		t.Run(name, func(t *testing.T) {
			if r := b.do(c.args...); r.Code != c.code || !strings.Contains(r.Stderr, c.err) {
				t.Errorf("code %d, want %d: %s", r.Code, c.code, r.Stderr)
			}
		})
	}
	p, _, errs := b.prog()
	p.Euid = func() int { return 1000 }
	if code := commands(t.Context(), p, []string{"up", "-f", good, "--config", b.Path("config.yaml"), "--", "true"}); code != program.ExitNotRun || !strings.Contains(errs.String(), "must be started by root") {
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
	code := commands(t.Context(), p, []string{"once", "--rm", "--config", b.Path("config.yaml"), "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))})
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
	f := strings.Fields(r.Stdout)
	if r.Code != 7 || len(f) != 4 || net.ParseIP(f[0]) == nil || f[1] != "8080" || f[3] != b.Path("run-runs", "0", "monopod.sock") {
		t.Fatalf("code %d: %s%s", r.Code, r.Stdout, r.Stderr)
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
		"not found":         {[]string{"/no/such/program"}, ExitNotFound},
		"not in PATH":       {[]string{"no-such-program"}, ExitNotFound},
		"not a program":     {[]string{file}, ExitCannotExecute},
		"its flags are its": {[]string{"sh", "-c", "exit 9", "--rm"}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			if r := b.do(append([]string{"up", "-f", file}, c.args...)...); r.Code != c.code {
				t.Errorf("code %d, want %d: %s", r.Code, c.code, r.Stderr)
			}
			b.nothingLeft()
		})
	}
}

func TestUpDoesNotRunTheCommandWhenAPodFails(t *testing.T) {
	b := newRunBench(t)
	proof := b.Path("proof")
	b.fail = func(key manifests.Key, a runner.Action) error {
		if key.Name == "bad" && a.Kind == runner.EnsureImage {
			return &runner.StepError{Reason: runner.ReasonErrImageNeverPull, Err: errors.New("it is not here")}
		}
		return nil
	}
	file := b.file("bad.yaml", daemontest.PodYAML("bad", runtimetest.ScriptServe))
	r := b.do("up", "-f", file, "--json", b.Path("report.json"), "--", "touch", proof)
	if r.Code != program.ExitNotRun || !strings.Contains(r.Stderr, "it is not here") || r.Stdout != "" {
		t.Errorf("code %d: %s%s", r.Code, r.Stdout, r.Stderr)
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
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || r.Code != 0 || report.Result != trial.OK || report.Pods[0].IP == "" {
		t.Errorf("code %d, %v: %s%s", r.Code, err, r.Stdout, r.Stderr)
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
		if r.Code != program.ExitSignal {
			t.Errorf("%s: code %d: %s", command, r.Code, r.Stderr)
		}
		b.nothingLeft()
	}
}

func TestOnlyASecondSignalASecondLaterLeavesPodsAndNamesThem(t *testing.T) {
	b := newRunBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, _, _ := b.prog()
	errs := &daemontest.SyncBuffer{}
	p.Stderr = errs
	var mu sync.Mutex
	now, taken := time.Unix(1_700_000_000, 0), []bool{}
	i := &program.Interrupts{Stop: cancel, Now: func() time.Time { return now }}
	p.Signals = i
	b.fail = func(_ manifests.Key, a runner.Action) error {
		mu.Lock()
		defer mu.Unlock()
		if a.Kind == runner.StartContainer && len(taken) == 0 {
			taken = append(taken, i.Take(syscall.SIGTERM))
			now = now.Add(5 * time.Millisecond)
			taken = append(taken, i.Take(syscall.SIGTERM))
			now = now.Add(2 * time.Second)
			taken = append(taken, i.Take(syscall.SIGTERM))
		}
		return nil
	}
	code := commands(ctx, p, []string{"up", "--config", b.Path("config.yaml"), "-f", b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))})
	if want := []bool{false, false, true}; code != 143 || !slices.Equal(taken, want) {
		t.Errorf("code %d; ends at once: %v, want %v", code, taken, want)
	}
	if want := "monopod: interrupted again; run 0 is left with its pods (default/web): `monopod cleanup` removes it\n"; strings.Count(errs.String(), want) != 1 {
		t.Errorf("no %q in\n%s", want, errs.String())
	}
	b.nothingLeft()
	now = now.Add(2 * time.Second)
	if !i.Take(syscall.SIGTERM) || strings.Count(errs.String(), "is left") != 1 {
		t.Errorf("nothing is left after the removal:\n%s", errs.String())
	}
}

func TestWhatOnceLeavesIsLookedAfterAndDownRemovesIt(t *testing.T) {
	b := newRunBench(t)
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\n"
	file := b.file("web.yaml", settings+daemontest.PodYAML("web", runtimetest.ScriptServe))
	r := b.do("once", "-f", file, "--env", b.Path("env"))
	if env := b.readPath("env"); !strings.Contains(env, "POD_WEB_IP=10.") || !strings.HasSuffix(env, "\nMONOPOD_SOCKET="+b.Path("run-runs", "0", "monopod.sock")+"\n") {
		t.Errorf("environment: %s", env)
	}
	if r.Code != 0 || len(b.kept) != 1 || !strings.Contains(r.Stderr, "monopod down 0") {
		t.Fatalf("code %d, %d agents: %s", r.Code, len(b.kept), r.Stderr)
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
	if r := b.do("up", "-f", file, "--", "sh", "-c", "echo $MONOPOD_SOCKET"); r.Code != 0 || !strings.Contains(r.Stdout, b.Path("run-runs", "1")) {
		t.Errorf("beside it: code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := b.do("cleanup", "--runs"); r.Code != 0 {
		t.Errorf("cleanup: %s", r.Stderr)
	}
	if keys, _ := b.machine(kept.Root).List(t.Context()); len(keys) != 1 {
		t.Errorf("pods left: %v", keys)
	}
	if r := b.do("down"); r.Code != program.ExitUsage || !strings.Contains(r.Stderr, "kept runs: 0") {
		t.Errorf("down: code %d: %s", r.Code, r.Stderr)
	}
	if r := b.do("down", "3"); r.Code != program.ExitError || !strings.Contains(r.Stderr, "run 3 not found") {
		t.Errorf("down 3: code %d: %s", r.Code, r.Stderr)
	}
	if r := b.do("down", "--all"); r.Code != 0 || r.Stdout != "run 0 removed\n" {
		t.Errorf("down --all: code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	delete(b.machines, b.Path("root-runs", "1")) // cleanup has removed it as a whole
	b.nothingLeft()
}

// firstSlot is the first slot of the bench.
func firstSlot(b *runBench) *Slot {
	c := &config.Loaded{}
	c.RootDirectory, c.StateDirectory = b.Path("root"), b.Path("run")
	return NewSlot(c, 0)
}

// deadRun leaves what a run leaves that is killed.
func (b *runBench) deadRun() (root string) {
	b.T.Helper()
	if r := b.do("once", "-f", b.file("dead.yaml", daemontest.PodYAML("dead", runtimetest.ScriptServe))); r.Code != 0 {
		b.T.Fatalf("code %d: %s", r.Code, r.Stderr)
	}
	root = b.kept[len(b.kept)-1].RootDirectory
	if err := os.Remove(filepath.Join(root, KeptFile)); err != nil {
		b.T.Fatal(err)
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
			t.Chdir(b.Dir)
			b.file("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
			root := b.deadRun()
			live, err := dirlock.TakeLocks(0, root) // somebody lives there after all
			if err != nil {
				t.Fatal(err)
			}
			if r := b.do(next...); r.Code != 0 {
				t.Errorf("code %d: %s", r.Code, r.Stderr)
			}
			if keys, _ := b.machine(root).List(t.Context()); len(keys) != 1 {
				t.Errorf("the pods of a live run are %v", keys)
			}
			live.Release()
			if r := b.do(next...); r.Code != 0 || !strings.Contains(r.Stderr, "removing leftovers of a killed run (run 0)") {
				t.Errorf("code %d: %s", r.Code, r.Stderr)
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
			script := fmt.Sprintf("touch %[1]s/here-%[2]d; for i in $(seq 6000); do [ $(ls %[1]s/here-* | wc -l) = %[3]d ] && exit 0; sleep 0.01; done; exit 1", b.Dir, i, n)
			if r := b.do("up", "-f", file, "--", "sh", "-c", script); r.Code != 0 {
				t.Errorf("code %d: %s", r.Code, r.Stderr)
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
	cfg, err := config.Load(&config.Flags{File: b.Path("config.yaml")}, b.Program().Env)
	if err != nil {
		t.Fatal(err)
	}
	m := daemon.RunMachine{SubnetLocks: b.Path("subnets.lock"), Free: func(s string) error {
		if s == "10.84.0.0/24" || s == "10.84.2.0/24" {
			return errors.New("it overlaps a route")
		}
		return nil
	}}
	for i, want := range []string{"10.84.1.0/24", "10.84.3.0/24", "10.84.4.0/24"} {
		s := NewSlot(cfg, i)
		defer s.Release()
		if got, err := s.ChooseSubnet(m); got != want || err != nil {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	cfg.RunPodCIDR = "10.84.2.0/24"
	if got, err := NewSlot(cfg, 9).ChooseSubnet(m); err == nil || !strings.Contains(err.Error(), "overlaps a route") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestTheConfigurationOfARunIsReadAsItWasWritten(t *testing.T) {
	b := newRunBench(t)
	testfiles.Write(t, b.Path("config.yaml"), "rootDirectory: root\nstateDirectory: run\nstaticPodURL: http://example.com/\nstaticPodURLHeader: {Authorization: [secret]}\nsources: [{name: fleet, url: https://example.com/fleet}]\nsourceOrder: [fleet]\nregistryConfig: auth.json\nmaxPods: 7\ncpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nruntimeHandlers: {x: crun}\nallowedUnsafeSysctls: [net.core.*]\n")
	base, err := config.Load(&config.Flags{File: b.Path("config.yaml")}, b.Program().Env)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSlot(base, 5)
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
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || len(b.kept) != 1 {
		t.Fatalf("code %d, %v: %s%s", r.Code, err, r.Stdout, r.Stderr)
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
	held := ReserveAgain(b.kept[0], logger)
	if err := listen(); len(held) != 1 || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%d ports are held; listen on %s: %v", len(held), address, err)
	}
	if again := ReserveAgain(b.kept[0], logger); len(again) != 0 || !strings.Contains(log.String(), "address already in use") {
		t.Errorf("%d ports are held twice: %s", len(again), log.String())
	}
	if err := errors.Join(hostports.CloseAll(held), listen()); err != nil {
		t.Errorf("it is not free again: %v", err)
	}
	if r := b.do("down", "0"); r.Code != 0 {
		t.Errorf("down: code %d: %s", r.Code, r.Stderr)
	}
	if held := ReserveAgain(b.kept[0], logger); held != nil {
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
		p := Commands{Program: &program.Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: config.OSEnvironment()}}
		_, _ = p.Command(context.Background(), []string{"sleep", "1000"}, os.Environ())
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
	d.Eventually("the command runs", func() (err error) {
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
	d.Eventually("the command has ended", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return errors.New("it goes on")
	})
}
