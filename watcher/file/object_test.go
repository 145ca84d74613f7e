package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %NAME}\nimmutable: true\ndata: {k: \"%VALUE\"}\n"

func configMapFile(name, value string) string {
	return strings.NewReplacer("%NAME", name, "%VALUE", value).Replace(configMap)
}

// value is what the ConfigMap of this name holds under k.
func value(objects []*manifests.Object, name string) string {
	m := manifests.NewObjects(objects).ConfigMap("default", name)
	if m == nil {
		return ""
	}
	return m.Data["k"]
}

func TestObjectsAreKeptAndReportedLikePods(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		watchertest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a.yaml", configMapFile("one", "1"))
	write("b.yaml", configMapFile("one", "other")+"---\n"+configMapFile("two", "2"))
	write("c.yaml", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n")
	s := standWith(t, Config{Path: dir, Load: realLoad}, unhurried())
	set := s.Until("both objects", func(set watcher.Set) bool { return len(set.Objects) == 2 })
	if value(set.Objects, "one") != "1" || value(set.Objects, "two") != "2" {
		t.Errorf("objects: %v", set.Objects)
	}
	for name, want := range map[string]model.InputState{"a.yaml": model.InputAccepted, "b.yaml": model.InputConflict, "c.yaml": model.InputIgnored} {
		s.State(filepath.Join(dir, name), want)
	}

	write("a.yaml", configMapFile("one", "edited"))
	set = s.State(filepath.Join(dir, "a.yaml"), model.InputRefused)
	if value(set.Objects, "one") != "1" {
		t.Error("an immutable object was changed")
	}
	write("a.yaml", "kind: ConfgMap\n")
	s.Until("another reason", func(set watcher.Set) bool {
		for _, r := range set.Inputs {
			if strings.HasSuffix(r.Input, "a.yaml") && strings.Contains(strings.Join(r.Errors, " "), "ConfgMap") {
				return value(set.Objects, "one") == "1"
			}
		}
		return false
	})
	watchertest.Must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	s.Until("the next definition", func(set watcher.Set) bool { return value(set.Objects, "one") == "other" })
}
