package describe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod/internal/cause"
	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/model"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/node/why"
	"monopod/runner"
	"monopod/runner/runtimetest"
	"monopod/watcher/fetch"
)

// clockTimes matches times of day and counters, which differ in each run.
var clockTimes = regexp.MustCompile(`\(\d\d:\d\d:\d\d\)|; failed \d+ times in a row|; restarted (?:\d+ times|once)|, restarted (?:\d+ times|once)`)

func TestWhatDescribeAndWhyPrint(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartSettled()
	d.WriteLogs()
	d.Golden(t, "settled", nil, [][]string{
		{"describe", "pod", "web"},
		{"describe", "pod", "default/crash"},
		{"describe", "pod", "pull", "-n", "other"},
		{"describe", "pod"},
		{"describe", "node", "x"},
	}...)
	d.Golden(t, "why", func(s string) string { return clockTimes.ReplaceAllString(s, "") }, [][]string{
		{"why", "web"},
		{"why", "crash"},
		{"why", "-n", "other", "pull"},
		{"why", "pod", "other/pull"},
		{"why", "broken"},
		{"why", "crahs"},
		{"why", "pull"},
		{"why", "-n", "other"},
		{"why", "-o", "yaml"},
		{"why", "a/b/c"},
	}...)
}

func TestWhatDescribeAndWhyPrintOfObjects(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartWorkloads()
	d.Golden(t, "workloads", nil, [][]string{
		{"describe", "deploy/web"},
		{"describe", "svc", "web"},
		{"describe", "cj/nightly", "-n", "other"},
		{"describe", "cm/settings"},
		{"why", "deploy/web"},
		{"events", "cm/settings"},
		{"describe", "rc/old"},
		{"why", "cj/nightly", "-n", "other"},
		{"why", "cm/settings"},
		{"why", "svc/front"},
		{"why", "rc/old"},
	}...)
}

// whyJSON returns `why -o json`.
func whyJSON(d *clitest.Daemon, args ...string) why.Answer {
	d.T.Helper()
	r := d.Cmd(append([]string{"why", "-o", "json"}, args...)...)
	var a why.Answer
	if err := json.Unmarshal([]byte(r.Stdout), &a); err != nil {
		d.T.Fatalf("%v\n%s%s", err, r.Stdout, r.Stderr)
	}
	return a
}

func TestWhyWithoutANameCoversAllThatIsNotFine(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Start()
	d.Shows("all is fine: 1 pod", "why")
	if a := whyJSON(d); !a.Fine || len(a.Chains) != 0 {
		t.Errorf("answer: %+v", a)
	}
	d.Put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n")
	d.Shows("default/web continues with its last good content", "why")
	d.Put("crash.yaml", daemontest.PodYAML("crash", runtimetest.ScriptFail))
	d.Shows("exit code 3", "why")
	a := whyJSON(d)
	if a.Fine || len(a.Chains) != 2 || a.Chains[0].Reason != cause.InputRefused || a.Chains[1].Pod != "default/crash" || a.Chains[1].Reason != cause.Exited {
		t.Errorf("answer: %+v", a)
	}
	if one := whyJSON(d, "web"); one.Fine || one.Chains[0].Reason != cause.InputRefused {
		t.Errorf("of web: %+v", one)
	}
}

func TestWhyAnswersWhileContainersCannotBeSeen(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "containerRuntimeEndpoint: unix:///no/such.sock")
	d.Prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return nil, errors.New("containerd: connection refused")
	}
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Put("broken.yaml", "kind: Pod\nmetadata: {name: broken}\n")
	d.Start()
	r := d.Shows("systemctl status containerd", "why")
	for _, want := range []string{"containerd: connection refused", "running containers continue", "broken.yaml is refused"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("%q is not in\n%s", want, r.Stdout)
		}
	}
	if a := whyJSON(d, "web"); a.Fine || len(a.Chains) != 1 || a.Chains[0].Reason != cause.RuntimeDown || a.Chains[0].Steps[0].Text != d.Path("manifests", "web.yaml")+":1" {
		t.Errorf("of web: %+v", a)
	}
}

// shopTemplate is a template of pods, and workloadYAML a document of a workload.
const shopTemplate = "{metadata: {labels: {app: shop}}, spec: {containers: [{name: a, image: i}]}}"

func workloadYAML(version, kind, name, spec string) string {
	if kind == "CronJob" {
		spec = strings.Replace(spec, "spec: {containers", "spec: {restartPolicy: Never, containers", 1)
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: {%s}\n", version, kind, name, spec)
}

func TestWhyWithoutADaemonTellsWhatTheDiskKnows(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.Put("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	d.Put("shop.yaml", workloadYAML("apps/v1", "Deployment", "shop", "replicas: 2, selector: {matchLabels: {app: shop}}, template: "+shopTemplate))
	d.Put("nightly.yaml", workloadYAML("batch/v1", "CronJob", "nightly", "schedule: '@daily', jobTemplate: {spec: {template: "+shopTemplate+"}}"))
	testfiles.Write(t, d.Path("logs", "pods", "default_web_u1", "a", "0.log"), "2026-01-01T00:00:01Z stdout F from the first run\n")
	testfiles.Write(t, d.Path("logs", "pods", "default_webs_u2", "a", "0.log"), "2026-01-01T00:00:02Z stdout F of somebody else\n")
	ask := func(args ...string) clitest.Result {
		p := d.Program()
		p.Env.Environ = []string{"MONOPOD_CONFIG=" + d.Path("config.yaml")}
		var out, errs daemontest.SyncBuffer
		p.Stdout, p.Stderr = &out, &errs
		return clitest.Result{Code: commands(t.Context(), p, append([]string{"why"}, args...)), Stdout: out.String(), Stderr: errs.String()}
	}
	for name, c := range map[string]struct{ args, wants []string }{
		"everything":      {nil, []string{"monopod is not running", "start it: `monopod run --config ", "broken.yaml is refused", `did you mean "image"?`, "from the first run"}},
		"a pod":           {[]string{"web"}, []string{"monopod is not running", "web.yaml:1", "from the first run"}},
		"a refused pod":   {[]string{"broken"}, []string{`did you mean "image"?`}},
		"a workload":      {[]string{"deploy/shop"}, []string{"2 of 2 pods are not fine", "default/shop-", "has unknown status: monopod is not running", "created by Deployment shop"}},
		"a CronJob":       {[]string{"nightly"}, []string{"the pods of CronJob default/nightly are unknown: monopod is not running", "nightly.yaml:1"}},
		"a mistyped name": {[]string{"wbe"}, []string{"did you mean web?"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(c.args...)
			for _, want := range c.wants {
				if !strings.Contains(r.Stdout, want) {
					t.Errorf("%q is not in\n%s%s", want, r.Stdout, r.Stderr)
				}
			}
			if r.Code != program.ExitOK || strings.Contains(r.Stdout, "of somebody else") {
				t.Errorf("exit code %d\n%s", r.Code, r.Stdout)
			}
		})
	}
	// For another instance, its name is printed and the disk of the default one is not read.
	for name, c := range map[string]struct {
		args, environ []string
		want, not     string
	}{
		"by its configuration":             {[]string{"--config", d.Path("config.yaml")}, nil, "monopod run --config " + d.Path("config.yaml"), "systemctl"},
		"by its socket only":               {[]string{"--socket", d.Path("other.sock")}, nil, "name its configuration with --config", "no source defines"},
		"by its name":                      {[]string{"--socket", d.Path("other.sock")}, nil, "default/web is unknown: monopod is not running", "from the first run"},
		"by its socket in the environment": {nil, []string{"MONOPOD_SOCKET=" + d.Path("other.sock")}, "name its configuration with --config", "from the first run"},
	} {
		p := d.Program()
		p.Env.Environ = c.environ
		out := &daemontest.SyncBuffer{}
		p.Stdout, p.Stderr = out, out
		if code := commands(t.Context(), p, append([]string{"why", "web"}, c.args...)); code != program.ExitOK || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), c.not) {
			t.Errorf("%s: code %d\n%s", name, code, out)
		}
	}
	p := d.Program()
	out := &daemontest.SyncBuffer{}
	p.Stdout, p.Stderr, p.Env.Environ = out, out, nil
	if code := commands(t.Context(), p, []string{"events", "--socket", d.Path("other.sock")}); code != program.ExitError || !strings.Contains(out.String(), "use --record") || strings.Contains(out.String(), "These are the events") {
		t.Errorf("events of another instance: code %d\n%s", code, out)
	}
	config, err := os.ReadFile(d.Path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("config.yaml"), string(config)+"sources:\n- {name: fleet, url: 'https://fleet.example/pods.yaml'}\n- {name: silent, url: 'https://silent.example/pods.yaml'}\n")
	kept := fetch.NewCopy(d.Path("root", "sources", "fleet"))
	if err := kept.Save(&fetch.Kept{Body: []byte(daemontest.PodYAML("far", runtimetest.ScriptServe) + "---\n" + workloadYAML("apps/v1", "StatefulSet", "db", "serviceName: db, selector: {matchLabels: {app: shop}}, template: "+shopTemplate))}); err != nil {
		t.Fatal(err)
	}
	if r := ask("far"); !strings.Contains(r.Stdout, "default/far has unknown status") || !strings.Contains(r.Stdout, "https://fleet.example/pods.yaml:1") {
		t.Errorf("of a pod of a source: %s%s", r.Stdout, r.Stderr)
	}
	if r := ask("db"); !strings.Contains(r.Stdout, "default/db-0 has unknown status") {
		t.Errorf("of a workload of a source: %s%s", r.Stdout, r.Stderr)
	}
	if r := ask(); !strings.Contains(r.Stdout, "https://silent.example/pods.yaml cannot be read") || !strings.Contains(r.Stdout, "it has never answered") {
		t.Errorf("with sources: %s%s", r.Stdout, r.Stderr)
	}
	if err := os.RemoveAll(d.Path("root")); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("config.yaml"), "nonsense: 1\n")
	if r := ask(); r.Code != program.ExitOK || !strings.Contains(r.Stdout, "its configuration is invalid") || !strings.Contains(r.Stdout, "nonsense") {
		t.Errorf("with a bad configuration: code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if _, err := os.Stat(d.Path("root")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asking has made something: %v", err)
	}
}

func TestWhyAndDescribeSayHowFarAPullIs(t *testing.T) {
	d := newDaemon(t)
	slow := make(chan struct{})
	d.Fake.Delay = func(a runner.Action) time.Duration {
		if a.Kind == runner.EnsureImage {
			<-slow
		}
		return 0
	}
	defer close(slow)
	d.Images.Running = []model.Pull{{Image: "big:1", Since: time.Now(), Done: 25_000_000, Total: 100_000_000}}
	d.Put("web.yaml", fmt.Sprintf(daemontest.PodOfImage, "web", "big:1"))
	d.Start()
	d.Shows("big:1: 25.0 MB of 100.0 MB (25%), started ", "why", "web")
	d.Shows("Pulling:           big:1: 25.0 MB of 100.0 MB (25%), started ", "describe", "pod", "web")
}

// TestWhyAnswersFromTheDiskWhenTheDaemonHangs: that is when it is asked.
func TestWhyAnswersFromTheDiskWhenTheDaemonHangs(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	config := d.Path("two.yaml")
	for name, socket := range map[string]string{"silent": clitest.SilentDaemon(t), "garbage": clitest.ServeOn(t, http.NotFoundHandler())} {
		testfiles.Write(t, config, "socket: "+socket+"\n")
		for _, c := range []struct {
			args, words []string
			env         string
		}{
			{args: []string{"why"}, words: []string{"systemctl restart monopod"}, env: "MONOPOD_ROOT_DIRECTORY=" + d.Path("root")},
			{args: []string{"why", "--config", config}, words: []string{"process " + strconv.Itoa(os.Getpid()), "`monopod run --config " + config + "`"}},
			{args: []string{"why", "--socket", socket}, words: []string{"process " + strconv.Itoa(os.Getpid()), "which listens on " + socket, "`monopod run --config FILE`"}},
		} {
			p := d.Program()
			p.Limits = clitest.ShortLimits()
			p.Env.Environ = nil
			if c.env != "" {
				p.Env.Environ = []string{"MONOPOD_SOCKET=" + socket, c.env}
			}
			out, errs := &daemontest.SyncBuffer{}, &daemontest.SyncBuffer{}
			p.Stdout, p.Stderr = out, errs
			code := commands(t.Context(), p, c.args)
			for _, w := range append(c.words, "monopod does not answer") {
				if code != program.ExitOK || !strings.Contains(out.String(), w) || c.env == "" && strings.Contains(out.String(), "systemctl") {
					t.Errorf("%s, %q: code %d, no %q\n%s%s", name, c.args, code, w, out, errs)
				}
			}
		}
	}
}

func TestWhyTellsWhichNetworkAPodGetsAndWhy(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	open := d.Prog.Machine.Open
	d.Prog.Machine.Open = func(ctx context.Context, cfg *config.Loaded, deps containers.Deps) (containers.Runtime, error) {
		deps.Networked("", "monopod0")
		return open(ctx, cfg, deps)
	}
	d.Put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: nginx}]}\n")
	d.Start()
	d.Shows("  network  monopod's own bridge monopod0, because cniConfDir "+d.Path("cni")+" ("+d.Path("config.yaml")+":6) has no CNI configuration\n", "why", "web")
}
