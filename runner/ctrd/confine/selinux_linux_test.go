package confine

import (
	"os"
	"path/filepath"
	"testing"

	"monopod/runner/spec/selinux"
)

func TestTheSELinuxPolicyOfAMachineIsFound(t *testing.T) {
	dir := t.TempDir()
	if p, err := readSELinuxPolicy(dir); err == nil {
		t.Errorf("without a configuration: %+v", p)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config", "SELINUX=enforcing\n")
	if p, err := readSELinuxPolicy(dir); err == nil {
		t.Errorf("without a type: %+v", p)
	}
	write("config", "SELINUX=enforcing\nSELINUXTYPE=targeted\n")
	if p, err := readSELinuxPolicy(dir); err == nil {
		t.Errorf("without contexts: %+v", p)
	}
	write("targeted/contexts/lxc_contexts", "process = \"u:r:p:s0\"\nfile = \"u:r:f:s0\"\n")
	if p, err := readSELinuxPolicy(dir); p != (selinux.Policy{Process: "u:r:p:s0", File: "u:r:f:s0"}) || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
}
