package run

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
	d.Start()
	for _, name := range []string{"static", "fleet", "both", "site"} {
		d.Eventually(name+" runs", func() error {
			if r := d.Cmd("get", "pod", name); !strings.Contains(r.Stdout, "Running") {
				return errors.New(r.Stdout + r.Stderr)
			}
			return nil
		})
	}
	d.Shows("is already defined in "+web.URL+"/fleet:", "get", "sources")
	d.End()

	web.Close()
	d.Fake = runtimetest.NewFake() // a reboot: nothing runs
	d.Start()
	d.Eventually("each source says that it is from disk", func() error {
		r := d.Cmd("get", "sources")
		if strings.Count(r.Stdout, "this is the cached answer of ") != 3 || !strings.Contains(r.Stdout, "connection refused") {
			return errors.New(r.Stdout + r.Stderr)
		}
		return nil
	})
	for _, name := range []string{"static", "fleet", "both", "site"} {
		d.Eventually(name+" runs", func() error {
			if r := d.Cmd("get", "pod", name); !strings.Contains(r.Stdout, "Running") {
				return errors.New(r.Stdout + r.Stderr)
			}
			return nil
		})
	}
	d.Shows(`"fromDisk": "20`, "get", "sources", "-o", "json")
	d.End()

	config, err := os.ReadFile(d.Path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("config.yaml"), strings.Replace(string(config), both, "sources: ["+fleet+"]", 1))
	d.Start()
	d.Gone("site")
	d.Shows("both", "get", "pods") // the other source has it too
	if _, err := os.Stat(d.Path("root", "sources", "site")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy of the source that is no more: %v", err)
	}
}

func TestOneBadObjectOfAURLDoesNotStopTheOthers(t *testing.T) {
	good, bad := daemontest.PodYAML("good", runtimetest.ScriptServe), strings.Replace(daemontest.PodYAML("bad", runtimetest.ScriptServe), "containers", "containrs", 1)
	web := newManifestServer(t, map[string]string{"/parts": good + "---\n" + bad, "/whole": strings.ReplaceAll(good+"---\n"+bad, "good", "whole")})
	d := newDaemon(t, fmt.Sprintf("sources: [{name: parts, url: %q}, {name: whole, url: %q, atomic: true}]", web.URL+"/parts", web.URL+"/whole"))
	d.Start()
	d.Shows("Running", "get", "pod", "good")
	d.Eventually("both sources have said what they refuse", func() error {
		r := d.Cmd("get", "sources")
		if strings.Count(r.Stdout, "Refused") != 2 || !strings.Contains(r.Stdout, "unknown field; did you mean") {
			return errors.New(r.Stdout + r.Stderr)
		}
		return nil
	})
	if r := d.Cmd("get", "pods"); strings.Contains(r.Stdout, "whole") {
		t.Error(r.Stdout)
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
	d.Start()
	d.Shows("Running", "get", "pod", "web")
	key := manifests.Key{Namespace: "default", Name: "web"}
	was := d.Fake.State(key)
	d.End()

	config, err := os.ReadFile(d.Path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("config.yaml"), strings.Replace(string(config), "name: fleet,", "name: fleet2,", 1))
	web.body.Store(&map[string]string{}) // the new source has no answer yet
	d.Put("other.yaml", daemontest.PodYAML("other", runtimetest.ScriptServe))
	d.Start()
	d.Shows("Running", "get", "pod", "other") // what is known has been carried out
	d.Shows("Unreachable", "get", "sources")
	if _, err := os.Stat(d.Path("root", "sources", "fleet")); err != nil {
		t.Errorf("the copy of the old name was removed before the new one was read: %v", err)
	}
	more := daemontest.PodYAML("more", runtimetest.ScriptServe)
	web.body.Store(&map[string]string{"/fleet": more + "---\n" + strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "containers", "containrs", 1)})
	d.Shows("Running", "get", "pod", "more")
	d.Shows("unknown field", "get", "sources") // a mistake in its first answer hides the pod that runs
	if now := d.Fake.State(key); now.Sandbox == nil || now.Containers[0].ID != was.Containers[0].ID {
		t.Errorf("the pod was %+v and is %+v", was, now)
	}
	web.body.Store(&map[string]string{"/fleet": daemontest.PodYAML("web", runtimetest.ScriptServe) + "---\n" + more})
	d.Eventually("the copy of the old name is gone", func() error {
		if _, err := os.Stat(d.Path("root", "sources", "fleet")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if now := d.Fake.State(key); now.Sandbox == nil || now.Sandbox.ID != was.Sandbox.ID || now.Containers[0].ID != was.Containers[0].ID {
		t.Errorf("the pod was %+v and is %+v", was, now)
	}
	d.Shows("fleet2", "get", "pod", "web", "-o", "yaml")
}

func TestARunningPodStaysWhenItsFileIsBrokenAtTheStartAndALowerSourceHasAnOlderOne(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "autoRollback: {enabled: true, readyDeadline: 1h, soak: 0s}")
	d.Start()
	older, newer := daemontest.PodYAML("web", runtimetest.ScriptServe), strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:2", 1)
	if r := d.Cmd("apply", "-f", d.File("web.yaml", older)); r.Code != program.ExitOK {
		t.Fatal(r.Stderr)
	}
	d.Shows("Running", "get", "pod", "web")
	d.Put("web.yaml", newer)
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  replicas: %d\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n" +
		"    spec: {containers: [{name: c, image: \"example.com/many:%d\", command: [sh, -c, \"" + runtimetest.ScriptServe + "\"]}]}\n"
	if r := d.Cmd("apply", "-f", d.File("many.yaml", fmt.Sprintf(deployment, 2, 1)), "--wait"); r.Code != program.ExitOK {
		t.Fatal(r.Stderr)
	}
	d.Put("many.yaml", fmt.Sprintf(deployment, 1, 2))
	many := func(want string) {
		t.Helper()
		d.Eventually("the Deployment runs "+want, func() error {
			got := ""
			for i := range 2 {
				s := d.Fake.State(manifests.Key{Namespace: "default", Name: fmt.Sprint("many-", i)})
				for _, c := range s.Containers {
					got += fmt.Sprintf("%d=%s ", i, strings.TrimPrefix(c.Image, "example.com/many:"))
					if s.Sandbox.Pod.Object.Spec.Containers[0].Image != c.Image {
						got += "not recorded "
					}
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
		d.Eventually("the pod runs "+image, func() error {
			s := d.Fake.State(key)
			if s.Sandbox == nil || s.Sandbox.Pod == nil || s.Sandbox.Pod.Object.Spec.Containers[0].Image != image || len(s.Containers) != 1 || s.Containers[0].State != runner.ContainerRunning {
				return fmt.Errorf("it is %+v", s)
			}
			return nil
		})
	}
	runs("example.com/app:2")
	d.Shows("Ready", "history", "web")
	was := d.Fake.State(key)
	d.End()

	d.Put("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {contain")
	d.Put("many.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec: {repl")
	d.Put("other.yaml", daemontest.PodYAML("other", runtimetest.ScriptServe)+"---\n"+strings.ReplaceAll(fmt.Sprintf(deployment, 1, 1), "name: many", "name: few"))
	d.Start()
	d.Shows("Running", "get", "pod", "other") // what is known has been carried out
	d.Shows("Running", "get", "pod", "few-0")
	many("0=2 ")
	d.Shows("has not been read since the agent started", "describe", "pod", "web")
	if now := d.Fake.State(key); now.Sandbox == nil || now.Sandbox.ID != was.Sandbox.ID || now.Containers[0].ID != was.Containers[0].ID {
		t.Errorf("the pod was %+v and is %+v", was, now)
	}
	if r := d.Cmd("history", "web"); strings.Contains(r.Stdout, "\n3 ") {
		t.Errorf("what was applied has become a revision:\n%s", r.Stdout)
	}
	if err := os.Remove(d.Path("manifests", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	runs("example.com/app:1")
	if err := os.Remove(d.Path("manifests", "many.yaml")); err != nil {
		t.Fatal(err)
	}
	many("0=1 1=1 ")
}

// TestAPodOfAWorkloadWhoseNameIsTakenIsReported: it was only logged.
func TestAPodOfAWorkloadWhoseNameIsTakenIsReported(t *testing.T) {
	d := newDaemon(t)
	d.Put("a.yaml", daemontest.PodYAML("web-0", runtimetest.ScriptServe))
	d.Put("b.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'example.com/app:1'}]}}}\n")
	d.Start()
	said := d.Path("manifests", "b.yaml") + ":1: pod default/web-0 of this workload is not run: another pod of that name is defined in " + d.Path("manifests", "a.yaml") + ":1"
	d.Shows(said, "get", "sources")
	d.Shows(said, "why")
	d.Shows("web-1", "get", "pods")
	if err := os.Remove(d.Path("manifests", "a.yaml")); err != nil {
		t.Fatal(err)
	}
	d.Shows("2/2", "get", "deploy")
	d.Eventually("nothing is reported any more", func() error {
		if r := d.Cmd("get", "sources"); strings.Contains(r.Stdout, "Conflict") {
			return errors.New(r.Stdout)
		}
		return nil
	})
}
