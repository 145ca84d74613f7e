//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node"
	"monopod/node/localapi"
)

// edition is a pod that writes its edition to the diary. Its readiness probe checks for the file ready-EDITION.
func (d *diary) edition(name, edition, notes, script string, more ...string) string {
	text := d.pod(name, "", d.writer("c", script, append([]string{
		fmt.Sprintf("    readinessProbe: {exec: {command: [test, -e, /diary/ready-%s]}, periodSeconds: 1}", edition),
	}, more...)...), "  terminationGracePeriodSeconds: 3")
	text = strings.Replace(text, "  terminationGracePeriodSeconds: 10\n", "", 1)
	return strings.Replace(text, "metadata: {name: "+name+"}", fmt.Sprintf("metadata: {name: %s, labels: {edition: %q}, annotations: {%s}}", name, edition, notes), 1)
}

const (
	// quickTrial is for revisions that never become Ready, slowTrial for those that do, however slow the machine is.
	quickTrial = `monopod.dev/auto-rollback: "true", monopod.dev/ready-deadline: 4s, monopod.dev/soak: 1s`
	slowTrial  = `monopod.dev/auto-rollback: "true", monopod.dev/ready-deadline: 1h, monopod.dev/soak: 1s`
)

func (in *instance) history(name string) *localapi.History {
	in.t.Helper()
	out, err := in.run("history", "pod", name, "-o", "json")
	h := &localapi.History{}
	if err == nil {
		err = json.Unmarshal([]byte(out), h)
	}
	if err != nil {
		in.t.Fatal(err)
	}
	return h
}

// outcome waits until a revision has a result, and returns it.
func (in *instance) outcome(name string, number int, want string) *localapi.Revision {
	in.t.Helper()
	var found *localapi.Revision
	in.eventually(fmt.Sprintf("revision %d of %s is %s", number, name, want), func() error {
		h := in.history(name)
		if found = h.Revision(number); found == nil || found.Outcome != want {
			return fmt.Errorf("it is %+v", found)
		}
		return nil
	})
	return found
}

func edition(p corev1.Pod) string { return p.Labels["edition"] }

// back waits until an edition is Ready again, shown as rolled back.
func (in *instance) back(name, want string) corev1.Pod {
	in.t.Helper()
	return in.pod(name, "is back at edition "+want, func(p corev1.Pod) bool {
		return edition(p) == want && isReady(p) && p.Annotations[node.AnnotationRollback] != "" && p.Annotations[node.AnnotationManifest] != ""
	})
}

// TestABadRevisionIsTakenBack has revisions that crash, are never Ready, cannot be pulled, or are not valid manifests.
func TestABadRevisionIsTakenBack(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("bad")
	in.start()
	goodText := d.edition("bad", "one", slowTrial, server("one"))
	d.open("ready-one")
	in.put("bad", goodText)
	in.ready("bad")
	first := in.outcome("bad", 1, "Ready")
	if first.Source != filepath.Join(in.manifests, "bad.yaml")+":1" {
		t.Errorf("the source is %s", first.Source)
	}
	for n, c := range []struct{ edition, notes, script, reason, diary string }{
		{"crashes", strings.Replace(slowTrial, "soak: 1s", "soak: 1h", 1), "say crashes; touch /diary/ready-crashes; gate crash; exit 3", "it did not stay Ready for 1h", "one-ends crashes "},
		{"never", quickTrial, server("never"), "it was not Ready within 4s", "one-ends "}, // on a busy machine, before its container starts
	} {
		d.clear()
		in.put("bad", d.edition("bad", c.edition, c.notes, c.script))
		if c.edition == "crashes" {
			in.pod("bad", "was seen Ready before it crashes", func(p corev1.Pod) bool {
				return edition(p) == "crashes" && strings.Contains(p.Annotations[node.AnnotationUpdate], "it must stay Ready")
			})
			d.open("crash")
		}
		if r := in.outcome("bad", n+2, "Failed"); !strings.HasPrefix(r.Reason, c.reason) {
			t.Errorf("%s: %s", c.edition, r.Reason)
		}
		p := in.back("bad", "one")
		if got := strings.Join(d.words(), " "); !strings.HasPrefix(got, c.diary) || !strings.HasSuffix(got, " one") {
			t.Errorf("%s: the diary says %s", c.edition, got)
		}
		if p.Annotations[node.AnnotationRevision] != "1" {
			t.Errorf("%s: revision %s", c.edition, p.Annotations[node.AnnotationRevision])
		}
	}
	// A revision that never stopped is not started again.
	before := in.ready("bad")
	d.clear()
	in.put("bad", strings.Replace(d.edition("bad", "unpullable", quickTrial, server("unpullable")), image, "monopod.test/no-such:1", 1))
	if r := in.outcome("bad", 4, "Failed"); !strings.Contains(r.Reason, "it was not Ready within 4s: ") || !strings.Contains(r.Reason, "no-such") {
		t.Errorf("unpullable: %s", r.Reason)
	}
	in.put("bad", "this: is\nno: manifest\n")
	in.eventually("the file is refused", func() error {
		out, err := in.run("get", "sources")
		if err == nil && !strings.Contains(out, "Refused") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	after := in.back("bad", "one")
	if containerID(after, "c") != containerID(before, "c") || len(d.words()) != 0 || len(in.history("bad").Revisions) != 4 {
		t.Errorf("what never stopped was started again: %s, %v", brief(after), d.words())
	}
	for _, args := range [][]string{{"get", "pods"}, {"describe", "pod", "bad"}, {"history", "pod", "bad"}} {
		if out, err := in.run(args...); err != nil || !strings.Contains(out, "RolledBack") && !strings.Contains(out, "revision 1 runs instead of 4 until the manifest changes: revision 4 has failed: ") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// TestAFailedRevisionIsNotTriedAgainAfterRestartsAndReboots kills the agent during a trial and after it.
func TestAFailedRevisionIsNotTriedAgainAfterRestartsAndReboots(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("again")
	in.start()
	d.open("ready-one")
	in.put("again", d.edition("again", "one", slowTrial, server("one")))
	in.ready("again")
	in.outcome("again", 1, "Ready")
	in.put("again", d.edition("again", "two", strings.Replace(slowTrial, "1h", "20s", 1), server("two")))
	in.pod("again", "is at edition two", func(p corev1.Pod) bool { return edition(p) == "two" && len(d.words()) == 3 })
	in.kill9() // its trial goes on
	in.start()
	in.outcome("again", 2, "Failed")
	in.back("again", "one")
	for _, fault := range []func(){func() {}, in.powerCut} {
		in.kill9()
		fault()
		d.clear()
		in.start()
		in.back("again", "one")
		if got := strings.Join(d.words(), " "); strings.Contains(got, "two") {
			t.Errorf("it was tried again: %s", got)
		}
		d.note("over")
	}
	d.open("ready-three")
	in.put("again", d.edition("again", "three", slowTrial, server("three")))
	in.outcome("again", 3, "Ready")
	if p := in.ready("again"); edition(p) != "three" || p.Annotations[node.AnnotationRollback] != "" {
		t.Errorf("after an edit: %s, %v", edition(p), p.Annotations)
	}
}

// note writes a word from the test itself, so that the diary is not empty.
func (d *diary) note(word string) {
	d.in.t.Helper()
	f, err := os.OpenFile(filepath.Join(d.path, "words"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err == nil {
		_, err = fmt.Fprintln(f, word)
		f.Close()
	}
	if err != nil {
		d.in.t.Fatal(err)
	}
}

// TestAnUpdateThatIsKilledAtAnyMomentEndsInOneRevision kills the agent repeatedly while it updates.
func TestAnUpdateThatIsKilledAtAnyMomentEndsInOneRevision(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("killed")
	in.start()
	d.open("ready-0")
	in.put("killed", d.edition("killed", "0", slowTrial, server("e0")))
	in.ready("killed")
	for i := 1; i <= 8; i++ {
		e := fmt.Sprint(i)
		d.open("ready-" + e)
		in.put("killed", d.edition("killed", e, slowTrial, server("e"+e)))
		time.Sleep(time.Duration(i*i*7) * time.Millisecond) // any moment
		in.kill9()
		in.start()
		p := in.pod("killed", "is at edition "+e, func(p corev1.Pod) bool {
			return edition(p) == e && isReady(p) && p.Annotations[node.AnnotationRollback] == ""
		})
		if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("edition %s: %s", e, brief(p))
		}
	}
	h := in.history("killed")
	if h.Active != h.Wanted || h.Rollback != "" {
		t.Errorf("at last: %+v", h)
	}
}

// group writes three pods of one update group, in reverse order of their names. names get an edition that must fail.
func (d *diary) group(in *instance, e string, names ...string) {
	for i, name := range []string{"c-first", "b-second", "a-third"} {
		notes := fmt.Sprintf(`monopod.dev/update-group: plane, monopod.dev/update-order: "%d", `, i)
		ed, trial := e, slowTrial
		if len(names) > i && names[i] != "" {
			ed, trial = names[i], quickTrial
		}
		in.put(name, d.edition(name, ed, notes+trial, server(name+"-"+ed)))
	}
}

func TestAGroupIsUpdatedInOrderAndRevertedAsAWhole(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("group")
	in.start()
	d.open("ready-one")
	d.group(in, "one")
	all := []string{"c-first", "b-second", "a-third"}
	for _, name := range all {
		in.ready(name)
		in.outcome(name, 1, "Ready")
	}
	d.clear()
	d.open("ready-two")
	d.group(in, "two")
	for _, name := range all {
		in.outcome(name, 2, "Ready")
	}
	d.wait("c-first-one-ends c-first-two b-second-one-ends b-second-two a-third-one-ends a-third-two")

	// The second one is never Ready: the third is not touched, the first is rolled back.
	before := in.ready("a-third")
	d.clear()
	d.open("ready-three")
	d.group(in, "three", "", "bad", "")
	in.eventually("the third waits", func() error {
		out, err := in.run("describe", "pod", "a-third")
		if err == nil && !strings.Contains(out, "revision 3 waits until pod default/") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	in.outcome("b-second", 3, "Failed")
	for _, name := range all {
		in.back(name, "two")
	}
	in.outcome("c-first", 3, "Reverted")
	in.outcome("a-third", 3, "Reverted")
	if after := in.ready("a-third"); containerID(after, "c") != containerID(before, "c") {
		t.Error("the third one was restarted")
	}
	words := strings.Join(d.words(), " ")
	if !strings.HasPrefix(words, "c-first-two-ends c-first-three b-second-two-ends b-second-bad ") || strings.Contains(words, "a-third") {
		t.Errorf("the diary says %s", words)
	}
	in.kill9()
	in.powerCut()
	in.start()
	for _, name := range all {
		in.back(name, "two")
	}

	// The bad edition is fixed: all are tried again, in order.
	d.clear()
	d.group(in, "three")
	for _, name := range all {
		in.pod(name, "is at edition three", func(p corev1.Pod) bool {
			return edition(p) == "three" && isReady(p) && p.Annotations[node.AnnotationRollback] == "" && p.Annotations[node.AnnotationUpdate] == ""
		})
	}
	d.wait("c-first-two-ends c-first-three b-second-two-ends b-second-three a-third-two-ends a-third-three")
}

func TestAPersonGoesBackAndForth(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("hand")
	in.start()
	for i, e := range []string{"one", "two"} {
		d.open("ready-" + e)
		in.put("hand", d.edition("hand", e, "", server(e)))
		in.pod("hand", "is at edition "+e, func(p corev1.Pod) bool { return edition(p) == e && isReady(p) })
		in.outcome("hand", i+1, "Ready")
	}
	if out, err := in.run("rollback", "pod", "hand"); err != nil || !strings.Contains(out, "runs revision 1 instead of 2 until its manifest changes") {
		t.Fatalf("%v: %s", err, out)
	}
	in.back("hand", "one")
	diff := exec.Command(filepath.Join(in.bin, "monopod-client"), "diff", "pod", "hand", "--socket", filepath.Join(in.state, "monopod.sock"))
	if out, _ := diff.Output(); diff.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "\n-    edition: one\n+    edition: two\n") {
		t.Errorf("diff: %d\n%s", diff.ProcessState.ExitCode(), out)
	}
	in.kill9()
	in.powerCut()
	in.start()
	in.back("hand", "one")
	if out, err := in.run("rollback", "pod", "hand", "--to", "2"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	in.pod("hand", "is at edition two again", func(p corev1.Pod) bool {
		return edition(p) == "two" && isReady(p) && p.Annotations[node.AnnotationRollback] == ""
	})
}

// TestADeploymentStopsAtAPodThatWasGoneBackWith has a template that never becomes Ready: only one pod tries it.
func TestADeploymentStopsAtAPodThatWasGoneBackWith(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("web")
	in.start()
	deployment := func(e, trial string) string {
		pod := d.edition("web", e, trial, server(e))
		_, spec, _ := strings.Cut(pod, "spec:\n")
		spec = "      " + strings.ReplaceAll(strings.TrimSuffix(spec, "\n"), "\n", "\n      ")
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n" +
			fmt.Sprintf("    metadata: {labels: {app: web, edition: %q}, annotations: {%s}}\n    spec:\n%s\n", e, trial, spec)
	}
	d.open("ready-one")
	in.put("web", deployment("one", slowTrial))
	for _, name := range []string{"web-0", "web-1"} {
		in.ready(name)
		in.outcome(name, 1, "Ready")
	}
	other := in.ready("web-1")
	in.put("web", deployment("two", quickTrial))
	in.outcome("web-0", 2, "Failed")
	in.back("web-0", "one")
	in.kill9()
	in.start()
	in.back("web-0", "one")
	if p := in.ready("web-1"); containerID(p, "c") != containerID(other, "c") || len(in.history("web-1").Revisions) != 1 {
		t.Errorf("the other pod was touched: %s", brief(p))
	}
	d.open("ready-three")
	in.put("web", deployment("three", slowTrial))
	for _, name := range []string{"web-0", "web-1"} {
		in.pod(name, "is at edition three", func(p corev1.Pod) bool { return edition(p) == "three" && isReady(p) })
	}
}

// TestRebootInTheMiddleOfUpdatesEndsInWholeRevisions starts updates of several pods, one after the other, and cuts the power at different
// points of them. One of them never becomes Ready: its deadline passes before or after the cut.
func TestRebootInTheMiddleOfUpdatesEndsInWholeRevisions(t *testing.T) {
	in, again := rebooting(t)
	d := in.newDiary("cut")
	const pods = 3
	name := func(i int) string { return fmt.Sprintf("cut-%d", i) }
	const notes = `monopod.dev/auto-rollback: "true", monopod.dev/ready-deadline: 60s, monopod.dev/soak: 1s`
	in.start()
	if !again {
		for _, gate := range []string{"ready-one", "ready-two"} {
			d.open(gate)
		}
		for i := range pods {
			in.put(name(i), d.edition(name(i), "one", notes, server("one")))
		}
		for i := range pods {
			in.ready(name(i))
			in.outcome(name(i), 1, "Ready")
		}
		syscall.Sync()
		in.put(name(0), d.edition(name(0), "bad", strings.Replace(notes, "60s", "5s", 1), server("bad")))
		for i := 1; i < pods; i++ {
			in.put(name(i), d.edition(name(i), "two", notes, server("two")))
			in.eventually("revision 2 is accepted", func() error {
				if in.history(name(i)).Revision(2) == nil {
					return errors.New("not yet")
				}
				return nil
			})
		}
		in.left = true // it works until the power is cut, which is now
		return
	}
	for i := range pods {
		written := in.read(filepath.Join("manifests", name(i)+".yaml")) // the power cut may have taken the edit back
		want := map[bool]string{true: "one", false: "two"}[strings.Contains(written, `edition: "one"`) || i == 0]
		p := in.pod(name(i), "is at edition "+want, func(p corev1.Pod) bool {
			return edition(p) == want && isReady(p) && p.Annotations[node.AnnotationUpdate] == ""
		})
		h := in.history(name(i))
		active := h.Revision(h.Active)
		if active == nil || active.Outcome != "Ready" || !strings.Contains(string(active.Manifest), `"edition": "`+want+`"`) || len(h.Revisions) > 2 {
			t.Errorf("%s runs %d, %s, instead of %d: %s", name(i), h.Active, edition(p), h.Wanted, h.Rollback)
		}
		if p.Annotations[node.AnnotationRevision] != fmt.Sprint(h.Active) || p.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("%s: %s", name(i), brief(p))
		}
	}
	if in.log.contains("revisions are lost") {
		t.Errorf("a state was torn:\n%s", in.log.tail())
	}
}
