package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
	"monopod/manifests/policy"
	"monopod/runner/ctrd/image/registry"
	"monopod/watcher"
	"monopod/watcher/applied"
	"monopod/watcher/fetch"
)

// bound is a source of bound pods.
type bound struct{ watcher.Source }

func (bound) Name() string { return config.SourceAPIServer }

// configured returns a configuration whose directories are those of the test.
func configured(t *testing.T, edit func(*config.Config)) (*config.Loaded, Deps) {
	t.Helper()
	dir := t.TempDir()
	cfg := &config.Loaded{Config: config.Config{RootDirectory: dir}}
	edit(&cfg.Config)
	return cfg, Deps{Log: slog.New(slog.DiscardHandler), Applied: applied.NewStore(filepath.Join(dir, "applied"))}
}

func TestSourcesAreThoseConfiguredByPrecedence(t *testing.T) {
	all := func(c *config.Config) {
		c.StaticPodPath, c.StaticPodURL, c.RemoteSources = "/m", "http://files", []config.RemoteSource{{Name: "web", URL: "http://web"}, {Name: "oci", URL: "oci://registry/pods"}}
	}
	for name, c := range map[string]struct {
		edit  func(*config.Config)
		bound watcher.Source
		want  []string
	}{
		"only apply": {func(*config.Config) {}, nil, []string{config.SourceApplied}},
		"all": {func(c *config.Config) {
			all(c)
			c.Kubeconfig, c.APIServerPods = "kubeconfig", true
		}, bound{}, []string{config.SourceFile, config.SourceHTTP, "web", "oci", config.SourceApplied, config.SourceAPIServer}},
		"ordered": {func(c *config.Config) {
			all(c)
			c.SourceOrder = []string{"oci", config.SourceApplied}
		}, nil, []string{"oci", config.SourceApplied, config.SourceFile, config.SourceHTTP, "web"}},
	} {
		cfg, d := configured(t, c.edit)
		d.Bound = c.bound
		var got []string
		for _, s := range New(cfg, d) {
			got = append(got, s.Name())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestOneMistakeRefusesAFileOnly: what comes from afar is judged object by object.
func TestOneMistakeRefusesAFileOnly(t *testing.T) {
	text := []byte(daemontest.PodYAML("good", "x") + "---\n" + strings.Replace(daemontest.PodYAML("bad", "x"), "image", "picture", 1))
	if c, err := Loader(config.SourceFile, policy.Policy{})("/m/two.yaml", text); err == nil || c != nil {
		t.Errorf("a file: %+v, %v", c, err)
	}
	c, err := PartialLoader(config.SourceHTTP, policy.Policy{})("http://files", text)
	if err == nil || c == nil || len(c.Pods) != 1 || c.Pods[0].Object.Name != "good" || c.Pods[0].Origin.Source != config.SourceHTTP {
		t.Errorf("a URL: %+v, %v", c, err)
	}
	if c, err := Loader(config.SourceFile, policy.Policy{})("/m/one.yaml", []byte(daemontest.PodYAML("good", "x"))); err != nil || len(c.Pods) != 1 || c.Pods[0].Origin.File != "/m/one.yaml" {
		t.Errorf("a good file: %+v, %v", c, err)
	}
}

func TestLoadersKeepToTheirPolicyAndAuthor(t *testing.T) {
	privileged := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web, generation: 7}\nspec: {containers: [{name: c, image: x, securityContext: {privileged: true}}]}\n")
	for source, want := range map[string]int64{config.SourceFile: 0, config.SourceAPIServer: 7} {
		if _, err := PartialLoader(source, policy.Policy{PodSecurity: "restricted"})("in", privileged); err == nil || !strings.Contains(err.Error(), "privileged") {
			t.Errorf("%s: a privileged pod is accepted, %v", source, err)
		}
		c, err := PartialLoader(source, policy.Policy{})("in", privileged)
		if err != nil || len(c.Pods) != 1 || c.Pods[0].Object.Generation != want {
			t.Errorf("%s: %+v, %v; want generation %d", source, c, err, want)
		}
	}
}

// TestHooksOfHelmRunWhereAClientWritesThem: Helm writes them by the API when they are to run.
func TestHooksOfHelmRunWhereAClientWritesThem(t *testing.T) {
	hook := []byte("apiVersion: batch/v1\nkind: Job\nmetadata: {name: before, annotations: {helm.sh/hook: pre-install}}\n" +
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}\n")
	noted, err := applied.Join(&applied.Note{UID: "u"}, hook)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		data []byte
		runs int
	}{{hook, 0}, {noted, 1}} {
		if got, err := AppliedLoader(policy.Policy{})("in", c.data); err != nil || len(got.Workloads) != c.runs {
			t.Errorf("%.20s: %+v, %v; want %d Jobs", c.data, got, err, c.runs)
		}
	}
}

func TestARemoteSourceSendsItsHeadersAndJudgesObjectByObject(t *testing.T) {
	headers := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case headers <- r.Header:
		default:
		}
		fmt.Fprint(w, daemontest.PodYAML("web", "x")+"---\n"+strings.Replace(daemontest.PodYAML("critical", "x"), "spec:\n", "spec:\n  priorityClassName: system-node-critical\n", 1))
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	testfiles.Write(t, token, "secret\n")
	cfg, d := configured(t, func(c *config.Config) {
		c.RemoteSources = []config.RemoteSource{{
			Name: "web", URL: server.URL, Period: time.Hour, Timeout: daemontest.Patience, MaxSize: "1Mi",
			Headers: []config.SourceHeader{{Name: "X-Site", Value: "attic"}, {Name: "Authorization", Value: "Bearer ", ValueFile: token}},
		}}
	})
	ctx, cancel := context.WithCancel(t.Context())
	sets, ended := make(chan watcher.Set), make(chan error, 1)
	go func() { ended <- New(cfg, d)[0].Run(ctx, sets) }()
	var set watcher.Set
	for set = <-sets; set.Unread; set = <-sets { // not asked yet
	}
	if h := <-headers; h.Get("X-Site") != "attic" || h.Get("Authorization") != "Bearer secret" {
		t.Errorf("sent: %v", h)
	}
	if len(set.Pods) != 1 || set.Pods[0].Object.Name != "web" || !strings.Contains(fmt.Sprint(set.Inputs), "system-node-critical") {
		t.Errorf("%d pods, reports %+v", len(set.Pods), set.Inputs)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// fetched is a registry with one answer.
type fetched struct {
	artifacts
	got *registry.Artifact
	err error
}

func (f fetched) Fetch(context.Context, string, string, int64) (*registry.Artifact, error) {
	return f.got, f.err
}

func TestTheAnswersOfARegistryAreThoseOfASource(t *testing.T) {
	lost := errors.New("nobody answers")
	for name, c := range map[string]struct {
		answer   fetched
		want     error
		digest   string
		refusing bool
	}{
		"the same":    {answer: fetched{err: fmt.Errorf("fetch: %w", registry.ErrSame)}, want: fetch.ErrNotModified},
		"unfit":       {answer: fetched{err: registry.Unfit("an image")}, refusing: true},
		"no answer":   {answer: fetched{err: lost}, want: lost},
		"an answer":   {answer: fetched{got: &registry.Artifact{Digest: "sha256:1", Layers: []registry.Blob{{MediaType: "m", Title: "a.yaml", Data: []byte("x")}}}}, digest: "sha256:1"},
		"it is empty": {answer: fetched{got: &registry.Artifact{Digest: "sha256:2"}}, digest: "sha256:2"},
	} {
		got, err := imageRegistry{c.answer}.Artifact(t.Context(), "r/pods", "sha256:0", 10)
		refusal, refused := errors.AsType[*fetch.Refusal](err)
		if refused != c.refusing || refused && refusal.Error() != "an image" || !refused && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v", name, err)
		}
		if c.digest != "" && (got == nil || got.Digest != c.digest || len(got.Layers) != len(c.answer.got.Layers)) {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "an answer" && (got.Layers[0].Title != "a.yaml" || string(got.Layers[0].Data) != "x") {
			t.Errorf("layer %+v", got.Layers[0])
		}
	}
}
