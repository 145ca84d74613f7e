package shim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
)

func TestTheCompleteConfigIsNeverInTheBundle(t *testing.T) {
	bundle, secret := t.TempDir(), t.TempDir()
	config, hidden := filepath.Join(bundle, "config.json"), filepath.Join(secret, "c1")
	const plain = `{"ociVersion":"1.0.2","process":{"args":["/later"],"cwd":"/","user":{"uid":7}},"mounts":[]}`
	for _, err := range []error{
		os.WriteFile(config, []byte(plain), 0o600),
		WriteHiddenProcess(hidden, HiddenProcess{Env: []string{"PASSWORD=x"}, Args: []string{"app", "x"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	conceal, err := reveal(bundle, hidden)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		OCIVersion string `json:"ociVersion"`
		Process    struct {
			Env, Args []string
			Cwd       string
			User      struct{ UID int }
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Process
	if strings.Join(p.Env, " ") != "PASSWORD=x" || strings.Join(p.Args, " ") != "app x" || p.Cwd != "/" || p.User.UID != 7 || got.OCIVersion != "1.0.2" {
		t.Errorf("the runtime reads %s", data)
	}
	if target, err := os.Readlink(config); err != nil || filepath.Dir(target) != secret {
		t.Errorf("config.json is %q (%v), not a link out of the bundle", target, err)
	}
	if err := conceal(); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(config); err != nil || string(data) != plain {
		t.Errorf("after it: %s %v", data, err)
	}
	for _, dir := range []string{bundle, secret} {
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s holds %v", dir, entries)
		}
	}
}

func TestExecSeesTheHiddenEnvironment(t *testing.T) {
	hidden := filepath.Join(t.TempDir(), "c1")
	if err := WriteHiddenProcess(hidden, HiddenProcess{Env: []string{"A=1", "B=2"}, Args: []string{"app"}}); err != nil {
		t.Fatal(err)
	}
	got, err := revealExec(&anypb.Any{TypeUrl: "t", Value: []byte(`{"args":["sh"],"env":["B=own"]}`)}, hidden)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"args":["sh"],"env":["A=1","B=own"]}`; string(got.Value) != want || got.TypeUrl != "t" {
		t.Errorf("got %s, want %s", got.Value, want)
	}
	if _, err := revealExec(&anypb.Any{Value: []byte(`{}`)}, hidden+"-gone"); err == nil {
		t.Error("a file that is gone goes unnoticed")
	}
}
