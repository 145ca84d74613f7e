package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/loopback"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// manifestServer serves configured answers by path.
type manifestServer struct {
	*httptest.Server
	body atomic.Pointer[map[string]string]
}

func newManifestServer(t *testing.T, body map[string]string) *manifestServer {
	t.Helper()
	m := &manifestServer{}
	m.body.Store(&body)
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		text, ok := (*m.body.Load())[r.URL.Path]
		if !ok {
			http.NotFound(rw, r)
			return
		}
		_, _ = io.WriteString(rw, text)
	}))
	_ = m.Listener.Close()
	m.Listener = loopback.Listen(t) // where nobody else listens when it is closed
	m.Start()
	t.Cleanup(m.Close)
	return m
}

// gone waits until there is no pod of that name.
func (d *testDaemon) gone(name string) {
	d.t.Helper()
	d.eventually(name+" is gone", func() error {
		if r := d.cmd("get", "pods"); r.code != 0 || strings.Contains(r.stdout, name) {
			return errors.New(r.stdout + r.stderr)
		}
		return nil
	})
}

func TestPodsOfSeveralURLsStartOfflineFromTheirCopiesAndGoWithTheirSource(t *testing.T) {
	t.Parallel()
	web := newManifestServer(t, map[string]string{
		"/static": daemontest.PodYAML("static", runtimetest.ScriptServe),
		"/fleet":  daemontest.PodYAML("fleet", runtimetest.ScriptServe) + "---\n" + daemontest.PodYAML("both", runtimetest.ScriptServe),
		"/site":   daemontest.PodYAML("site", runtimetest.ScriptServe) + "---\n" + daemontest.PodYAML("both", runtimetest.ScriptServe),
	})
	fleet := fmt.Sprintf("{name: fleet, url: %q}", web.URL+"/fleet")
	both := fmt.Sprintf("sources: [%s, {name: site, url: %q}]", fleet, web.URL+"/site")
	d := newDaemon(t, "staticPodURL: "+web.URL+"/static", both)
	d.start()
	for _, name := range []string{"static", "fleet", "both", "site"} {
		d.eventually(name+" runs", func() error {
			if r := d.cmd("get", "pod", name); !strings.Contains(r.stdout, "Running") {
				return errors.New(r.stdout + r.stderr)
			}
			return nil
		})
	}
	d.shows("is already defined in "+web.URL+"/fleet:", "get", "sources")
	d.end()

	web.Close()
	d.fake = runtimetest.NewFake() // a reboot: nothing runs
	d.start()
	d.eventually("each source says that it is from disk", func() error {
		r := d.cmd("get", "sources")
		if strings.Count(r.stdout, "this is the copy on disk of the answer of ") != 3 || !strings.Contains(r.stdout, "connection refused") {
			return errors.New(r.stdout + r.stderr)
		}
		return nil
	})
	for _, name := range []string{"static", "fleet", "both", "site"} {
		d.eventually(name+" runs", func() error {
			if r := d.cmd("get", "pod", name); !strings.Contains(r.stdout, "Running") {
				return errors.New(r.stdout + r.stderr)
			}
			return nil
		})
	}
	d.shows(`"fromDisk": "20`, "get", "sources", "-o", "json")
	d.end()

	config, err := os.ReadFile(d.path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.path("config.yaml"), strings.Replace(string(config), both, "sources: ["+fleet+"]", 1))
	d.start()
	d.gone("site")
	d.shows("both", "get", "pods") // the other source has it too
	if _, err := os.Stat(d.path("root", "sources", "site")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy of the source that is no more: %v", err)
	}
}

func TestOneBadObjectOfAURLDoesNotStopTheOthers(t *testing.T) {
	good, bad := daemontest.PodYAML("good", runtimetest.ScriptServe), strings.Replace(daemontest.PodYAML("bad", runtimetest.ScriptServe), "containers", "containrs", 1)
	web := newManifestServer(t, map[string]string{"/parts": good + "---\n" + bad, "/whole": strings.ReplaceAll(good+"---\n"+bad, "good", "whole")})
	d := newDaemon(t, fmt.Sprintf("sources: [{name: parts, url: %q}, {name: whole, url: %q, atomic: true}]", web.URL+"/parts", web.URL+"/whole"))
	d.start()
	d.shows("Running", "get", "pod", "good")
	d.eventually("both sources have said what they refuse", func() error {
		r := d.cmd("get", "sources")
		if strings.Count(r.stdout, "Refused") != 2 || !strings.Contains(r.stdout, "unknown field; did you mean") {
			return errors.New(r.stdout + r.stderr)
		}
		return nil
	})
	if r := d.cmd("get", "pods"); strings.Contains(r.stdout, "whole") {
		t.Error(r.stdout)
	}
}

func TestTheSourcesInTheDocsAreAConfiguration(t *testing.T) {
	docs, err := os.ReadFile("../../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(docs), "```yaml\n# /etc/monopod/config.yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no configuration in docs/sources.md")
	}
	dir := t.TempDir()
	testfiles.Write(t, dir+"/config.yaml", text)
	cfg, err := daemontest.LoadIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	if s := cfg.RemoteSources; len(s) != 4 || s[0].Headers[0].ValueFile == "" || !s[1].Atomic || s[2].Signature.KeyFiles[0] == "" || !strings.HasPrefix(s[3].URL, "oci://") {
		t.Errorf("%+v", cfg.RemoteSources)
	}
}

func TestASourceThatIsRenamedKeepsItsPods(t *testing.T) {
	t.Parallel()
	web := newManifestServer(t, map[string]string{"/fleet": daemontest.PodYAML("web", runtimetest.ScriptServe)})
	d := newDaemon(t, fmt.Sprintf("sources: [{name: fleet, url: %q, period: 1s}]", web.URL+"/fleet"))
	d.start()
	d.shows("Running", "get", "pod", "web")
	key := manifests.Key{Namespace: "default", Name: "web"}
	was := d.fake.State(key)
	d.end()

	config, err := os.ReadFile(d.path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.path("config.yaml"), strings.Replace(string(config), "name: fleet,", "name: fleet2,", 1))
	web.body.Store(&map[string]string{}) // the new source has no answer yet
	d.put("other.yaml", daemontest.PodYAML("other", runtimetest.ScriptServe))
	d.start()
	d.shows("Running", "get", "pod", "other") // what is known has been carried out
	d.shows("Unreachable", "get", "sources")
	if _, err := os.Stat(d.path("root", "sources", "fleet")); err != nil {
		t.Errorf("the copy of the old name was removed before the new one was read: %v", err)
	}
	more := daemontest.PodYAML("more", runtimetest.ScriptServe)
	web.body.Store(&map[string]string{"/fleet": more + "---\n" + strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "containers", "containrs", 1)})
	d.shows("Running", "get", "pod", "more")
	d.shows("unknown field", "get", "sources") // a mistake in its first answer hides the pod that runs
	if now := d.fake.State(key); now.Sandbox == nil || now.Containers[0].ID != was.Containers[0].ID {
		t.Errorf("the pod was %+v and is %+v", was, now)
	}
	web.body.Store(&map[string]string{"/fleet": daemontest.PodYAML("web", runtimetest.ScriptServe) + "---\n" + more})
	d.eventually("the copy of the old name is gone", func() error {
		if _, err := os.Stat(d.path("root", "sources", "fleet")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if now := d.fake.State(key); now.Sandbox == nil || now.Sandbox.ID != was.Sandbox.ID || now.Containers[0].ID != was.Containers[0].ID {
		t.Errorf("the pod was %+v and is %+v", was, now)
	}
	d.shows("fleet2", "get", "pod", "web", "-o", "yaml")
}

func TestARunningPodStaysWhenItsFileIsBrokenAtTheStartAndALowerSourceHasAnOlderOne(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "autoRollback: {enabled: true, readyDeadline: 1h, soak: 0s}")
	d.start()
	older, newer := daemontest.PodYAML("web", runtimetest.ScriptServe), strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1)
	if r := d.cmd("apply", "-f", d.file("web.yaml", older)); r.code != program.ExitOK {
		t.Fatal(r.stderr)
	}
	d.shows("Running", "get", "pod", "web")
	d.put("web.yaml", newer)
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  replicas: %d\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n" +
		"    spec: {containers: [{name: c, image: \"example.com/many:%d\", command: [sh, -c, \"" + runtimetest.ScriptServe + "\"]}]}\n"
	if r := d.cmd("apply", "-f", d.file("many.yaml", fmt.Sprintf(deployment, 2, 1)), "--wait"); r.code != program.ExitOK {
		t.Fatal(r.stderr)
	}
	d.put("many.yaml", fmt.Sprintf(deployment, 1, 2))
	many := func(want string) {
		t.Helper()
		d.eventually("the Deployment runs "+want, func() error {
			got := ""
			for i := range 2 {
				s := d.fake.State(manifests.Key{Namespace: "default", Name: fmt.Sprint("many-", i)})
				for _, c := range s.Containers {
					got += fmt.Sprintf("%d=%s ", i, strings.TrimPrefix(c.Image, "example.com/many:"))
				}
			}
			if got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	many("0=2 ")
	key := manifests.Key{Namespace: "default", Name: "web"}
	runs := func(image string) {
		t.Helper()
		d.eventually("the pod runs "+image, func() error {
			s := d.fake.State(key)
			if s.Sandbox == nil || s.Sandbox.Pod == nil || s.Sandbox.Pod.Object.Spec.Containers[0].Image != image || len(s.Containers) != 1 || s.Containers[0].State != runner.ContainerRunning {
				return fmt.Errorf("it is %+v", s)
			}
			return nil
		})
	}
	runs("example.com/app:2")
	d.shows("Ready", "history", "web")
	was := d.fake.State(key)
	d.end()

	d.put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {contain")
	d.put("many.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec: {repl")
	d.put("other.yaml", daemontest.PodYAML("other", runtimetest.ScriptServe)+"---\n"+strings.ReplaceAll(fmt.Sprintf(deployment, 1, 1), "name: many", "name: few"))
	d.start()
	d.shows("Running", "get", "pod", "other") // what is known has been carried out
	d.shows("Running", "get", "pod", "few-0")
	many("0=2 ")
	d.shows("has not been read since the agent started", "describe", "pod", "web")
	if now := d.fake.State(key); now.Sandbox == nil || now.Sandbox.ID != was.Sandbox.ID || now.Containers[0].ID != was.Containers[0].ID {
		t.Errorf("the pod was %+v and is %+v", was, now)
	}
	if r := d.cmd("history", "web"); strings.Contains(r.stdout, "\n3 ") {
		t.Errorf("what was applied has become a revision:\n%s", r.stdout)
	}
	if err := os.Remove(d.path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	runs("example.com/app:1")
	if err := os.Remove(d.path("manifests", "many.yaml")); err != nil {
		t.Fatal(err)
	}
	many("0=1 1=1 ")
}
