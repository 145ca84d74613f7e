package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod/internal/cause"
	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/node/why"
	"monopod/runner/runtimetest"
	"monopod/watcher/fetch"
)

// clockTimes matches times of day and counters, which differ in each run.
var clockTimes = regexp.MustCompile(`\(\d\d:\d\d:\d\d\)|; it has failed \d+ times in a row|; it has been restarted (?:\d+ times|once)|, restarted (?:\d+ times|once)`)

func TestWhatWhyPrints(t *testing.T) {
	d := settled(t)
	d.writeLogs()
	for _, c := range []struct {
		name string
		args []string
	}{
		{"fine", []string{"why", "web"}},
		{"crash", []string{"why", "crash"}},
		{"pull", []string{"why", "-n", "other", "pull"}},
		{"pull-with-kind", []string{"why", "pod", "other/pull"}},
		{"only-in-a-refused-file", []string{"why", "broken"}},
		{"typing-mistake", []string{"why", "crahs"}},
		{"other-namespace", []string{"why", "pull"}},
		{"of-a-namespace", []string{"why", "-n", "other"}},
		{"bad-format", []string{"why", "-o", "yaml"}},
		{"bad-name", []string{"why", "a/b/c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.cmd(c.args...)
			got := fmt.Sprintf("$ monopod %s\n%s", strings.Join(c.args, " "), clockTimes.ReplaceAllString(d.steady(r.stdout), ""))
			if r.stderr != "" {
				got += "-- stderr --\n" + d.steady(r.stderr)
			}
			testfiles.Compare(t, filepath.Join("testdata", "why", c.name+".txt"), got+fmt.Sprintf("-- exit code %d --\n", r.code))
		})
	}
}

// whyJSON returns `why -o json`.
func (d *testDaemon) whyJSON(args ...string) why.Answer {
	d.t.Helper()
	r := d.cmd(append([]string{"why", "-o", "json"}, args...)...)
	var a why.Answer
	if err := json.Unmarshal([]byte(r.stdout), &a); err != nil {
		d.t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
	}
	return a
}

func TestWhyWithoutANameCoversAllThatIsNotFine(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.start()
	d.shows("all is fine: 1 pod", "why")
	if a := d.whyJSON(); !a.Fine || len(a.Chains) != 0 {
		t.Errorf("answer: %+v", a)
	}
	d.put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web\n")
	d.shows("default/web goes on by what it said before", "why")
	d.put("crash.yaml", daemontest.PodYAML("crash", runtimetest.ScriptFail))
	d.shows("exit code 3", "why")
	a := d.whyJSON()
	if a.Fine || len(a.Chains) != 2 || a.Chains[0].Reason != cause.InputRefused || a.Chains[1].Pod != "default/crash" || a.Chains[1].Reason != cause.Exited {
		t.Errorf("answer: %+v", a)
	}
	if one := d.whyJSON("web"); one.Fine || one.Chains[0].Reason != cause.InputRefused {
		t.Errorf("of web: %+v", one)
	}
}

func TestWhyAnswersWhileContainersCannotBeSeen(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "containerRuntimeEndpoint: unix:///no/such.sock")
	d.prog.Machine.Open = func(context.Context, *config.Loaded, containers.Deps) (containers.Runtime, error) {
		return nil, errors.New("containerd: connection refused")
	}
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.put("broken.yaml", "kind: Pod\nmetadata: {name: broken}\n")
	d.start()
	r := d.shows("systemctl status containerd", "why")
	for _, want := range []string{"containerd: connection refused", "what runs goes on", "broken.yaml is refused"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is not in\n%s", want, r.stdout)
		}
	}
	if a := d.whyJSON("web"); a.Fine || len(a.Chains) != 1 || a.Chains[0].Reason != cause.RuntimeDown || a.Chains[0].Steps[0].Text != d.path("manifests", "web.yaml")+":1" {
		t.Errorf("of web: %+v", a)
	}
}

func TestWhyWithoutADaemonTellsWhatTheDiskKnows(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe))
	d.put("broken.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec:\n  containers:\n  - {name: c, imag: x}\n")
	testfiles.Write(t, d.path("logs", "pods", "default_web_u1", "a", "0.log"), "2026-01-01T00:00:01Z stdout F from the first run\n")
	testfiles.Write(t, d.path("logs", "pods", "default_webs_u2", "a", "0.log"), "2026-01-01T00:00:02Z stdout F of somebody else\n")
	ask := func(args ...string) result {
		p := d.program()
		p.Env.Environ = []string{"MONOPOD_CONFIG=" + d.path("config.yaml")}
		var out, errs daemontest.SyncBuffer
		p.Stdout, p.Stderr = &out, &errs
		return result{code: NewCommands(p).run(t.Context(), append([]string{"why"}, args...)), stdout: out.String(), stderr: errs.String()}
	}
	for name, c := range map[string]struct{ args, wants []string }{
		"everything":      {nil, []string{"monopod does not run", "start it: `monopod run --config ", "broken.yaml is refused", `did you mean "image"?`, "from the first run"}},
		"a pod":           {[]string{"web"}, []string{"monopod does not run", "web.yaml:1", "from the first run"}},
		"a refused pod":   {[]string{"broken"}, []string{`did you mean "image"?`}},
		"a mistyped name": {[]string{"wbe"}, []string{"did you mean web?"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(c.args...)
			for _, want := range c.wants {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("%q is not in\n%s%s", want, r.stdout, r.stderr)
				}
			}
			if r.code != program.ExitOK || strings.Contains(r.stdout, "of somebody else") {
				t.Errorf("exit code %d\n%s", r.code, r.stdout)
			}
		})
	}
	// For another instance, its name is printed and the disk of the default one is not read.
	for name, c := range map[string]struct {
		args, environ []string
		want, not     string
	}{
		"by its configuration":             {[]string{"--config", d.path("config.yaml")}, nil, "monopod run --config " + d.path("config.yaml"), "systemctl"},
		"by its socket only":               {[]string{"--socket", d.path("other.sock")}, nil, "name its configuration with --config", "no source defines"},
		"by its name":                      {[]string{"--socket", d.path("other.sock")}, nil, "nothing is known of default/web: monopod does not run", "from the first run"},
		"by its socket in the environment": {nil, []string{"MONOPOD_SOCKET=" + d.path("other.sock")}, "name its configuration with --config", "from the first run"},
	} {
		p := d.program()
		p.Env.Environ = c.environ
		out := &daemontest.SyncBuffer{}
		p.Stdout, p.Stderr = out, out
		if code := NewCommands(p).run(t.Context(), append([]string{"why", "web"}, c.args...)); code != program.ExitOK || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), c.not) {
			t.Errorf("%s: code %d\n%s", name, code, out)
		}
	}
	p := d.program()
	out := &daemontest.SyncBuffer{}
	p.Stdout, p.Stderr, p.Env.Environ = out, out, nil
	if code := NewCommands(p).run(t.Context(), []string{"events", "--socket", d.path("other.sock")}); code != program.ExitError || !strings.Contains(out.String(), "give --record") || strings.Contains(out.String(), "These are the events") {
		t.Errorf("events of another instance: code %d\n%s", code, out)
	}
	config, err := os.ReadFile(d.path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.path("config.yaml"), string(config)+"sources:\n- {name: fleet, url: 'https://fleet.example/pods.yaml'}\n- {name: silent, url: 'https://silent.example/pods.yaml'}\n")
	kept := fetch.NewCopy(d.path("root", "sources", "fleet"))
	if err := kept.Save(&fetch.Kept{Body: []byte(daemontest.PodYAML("far", runtimetest.ScriptServe))}); err != nil {
		t.Fatal(err)
	}
	if r := ask("far"); !strings.Contains(r.stdout, "default/far cannot be asked about") || !strings.Contains(r.stdout, "https://fleet.example/pods.yaml:1") {
		t.Errorf("of a pod of a source: %s%s", r.stdout, r.stderr)
	}
	if r := ask(); !strings.Contains(r.stdout, "https://silent.example/pods.yaml cannot be read") || !strings.Contains(r.stdout, "it has never answered") {
		t.Errorf("with sources: %s%s", r.stdout, r.stderr)
	}
	if err := os.RemoveAll(d.path("root")); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.path("config.yaml"), "nonsense: 1\n")
	if r := ask(); r.code != program.ExitOK || !strings.Contains(r.stdout, "its configuration is not right") || !strings.Contains(r.stdout, "nonsense") {
		t.Errorf("with a bad configuration: code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if _, err := os.Stat(d.path("root")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("asking has made something: %v", err)
	}
}

// adviceOf matches the commands in an answer's advice: in backquotes, after a colon or "Then:", up to the end of a phrase.
var adviceOf = regexp.MustCompile("\\bmonopod ((?:[a-z]+ ?)(?:[^`;,()\\n]*))")

// TestEachCommandThatWhyNamesExists parses each monopod command in the golden answers of package why.
func TestEachCommandThatWhyNamesExists(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../node/why/testdata/*.txt")
	if err != nil || len(files) < 50 {
		t.Fatal(len(files), err)
	}
	found := map[string]bool{}
	for _, file := range files {
		for line := range strings.Lines(readFile(t, file)) {
			if strings.Contains(line, "ctr ") || strings.Contains(line, "crictl") || strings.Contains(line, "kubectl") {
				t.Errorf("%s names a program that may be missing: %s", file, line)
			}
			for _, m := range adviceOf.FindAllStringSubmatch(line, -1) {
				words := strings.Fields(m[1])
				p := newProgram()
				cmd, rest, err := NewCommands(p).root().Find(words)
				if err != nil || !cmd.HasParent() {
					if prose[words[0]] {
						continue
					}
					t.Errorf("%s: monopod %s: no such command", file, m[1])
					continue
				}
				found[cmd.Name()] = true
				if err := cmd.ParseFlags(rest); err != nil {
					t.Errorf("%s: monopod %s: %v", file, m[1], err)
				}
			}
		}
	}
	for _, name := range []string{"rm", "logs", "undrain", "rollback", "history", "validate", "delete", "why"} {
		if !found[name] {
			t.Errorf("no golden answer advises %s", name)
		}
	}
}

// prose are words that follow "monopod" in sentences.
var prose = map[string]bool{"does": true, "is": true, "ends": true, "started": true, "and": true, "so": true, "now": true, "because": true, "has": true, "itself": true, "running?": true, "had": true}
