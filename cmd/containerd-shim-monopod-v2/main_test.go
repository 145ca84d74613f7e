package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod/runner/ctrd/shim/early/deleted"
)

// TestMain runs the program instead of the tests where these ask for it.
func TestMain(m *testing.M) {
	if os.Getenv("SHIM_IS_PROGRAM") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ask runs the program as containerd does when it has lost its connection to a shim.
func ask(t *testing.T, cwd, id string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-namespace", "monopod", "-address", "/none", "-publish-binary", "/none", "-id", id, "-bundle", cwd, "delete")
	cmd.Dir, cmd.Env = cwd, append(os.Environ(), "SHIM_IS_PROGRAM=1", "GODEBUG=inittrace=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// TestWhatBecameOfADeletedContainerIsAnsweredFirst: containerd asks after each deletion, and a shim's program takes three
// times as long to get ready as to give the answer.
func TestWhatBecameOfADeletedContainerIsAnsweredFirst(t *testing.T) {
	top := t.TempDir()
	bundle, beside := filepath.Join(top, "c1"), filepath.Join(top, "c2")
	for _, dir := range []string{bundle, beside} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := deleted.Write(bundle, []byte("answer")); err != nil {
		t.Fatal(err)
	}
	for _, cwd := range []string{bundle, beside} {
		out, trace, err := ask(t, cwd, "c1")
		if err != nil || out != "answer" {
			t.Errorf("%q, %v", out, err)
		}
		if !strings.Contains(trace, "init syscall ") || strings.Contains(trace, "init os ") || strings.Contains(trace, "protobuf") {
			t.Errorf("not before the program is ready:\n%s", trace)
		}
	}
}

// TestAContainerThatWasNotDeletedIsCleanedUp: that way is the other tests', but it must be taken.
func TestAContainerThatWasNotDeletedIsCleanedUp(t *testing.T) {
	bundle := t.TempDir()
	if out, trace, _ := ask(t, bundle, filepath.Base(bundle)); !strings.Contains(trace, "init monopod/runner/ctrd/shim ") && !strings.Contains(trace, "init google.golang.org/protobuf") {
		t.Errorf("%q\n%s", out, trace)
	}
}
