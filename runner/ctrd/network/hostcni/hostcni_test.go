package hostcni

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyANamedDirectoryIsSearched(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"", filepath.Join(dir, "missing"), dir} {
		if found, err := Exists(d); found || err != nil {
			t.Errorf("%q: %v, %v", d, found, err)
		}
	}
	t.Chdir(dir)
	if err := os.WriteFile("10-x.conflist", []byte(`{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := Find("", nil); list != nil || err != nil {
		t.Errorf("no directory is named: %v, %v", list, err)
	}
	if list, err := Find(dir, nil); err != nil || list.Name != "x" {
		t.Errorf("%v, %v", list, err)
	}
}

func TestAttachedCountsPodsOfOtherNetworks(t *testing.T) {
	dir := t.TempDir()
	if n, err := Attached(dir, "own"); n != 0 || err != nil {
		t.Errorf("without records: %d, %v", n, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, a := range [][2]string{{"podman", "a"}, {"second", "a"}, {"podman", "b"}, {"own", "c"}} {
		text := fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": %q, "ifName": "eth0", "networkName": %q}`, a[1], a[0])
		if err := os.WriteFile(filepath.Join(dir, "results", a[0]+"-"+a[1]+"-eth0"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "results", "podman-d-eth0"), []byte("{"), 0o600); err != nil { // cut short by a power failure
		t.Fatal(err)
	}
	if n, err := Attached(dir, "own"); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
