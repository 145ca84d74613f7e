package decode

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"monopod/manifests"
)

// joined is the content of several inputs, as if they were one.
func joined(t *testing.T, docs []Document) *manifests.Content {
	t.Helper()
	all := &manifests.Content{}
	for _, d := range docs {
		c, err := All("canonical", d.Canonical, Options{})
		if err != nil {
			t.Fatalf("%s, as it is stored, is refused: %v\n%s", d.ID, err, d.Canonical)
		}
		if n := len(c.Pods) + len(c.Objects) + len(c.Workloads); n != 1 {
			t.Fatalf("%s became %d objects", d.ID, n)
		}
		all.Pods = append(all.Pods, c.Pods...)
		all.Objects = append(all.Objects, c.Objects...)
		all.Workloads = append(all.Workloads, c.Workloads...)
	}
	return all
}

// valid are all manifests that the tests know to be valid.
func validFiles(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, pattern := range []string{"testdata/valid/*", "../../examples/*/*.yaml", "../../examples/*.yaml", "../../testdata/corpus/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := All(path, data, Options{Source: "file"}); err == nil {
				all[path] = data
			}
		}
	}
	if len(all) < 15 {
		t.Fatalf("only %d valid manifests found", len(all))
	}
	return all
}

func TestSplitKeepsWhatADocumentSays(t *testing.T) {
	for path, data := range validFiles(t) {
		want, _ := All(path, data, Options{})
		docs, err := Split(path, data)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		origins := cmpopts.IgnoreTypes(manifests.Origin{})
		if diff := cmp.Diff(&manifests.Content{Pods: want.Pods, Objects: want.Objects, Workloads: want.Workloads}, joined(t, docs), origins, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		for _, d := range docs {
			again, err := Split("again", d.Canonical)
			if err != nil || len(again) != 1 || again[0].ID != d.ID || !bytes.Equal(again[0].Canonical, d.Canonical) {
				t.Errorf("%s: %s is not canonical: %v", path, d.ID, err)
			}
		}
	}
}

func TestSplitTellsObjectsApart(t *testing.T) {
	const pod = "kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n"
	tests := []struct {
		name, data, want string
	}{
		{"a pod without a namespace is in default", pod, "Pod default/web:1"},
		{"documents have their lines", "# hello\n" + pod + "---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: app, namespace: x}\n", "Pod default/web:2 ConfigMap x/app:7"},
		{"cluster-wide kinds have no namespace", "kind: StorageClass\napiVersion: storage.k8s.io/v1\nmetadata: {name: fast, namespace: x}\nprovisioner: p\n", "StorageClass fast:1"},
		{"elements of a list count one by one", "apiVersion: v1\nkind: List\nitems:\n- {kind: Secret, apiVersion: v1, metadata: {name: a}}\n- {kind: Pod, apiVersion: v1, metadata: {name: b}}\n", "Secret default/a:4 Pod default/b:5"},
		{"elements of a PodList need not say what they are", "apiVersion: v1\nkind: PodList\nitems:\n- {metadata: {name: b}}\n", "Pod default/b:4"},
		{"an empty list holds nothing", "apiVersion: v1\nkind: List\nitems: []\n", ""},
		{"what means nothing here is left out", "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", ""},
		{"comments hold nothing", "# nothing\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Split("f.yaml", []byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range docs {
				got = append(got, d.ID.String()+":"+string(rune('0'+d.Line)))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %q, want %q", s, tt.want)
			}
		})
	}
}

func TestSplitSaysWhatCannotBeToldApart(t *testing.T) {
	for data, want := range map[string]string{
		"":                             "f.yaml: it is empty",
		"kind: Pod\napiVersion: v1\n":  "f.yaml:1:1: pod: metadata.name: the name is missing",
		"- a\n":                        "f.yaml:1:1: expected an object like a Pod, found a list",
		"kind: Pods\napiVersion: v1\n": `f.yaml:1:7: there is no kind Pods in apiVersion v1; did you mean "Pod"?`,
		"a: [\n":                       "f.yaml:",
	} {
		docs, err := Split("f.yaml", []byte(data))
		if err == nil || len(docs) > 0 || !strings.HasPrefix(err.Error(), strings.Replace(want, "pod: ", "", 1)) {
			t.Errorf("%q: %v, %v; want %q", data, docs, err, want)
		}
	}
}

func TestCanonicalDocumentsDoNotDependOnStyle(t *testing.T) {
	a, err1 := Split("a", []byte("kind: Pod\napiVersion: v1\nmetadata: {name: web, labels: {b: \"1\", a: x}}\n"))
	b, err2 := Split("b", []byte(`# other words
{"apiVersion": "v1", "metadata": {"labels": {"a": "x", "b": "1"}, "name": "web"}, "kind": "Pod"}`))
	if err1 != nil || err2 != nil || !bytes.Equal(a[0].Canonical, b[0].Canonical) {
		t.Fatalf("%v %v\n%s\n%s", err1, err2, a[0].Canonical, b[0].Canonical)
	}
	c, _ := Split("c", []byte("kind: Pod\napiVersion: v1\nmetadata: {name: web, labels: {b: \"2\", a: x}}\n"))
	if bytes.Equal(a[0].Canonical, c[0].Canonical) {
		t.Error("another label is no difference")
	}
}

func TestSplitLeavesOutWhatAControllerOfTheInputMakes(t *testing.T) {
	a, err := txtar.ParseFile("testdata/stories/dump-of-all.txtar")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := Split("all.yaml", a.Files[0].Data)
	var got []string
	for _, d := range docs {
		got = append(got, d.ID.String())
	}
	if want := "Pod default/alone, Deployment default/web, CronJob default/tick"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%v, %v\nwant %s", got, err, want)
	}
}
