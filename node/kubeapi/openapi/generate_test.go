package openapi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod/internal/testfiles"
	"monopod/node/kubeapi/openapi"
	"monopod/node/kubeapi/openapi/generate"
)

const modfile = "../../../.ci/modules/kubernetes.mod"

// TestTheFilesAreThoseOfTheKinds compares what the files depend on, because the module of Kubernetes is not there in most tests. With -update
// it makes the files.
func TestTheFilesAreThoseOfTheKinds(t *testing.T) {
	mod, err := os.ReadFile(modfile)
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)$`).FindSubmatch(mod)
	if version == nil {
		t.Fatal("no version of k8s.io/kubernetes")
	}
	s := generate.Sources{Module: "..", Version: string(version[1])}
	if testfiles.Update() {
		update(t, s)
		return // the new files are compiled in next time
	}
	sum, err := s.Checksum()
	if err != nil {
		t.Fatal(err)
	}
	if sum != openapi.Checksum {
		t.Errorf("the kinds, their types or the version of Kubernetes have changed: run make generate")
	}
}

func update(t *testing.T, s generate.Sources) {
	t.Helper()
	if out, err := exec.Command("go", "mod", "download", "-modfile="+modfile, "k8s.io/kubernetes").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir, err := exec.Command("go", "list", "-m", "-modfile="+modfile, "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.Kubernetes = strings.TrimSpace(string(dir))
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll("data"); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		testfiles.Write(t, filepath.FromSlash(name), string(content))
	}
}
