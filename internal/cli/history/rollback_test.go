package history

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/node"
)

func TestAPodIsTakenBackUntilItsManifestChanges(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Edition("1"))
	d.Start()
	d.RunsImage("1")
	if r := d.Cmd("rollback", "pod", "web"); r.Code != program.ExitError || !strings.Contains(r.Stderr, "no revision before 1 was Ready") {
		t.Errorf("nothing to go back to: code %d: %s", r.Code, r.Stderr)
	}
	d.Put("web.yaml", clitest.Edition("2"))
	d.RunsImage("2")
	d.Eventually("revision 2 is Ready", func() error {
		if r := d.Cmd("history", "pod", "web"); !strings.Contains(d.Steady(r.Stdout), "2  Ready  AGE  $DIR/manifests/web.yaml:1  active") {
			return errors.New(d.Steady(r.Stdout))
		}
		return nil
	})
	if r := d.Cmd("diff", "pod", "web"); r.Code != program.ExitOK || r.Stdout != "" || r.Stderr != "no differences between revision 2 and revision 2\n" {
		t.Errorf("diff: code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := d.Cmd("rollback", "pod", "web"); r.Code != program.ExitOK || r.Stdout != "pod default/web runs revision 1 instead of 2 until its manifest changes\n" {
		t.Fatalf("code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	d.RunsImage("1")
	isBack(d)
	for _, reason := range []string{"RevisionAccepted", "RevisionReady", "RolledBack"} {
		d.Shows(reason, "events")
	}
	r := d.Cmd("diff", "pod", "web")
	if r.Code != program.ExitError || !strings.Contains(r.Stdout, "--- default/web revision 1 (active)\n+++ default/web revision 2\n") ||
		!strings.Contains(r.Stdout, "\n-    image: example.com/app:1\n+    image: example.com/app:2\n") {
		t.Errorf("diff: code %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	d.End()
	d.Start()
	d.RunsImage("1")
	isBack(d)
	if r := d.Cmd("rollback", "pod", "web", "--to", "2"); r.Code != program.ExitOK || r.Stdout != "pod default/web runs revision 2; this is the current manifest\n" {
		t.Fatalf("forward: code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	d.RunsImage("2")
	if r := d.Cmd("rollback", "pod", "web"); r.Code != program.ExitOK {
		t.Fatalf("back again: %s", r.Stderr)
	}
	d.RunsImage("1")
	d.Put("web.yaml", clitest.Edition("3"))
	d.RunsImage("3")
	if p := d.Pod("web"); p.Annotations[node.AnnotationRollback] != "" || p.Annotations[node.AnnotationRevision] != "3" {
		t.Errorf("after an edit: %v", p.Annotations)
	}
}

// isBack checks that each command shows the rollback.
func isBack(d *clitest.Daemon) {
	d.T.Helper()
	const text = "revision 1 runs instead of 2 until the manifest changes: by hand"
	for _, c := range []struct {
		want string
		args []string
	}{
		{"Running,RolledBack", []string{"get", "pods"}},
		{"1 (rolled back)", []string{"get", "pods", "-o", "wide"}},
		{text, []string{"get", "pods", "-o", "wide"}},
		{`"monopod.dev/rollback": "` + text, []string{"get", "pod", "web", "-o", "json"}},
		{"Rollback:          " + text, []string{"describe", "pod", "web"}},
		{"\n" + text, []string{"history", "pod", "web"}},
		{text, []string{"why", "web"}},
		{"current manifest", []string{"history", "pod", "web"}},
		{`"active": 1`, []string{"history", "pod", "web", "-o", "json"}},
	} {
		d.Shows(c.want, c.args...)
	}
}

func TestRevisionsThatAreNotKeptAreNamed(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Edition("1"))
	d.Start()
	d.RunsImage("1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"history", "pod", "other"}, "no revisions of pod default/other are kept"},
		{[]string{"rollback", "pod", "other"}, "no revisions of pod default/other are kept"},
		{[]string{"rollback", "pod", "web", "--to", "7"}, "revision 7 is not kept; kept revisions: 1"},
		{[]string{"rollback", "pod", "web", "--to", "0"}, "--to is the number of a revision"},
		{[]string{"diff", "pod", "web", "--from", "7"}, "revision 7 of pod default/web is not kept"},
		{[]string{"history", "pod", "web", "-o", "wide"}, "unknown output format"},
	} {
		if r := d.Cmd(c.args...); r.Code == program.ExitOK || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%v: code %d: %s, want %q", c.args, r.Code, r.Stderr, c.want)
		}
	}
}

func TestRevisionsHoldNoContentOfSecrets(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", strings.Replace(clitest.Edition("1"), "image:", "envFrom: [{secretRef: {name: s}}], image:", 1)+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {TOKEN: hunter2-hunter2}\n")
	d.Start()
	d.RunsImage("1")
	d.End()
	found := 0
	err := filepath.WalkDir(d.Path("root", "revisions"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		found++
		if strings.Contains(string(b), "hunter2") || strings.Contains(string(b), "aHVudGVy") || !strings.Contains(string(b), "secretRef") {
			t.Errorf("%s: %s", path, b)
		}
		return err
	})
	if err != nil || found != 1 {
		t.Errorf("%d files: %v", found, err)
	}
}
