package offline

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/events"
	"monopod/node/why"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is what a daemon has left: events of default/web, and logs of two instances of its container.
func disk(t *testing.T) *config.Loaded {
	t.Helper()
	cfg := &config.Loaded{}
	cfg.RootDirectory, cfg.PodLogsDir = t.TempDir(), t.TempDir()
	r := events.New(events.Config{Dir: RecordIn(cfg.RootDirectory), Node: "here"})
	for _, reason := range []string{"Pulling", "Pulled", "Created", "Started", "Unhealthy", "BackOff"} {
		r.Event(corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "u"}, corev1.EventTypeNormal, reason, "of it\nin two lines")
	}
	r.Event(corev1.ObjectReference{Kind: "Pod", Namespace: "other", Name: "web", UID: "v"}, corev1.EventTypeNormal, "Other", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it still writes what came before
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for word := range strings.FieldsSeq("a b c d e f g h i j k l") {
		log.WriteString("2026-01-02T03:04:05.000000000Z stdout F " + word + "\n")
	}
	testfiles.Write(t, filepath.Join(cfg.PodLogsDir, "default_web_u", "c", "0.log"), log.String())
	testfiles.Write(t, filepath.Join(cfg.PodLogsDir, "default_web_u", "c", "1.log"), "") // started, without a word yet
	testfiles.Write(t, filepath.Join(cfg.PodLogsDir, "not-of-a-pod", "c", "0.log"), log.String())
	return cfg
}

func pods(t *testing.T) []*manifests.Pod {
	t.Helper()
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME, namespace: SPACE}\nspec: {containers: [{name: c, image: i}, {name: quiet, image: i}]}\n"
	var docs []string
	for _, name := range []string{"default/web", "default/db", "other/web"} {
		space, name, _ := strings.Cut(name, "/")
		docs = append(docs, strings.NewReplacer("NAME", name, "SPACE", space).Replace(text))
	}
	all, err := decode.Pods("/m/pods.yaml", []byte(strings.Join(docs, "---\n")), decode.Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatADaemonHasLeftOfAPod(t *testing.T) {
	var f why.Facts
	ReadRecords(disk(t)).Add(t.Context(), &f, manifests.Key{Namespace: "default", Name: "web"}, pods(t))
	if len(f.Pods) != 3 {
		t.Fatalf("%+v", f.Pods)
	}
	web := f.Pods[0]
	if web.Where != "/m/pods.yaml:1" || web.Object.Status.Phase != corev1.PodUnknown {
		t.Errorf("%s: %+v", web.Where, web.Object.Status)
	}
	if diff := cmp.Diff(map[string][]string{"c": strings.Fields("c d e f g h i j k l")}, web.Output); diff != "" {
		t.Error(diff)
	}
	var reasons []string
	for _, line := range web.Events {
		_, text, _ := strings.Cut(line[len(time.DateTime):], " ")
		reasons = append(reasons, text)
	}
	// The first one is left out.
	if want := []string{"Pulled", "Created", "Started", "Unhealthy", "BackOff"}; !slices.EqualFunc(reasons, want, strings.HasPrefix) || strings.Contains(strings.Join(reasons, ""), "\n") {
		t.Errorf("%q", reasons)
	}
	for _, other := range f.Pods[1:] { // only named, as what else has that name
		if other.Events != nil || other.Output != nil || other.Where == "" {
			t.Errorf("%s: %+v", other.Object.Name, other)
		}
	}
}

func TestPodsOfANamespaceWithTheirDetails(t *testing.T) {
	r := ReadRecords(disk(t))
	for namespace, want := range map[string]string{"": "default/web default/db other/web", "default": "default/web default/db", "other": "other/web", "none": ""} {
		var f why.Facts
		r.Add(t.Context(), &f, manifests.Key{Namespace: namespace}, pods(t))
		var names []string
		for _, p := range f.Pods {
			names = append(names, p.Object.Namespace+"/"+p.Object.Name)
			if events := len(p.Events); events == 0 && p.Object.Name == "web" {
				t.Errorf("%s has no events", p.Object.Namespace)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q: %s, want %s", namespace, got, want)
		}
	}
}

func TestADiskWithNothing(t *testing.T) {
	cfg := &config.Loaded{}
	cfg.RootDirectory, cfg.PodLogsDir = filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	var f why.Facts
	ReadRecords(cfg).Add(t.Context(), &f, manifests.Key{}, pods(t)[:1])
	if len(f.Pods) != 1 || f.Pods[0].Events != nil || len(f.Pods[0].Output) > 0 {
		t.Errorf("%+v", f.Pods)
	}
}

func TestLinesAreValidAndShort(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          nil,
		"a\r\n\nb":                  {"a", "", "b"},
		"\xff\n":                    {"?"},
		strings.Repeat("x", 401):    {strings.Repeat("x", 400) + " ..."},
		strings.Repeat("x", 400):    {strings.Repeat("x", 400)},
		strings.Repeat("€", 200):    {strings.Repeat("€", 133) + " ..."},
		strings.Repeat("\xff", 500): {"?"},
	} {
		got := SplitLines(text)
		if !slices.Equal(got, want) || !utf8.ValidString(strings.Join(got, "")) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestPlacesThatAnswersName(t *testing.T) {
	cfg := &config.Loaded{}
	cfg.RootDirectory = "/root"
	if got := PlacesOf(cfg); got.Config != "" || got.Preload != "" || got.Applied != "/root/applied" {
		t.Errorf("%+v", got)
	}
	cfg.Files, cfg.PreloadDirectories = []string{"/etc/a.yaml", "/etc/config.d/b.yaml"}, []string{"/images", "/more"}
	if got := PlacesOf(cfg); got.Config != "/etc/config.d/b.yaml" || got.Preload != "/images" {
		t.Errorf("%+v", got)
	}
}

func TestIDsOfContainers(t *testing.T) {
	for id, want := range map[string]string{"containerd://abc": "abc", "": "", "abc": ""} {
		if got := BareContainerID(id); got != want {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestDocumentsOfRefusedInputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	testfiles.Write(t, file, "kind: Pod\nmetadata: {name: web}\nspec: wrong\n---\nkind: Deployment\nmetadata: {name: api, namespace: prod}\n")
	got := NamesInRefused([]model.Input{
		{Input: file, State: model.InputRefused},
		{Input: file, State: model.InputAccepted},
		{Input: "/does/not/exist.yaml", State: model.InputRefused},
		{Input: "https://example.com/pods", State: model.InputRefused, Mistaken: []model.Mistaken{{ObjectID: manifests.ObjectID{Kind: "Job", Namespace: "n", Name: "job"}, Where: "https://example.com/pods:3"}}},
	})
	var names []string
	for _, o := range got {
		names = append(names, o.Kind+" "+o.Namespace+"/"+o.Name+" at "+strings.TrimPrefix(o.Where, file))
	}
	if want := []string{"Deployment prod/api at :5", "Job n/job at https://example.com/pods:3", "Pod default/web at :1"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
