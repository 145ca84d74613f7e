package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/daemontest"
	"monopod/internal/podtable"
	"monopod/internal/program"
	"monopod/node"
	"monopod/runner/runtimetest"
)

// edition is the manifest of web with another image each.
func edition(tag string) string {
	return strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "app:1", "app:"+tag, 1)
}

// runsImage waits until web runs an image and nothing of its revision is open.
func (d *testDaemon) runsImage(tag string) {
	d.t.Helper()
	d.eventually("app:"+tag+" runs", func() error {
		var p corev1.Pod
		if r := d.cmd("get", "pod", "web", "-o", "json"); json.Unmarshal([]byte(r.stdout), &p) != nil {
			return errors.New(r.stderr)
		}
		if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].Image != "example.com/app:"+tag || !podtable.IsReady(&p) {
			return errors.New(podtable.PodStatus(&p))
		}
		return nil
	})
}

func TestAPodIsTakenBackUntilItsManifestChanges(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", edition("1"))
	d.start()
	d.runsImage("1")
	if r := d.cmd("rollback", "pod", "web"); r.code != program.ExitError || !strings.Contains(r.stderr, "no revision before 1 has been Ready") {
		t.Errorf("nothing to go back to: code %d: %s", r.code, r.stderr)
	}
	d.put("web.yaml", edition("2"))
	d.runsImage("2")
	d.eventually("revision 2 is Ready", func() error {
		if r := d.cmd("history", "pod", "web"); !strings.Contains(d.steady(r.stdout), "2  Ready  AGE  $DIR/manifests/web.yaml:1  active") {
			return errors.New(d.steady(r.stdout))
		}
		return nil
	})
	if r := d.cmd("diff", "pod", "web"); r.code != program.ExitOK || r.stdout != "" || r.stderr != "no differences between revision 2 and revision 2\n" {
		t.Errorf("diff: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := d.cmd("rollback", "pod", "web"); r.code != program.ExitOK || r.stdout != "pod default/web runs revision 1 instead of 2 until its manifest changes\n" {
		t.Fatalf("code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	d.runsImage("1")
	d.isBack()
	for _, reason := range []string{"RevisionAccepted", "RevisionReady", "RolledBack"} {
		d.shows(reason, "events")
	}
	r := d.cmd("diff", "pod", "web")
	if r.code != program.ExitError || !strings.Contains(r.stdout, "--- default/web revision 1 (active)\n+++ default/web revision 2\n") ||
		!strings.Contains(r.stdout, "\n-    image: example.com/app:1\n+    image: example.com/app:2\n") {
		t.Errorf("diff: code %d:\n%s%s", r.code, r.stdout, r.stderr)
	}
	d.end()
	d.start()
	d.runsImage("1")
	d.isBack()
	if r := d.cmd("rollback", "pod", "web", "--to", "2"); r.code != program.ExitOK || r.stdout != "pod default/web runs revision 2; that is what is written\n" {
		t.Fatalf("forward: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	d.runsImage("2")
	if r := d.cmd("rollback", "pod", "web"); r.code != program.ExitOK {
		t.Fatalf("back again: %s", r.stderr)
	}
	d.runsImage("1")
	d.put("web.yaml", edition("3"))
	d.runsImage("3")
	if p := d.pod("web"); p.Annotations[node.AnnotationRollback] != "" || p.Annotations[node.AnnotationRevision] != "3" {
		t.Errorf("after an edit: %v", p.Annotations)
	}
}

// isBack checks that each command shows the rollback.
func (d *testDaemon) isBack() {
	d.t.Helper()
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
		{"what is written", []string{"history", "pod", "web"}},
		{`"active": 1`, []string{"history", "pod", "web", "-o", "json"}},
	} {
		d.shows(c.want, c.args...)
	}
}

func TestRevisionsThatAreNotKeptAreNamed(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", edition("1"))
	d.start()
	d.runsImage("1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"history", "pod", "other"}, "no revisions of pod default/other are kept"},
		{[]string{"rollback", "pod", "other"}, "no revisions of pod default/other are kept"},
		{[]string{"rollback", "pod", "web", "--to", "7"}, "revision 7 is not kept; kept are 1"},
		{[]string{"rollback", "pod", "web", "--to", "0"}, "--to is the number of a revision"},
		{[]string{"diff", "pod", "web", "--from", "7"}, "revision 7 of pod default/web is not kept"},
		{[]string{"history", "pod", "web", "-o", "wide"}, "unknown output format"},
	} {
		if r := d.cmd(c.args...); r.code == program.ExitOK || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: code %d: %s, want %q", c.args, r.code, r.stderr, c.want)
		}
	}
}

func TestRevisionsHoldNoContentOfSecrets(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", strings.Replace(edition("1"), "image:", "envFrom: [{secretRef: {name: s}}], image:", 1)+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {TOKEN: hunter2-hunter2}\n")
	d.start()
	d.runsImage("1")
	d.end()
	found := 0
	err := filepath.WalkDir(d.path("root", "revisions"), func(path string, e os.DirEntry, err error) error {
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
