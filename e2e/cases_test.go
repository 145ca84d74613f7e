//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
	"monopod/internal/cause"
)

// The tests of this file run the manifests of testdata/cases that are accepted. What is said about all of them is in internal/cli/check:
// TestValidateSaysWhatIsWrongWithEachCase.

var busyboxOfACase = regexp.MustCompile(`image: "?(?:docker\.io/library/)?busybox(?::latest)?"?`)

// caseText returns a manifest of testdata/cases with the busybox of the tests.
func caseText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "cases", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return busyboxOfACase.ReplaceAllString(string(b), "image: "+image)
}

// caseImages preloads the images of the cases.
func (in *instance) caseImages() {
	t := in.t
	at := func(name string) string { return filepath.Join(in.dir, "images", name+".tar") }
	data := func(c *v1.Config) { c.Volumes = map[string]struct{}{"/data": {}} }
	testimages.ArchiveOf(t, at("vol"), testimages.Busybox(t, data, testimages.File{Path: "run", Mode: 0o755}, testimages.File{Path: "var/run", Link: "/run", Mode: 0o777},
		testimages.File{Path: "data", Mode: 0o755}, testimages.File{Path: "data/seed", Content: []byte("seed\n"), Mode: 0o644}), "example.test/vol:1")
	const unmapped = 100_000
	testimages.ArchiveOf(t, at("big"), testimages.Busybox(t, nil, testimages.File{Path: "opt-file", Content: []byte("x"), Mode: 0o644, UID: unmapped, GID: unmapped},
		testimages.File{Path: "bigdir", Mode: 0o755, UID: unmapped, GID: unmapped}), "example.test/big:1")
	testimages.ArchiveOf(t, at("site"), testimages.Busybox(t, nil, testimages.File{Path: "www", Mode: 0o755}, testimages.File{Path: "www/a", Mode: 0o755},
		testimages.File{Path: "www/a/index.html", Content: []byte("hello-site\n"), Mode: 0o644}, testimages.File{Path: "current", Link: "www/a", Mode: 0o777},
		testimages.File{Path: "evil", Link: "/etc", Mode: 0o777}), "example.test/site:1")
	testimages.Artifact(t, at("rules"), "example.test/rules:1", testimages.Part{MediaType: "application/json", Title: "rules.json", Content: `{"rule": 1}`},
		testimages.Part{MediaType: "application/octet-stream", Title: "sub/model.bin", Content: "model-bytes"})
	testimages.Artifact(t, at("model"), "example.test/model:1", testimages.Part{MediaType: types.OCIUncompressedLayer, Title: "model.tar", Content: "model"})
}

// prints waits until a command in a container of a pod prints a text.
func (in *instance) prints(pod, container, script, want string) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("%s in %s prints %q", script, pod, want), func() error {
		out, err := in.run("exec", pod, "-c", container, "--", "sh", "-c", script)
		if err == nil && out != want {
			err = fmt.Errorf("it prints %q", out)
		}
		return err
	})
}

// containerLogHas waits until the log of a container has all words, in this order.
func (in *instance) containerLogHas(pod, container string, words ...string) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("the log of %s has %q", pod, words), func() error {
		out, err := in.run("logs", pod, "-c", container)
		rest := out
		for _, w := range words {
			_, after, found := strings.Cut(rest, w)
			if !found && err == nil {
				err = fmt.Errorf("no %q in %q", w, out)
			}
			rest = after
		}
		return err
	})
}

// whyHas waits until why has all words about a pod, and returns its text.
func (in *instance) whyHas(pod string, words ...string) (text string) {
	in.t.Helper()
	in.eventually("why "+pod, func() (err error) {
		text, err = in.run("why", pod)
		for _, w := range words {
			if err == nil && !strings.Contains(text, w) {
				err = fmt.Errorf("no %q in\n%s", w, text)
			}
		}
		return err
	})
	return text
}

// row waits until the line of a pod in `get pods` has a status, and at least so many restarts.
func (in *instance) row(pod string, restarts int, statuses ...string) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("%s is shown as %q", pod, statuses), func() error {
		out, err := in.run("get", "pods", "-A", "--no-headers")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(line) // NAMESPACE NAME READY STATUS RESTARTS
			if len(f) < 5 || f[1] != pod {
				continue
			}
			if n, err := strconv.Atoi(f[4]); err == nil && n >= restarts && slices.Contains(statuses, f[3]) {
				return nil
			}
		}
		return errors.New(out)
	})
}

// TestCasesRunAsWritten: each pod of testdata/cases runs, or why says what is wrong with it.
func TestCasesRunAsWritten(t *testing.T) {
	in := newInstance(t, `nodeCapacity: {cpu: "8", memory: 8Gi}`, "registryHostsDirs: [certs.d]")
	in.caseImages()
	registry := in.spoiltMirror()
	in.start()
	cases := map[string]func(){
		"c08-nested-cm": func() {
			in.prints("c08", "dirs", "cat /etc/app/main.conf /etc/app/conf.d/site.conf; touch /etc/app/cache/x && echo , written", "onesite one, written\n")
			in.prints("c08", "file", "cat /etc/app/main.conf /etc/app/site.conf", "onesite one")
		},
		"c08b-nested-variants": func() {
			in.prints("c08b-file", "file", "cat /etc/app/main.conf /etc/app/key", "onev")
			in.prints("c08b-proj", "a", "cat /etc/app/podname; touch /etc/app/data/x && echo , written", "c08b-proj, written\n")
			in.prints("c08b-empty", "a", "cat /etc/app/data/site.conf", "two")
			in.prints("c08b-secret-ro", "a", "cat /etc/app/k; touch /etc/app/data/x && echo , written", "v, written\n")
		},
		"c10-artifact-volume": func() {
			in.explains("c10-artifact", cause.ImageArtifact, "example.test/rules:1 of volume v", "spec.volumes[0].image.reference")
			in.containerLogHas("c10-site", "c", "hello-site", "hello-site", "hello-site")
			in.whyHas("c10-missing", "c10-missing is not ready")
			in.whyHas("c10-evil", "c10-evil is not ready") // its link leads out of the volume
		},
		"c10b-artifact-tar-and-as-image": func() {
			in.explains("c10b-tar", cause.ImageArtifact, "example.test/model:1 of volume v")
			in.explains("c10b-run", cause.ImageArtifact, "example.test/rules:1", "spec.containers[0].image")
			in.explains("c10b-sub", cause.ImageArtifact, "example.test/rules:1 of volume v")
		},
		"c12-cat-bom": func() { in.prints("c12b", "c", "cat /c/app.ini /c/note", "[main]\nkey=value\ncafé ✓") },
		"c16-status": func() {
			in.row("c16-badinit", 0, "Init:ErrImagePull", "Init:ImagePullBackOff")
			in.row("c16-startup", 0, "Init:0/1")
			in.row("c16-done", 0, "Completed")
			in.row("c16-sidecarcrash", 1, "Running", "CrashLoopBackOff", "Init:CrashLoopBackOff", "Init:Error", "PodInitializing")
		},
		"c17-init-laststate": func() {
			p := in.ready("c17")
			if s := p.Status.InitContainerStatuses[0]; s.State.Terminated == nil || s.LastTerminationState != (corev1.ContainerState{}) {
				in.t.Errorf("the init container has the states %+v", s)
			}
		},
		"c28-mirror-broken": func() {
			in.ready("c28-trunc")
			in.ready("c28-html")
			in.whyHas("c28-badct", "badct/app:1")
		},
		"c34-init-crash": func() {
			in.row("c34", 1, "Init:Error", "Init:CrashLoopBackOff")
			in.containerLogHas("c34caps", "c", "CapEff:\t0000000000001001", "CapBnd:\t0000000000001001")
			in.prints("c34down", "c", "echo $R_CPU $R_CPUM $R_REQM $R_MEM $R_NODE $R_SA; cat /d/cpu; test -n $R_IPS && echo , known", "1 250 125 20 e2e\n125, known\n")
			for i := range 3 {
				in.pod(fmt.Sprintf("c34job-%d", i), "succeeds", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
				in.containerLogHas(fmt.Sprintf("c34job-%d", i), "c", fmt.Sprintf("idx %d host ", i))
			}
		},
		"problems": func() {
			in.whyHas("big", "never fits here")
			in.whyHas("oom", "ran out of memory", "24Mi")
			in.whyHas("nocm", "sitenv", "slep")
			if text := in.whyHas("live", "liveness probe", "8080"); strings.Contains(text, "command and args") {
				in.t.Errorf("wrong advice:\n%s", text)
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			in.t = t
			in.put(name, strings.ReplaceAll(caseText(t, name), "127.0.0.1:5000", registry))
			defer in.drop(name)
			cases[name]()
		})
		in.t = t
	}
}

// spoiltMirror makes reg.test a registry behind a mirror of which the first part of an image's name says how it is broken, and returns the
// address of the registry.
func (in *instance) spoiltMirror() (registry string) {
	t := in.t
	behind := testimages.Registry(t)
	for _, name := range []string{"mblobempty", "mhtml", "badct"} {
		testimages.Push(t, behind+"/"+name+"/app:1", testimages.Busybox(t, nil))
	}
	serve := func(spoil func(w http.ResponseWriter, r *http.Request) bool, edit func(*http.Response) error) string {
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
		proxy.ModifyResponse = edit
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !spoil(w, r) {
				proxy.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(srv.Close)
		return srv.Listener.Addr().String()
	}
	unspoilt := func(http.ResponseWriter, *http.Request) bool { return false }
	registry = serve(unspoilt, func(r *http.Response) error {
		if strings.Contains(r.Request.URL.Path, "/badct/app/manifests/") {
			r.Header.Set("Content-Type", "application/json")
		}
		return nil
	})
	mirror := serve(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/mhtml/"):
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>login</html>")
		case strings.Contains(r.URL.Path, "/mblobempty/app/blobs/"):
			w.Header().Set("Content-Length", "1000") // and nothing follows
		default:
			return false
		}
		return true
	}, nil)
	text, err := os.ReadFile(filepath.Join("testdata", "cases", "c28-hosts.toml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(in.dir, "certs.d", "reg.test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in.write(filepath.Join(dir, "hosts.toml"), strings.NewReplacer("127.0.0.1:5000", registry, "127.0.0.1:5001", mirror).Replace(string(text)))
	return registry
}

// TestCasesInUserNamespaces: files of users that a namespace lacks are shown as those of nobody, and a user that it lacks is named.
func TestCasesInUserNamespaces(t *testing.T) {
	t.Setenv("TMPDIR", "/var/tmp") // in the VM /tmp is a tmpfs, of which its kernel cannot map ids
	in := newInstance(t)
	in.caseImages()
	if err := os.Chmod(filepath.Dir(in.state), 0o711); err != nil { // for the users of pods
		t.Fatal(err)
	}
	in.start()
	in.put("c05", caseText(t, "c05-userns-volume"))
	in.put("c06", caseText(t, "c06-userns-biguser"))
	in.ready("c05")
	in.containerLogHas("c05", "vol", "uid=0", "1", "run-writable", "data-writable")
	in.containerLogHas("c05", "big", "65534", "/opt-file", "65534", "/bigdir")
	if text := in.whyHas("c06", "the pod has user and group ids up to 65535, not "); strings.Contains(text, "network cannot be set up") {
		t.Errorf("the network is blamed:\n%s", text)
	}
}
