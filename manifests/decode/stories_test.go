package decode

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/manifests/policy"
)

// TestStories runs testdata/stories/*.txtar: the comment describes the case, each file is an input of its own, and "verdict" lists what
// runs, what is noted and what is refused. -update rewrites the verdicts.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "stories", "*.txtar"))
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			at := -1
			for i, f := range a.Files {
				if f.Name == "verdict" {
					at = i
					continue
				}
				got.WriteString(storyVerdict(f.Name, f.Data))
			}
			if at < 0 {
				t.Fatal("the story has no verdict")
			}
			if testfiles.Update() {
				a.Files[at].Data = []byte(got.String())
				if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := string(a.Files[at].Data); got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
		})
	}
}

// storyVerdict describes the result of decoding an input.
func storyVerdict(name string, data []byte) string {
	c, err := Parts(name, data, Options{Source: "file"})
	var lines []string
	for _, e := range manifests.Errors(err) {
		lines = append(lines, "refused "+e.Error())
	}
	if err != nil && len(lines) == 0 {
		lines = append(lines, errors.Join(err).Error())
	}
	if c == nil {
		c = &manifests.Content{}
	}
	for _, p := range c.Pods {
		line := "Pod " + p.Key().String()
		for i := range p.Object.Spec.Volumes {
			line += " volume=" + p.Object.Spec.Volumes[i].Name
		}
		for container := range manifests.AllContainers(&p.Object.Spec) {
			for _, m := range container.VolumeMounts {
				line += " mount=" + container.Name + ":" + m.Name
			}
		}
		lines = append(lines, line)
	}
	for _, o := range append(c.Objects, c.Workloads...) {
		lines = append(lines, o.String())
	}
	for _, r := range c.Remarks() {
		lines = append(lines, "remark "+r)
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestHooksOfHelmRunWhereThatIsConfigured(t *testing.T) {
	a, err := txtar.ParseFile(filepath.Join("testdata", "stories", "helm-hooks.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := All("chart.yaml", a.Files[0].Data, Options{Policy: policy.Policy{HelmHooks: true}})
	if err != nil || len(c.Pods) != 2 || len(c.Workloads) != 1 || len(c.Remarks()) > 0 {
		t.Errorf("%v, %+v", err, c)
	}
	c, err = All("chart.yaml", a.Files[0].Data, Options{})
	if err != nil || len(c.LeftOut) != 2 || c.LeftOut[1].String() != "Job default/migrate" {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestAKeyCountsBeforeWhatItsMappingMerges, wherever it stands.
func TestAKeyCountsBeforeWhatItsMappingMerges(t *testing.T) {
	a, err := txtar.ParseFile(filepath.Join("testdata", "stories", "yaml-words.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]map[string]string{0: {"a": "1", "b": "3"}, 5: {"a": "1", "name": "3"}} {
		pods, err := Pods(a.Files[i].Name, a.Files[i].Data, Options{})
		if err != nil || !maps.Equal(pods[0].Object.Annotations, want) {
			t.Errorf("%s: %v, %+v, want %v", a.Files[i].Name, err, pods, want)
		}
	}
}
