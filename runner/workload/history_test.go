package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/workload/saved"
)

// kindsWithHistory are those whose templates have revisions.
func kindsWithHistory() []string { return []string{"Deployment", "StatefulSet", "DaemonSet"} }

// history lists the revisions of a workload: number and image, and former numbers.
func (w *world) history(kind string) string {
	w.t.Helper()
	var out []string
	h := w.x.State().Histories[kind+" default/web"]
	if h == nil {
		return ""
	}
	for _, r := range h.Revisions {
		t, err := r.PodTemplate()
		if err != nil {
			w.t.Fatal(err)
		}
		text := fmt.Sprintf("%d=%s", r.Number, t.Spec.Containers[0].Image)
		if len(r.Former) > 0 {
			text += fmt.Sprint(r.Former)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (w *world) wantHistory(kind, want string) {
	w.t.Helper()
	if got := w.history(kind); got != want {
		w.t.Errorf("%s: revisions are %q, want %q", kind, got, want)
	}
}

// roll writes a document, and makes its pods ready until nothing changes.
func (w *world) roll(text string) {
	w.t.Helper()
	w.write(text)
	for range 10 {
		w.settle()
		for key := range w.pods {
			w.ready(key.Name)
		}
	}
	w.settle()
}

func TestTemplatesHaveRevisions(t *testing.T) {
	for _, kind := range kindsWithHistory() {
		w := newWorld(t, app(kind, "", "a"))
		w.roll(app(kind, "", "a"))
		w.wantHistory(kind, "1=a")
		w.roll(app(kind, "", "b"))
		w.roll(app(kind, "  minReadySeconds: 1\n", "b")) // not a change of the template
		w.wantHistory(kind, "1=a 2=b")
		w.roll(app(kind, "", "a")) // a rollback
		w.wantHistory(kind, "2=b 3=a[1]")
		w.restart()
		w.settle()
		w.wantHistory(kind, "2=b 3=a[1]")
		w.roll(app(kind, "", "b"))
		w.wantHistory(kind, "3=a[1] 4=b[2]")
		w.roll(strings.Replace(app(kind, "", "b"), "image: b", "image: b, imagePullPolicy: Always", 1)) // that is the default
		w.wantHistory(kind, "3=a[1] 4=b[2]")
		w.docs = nil
		w.settle()
		w.wantHistory(kind, "")
		if info, err := os.Stat(filepath.Join(filepath.Dir(w.path), "workloads-history.json")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	}
}

// TestARevisionIsStoredBeforePodsChange: what is on disk after an expansion is what it was made with.
func TestARevisionIsStoredBeforePodsChange(t *testing.T) {
	w := newWorld(t, app("Deployment", "", "a"))
	w.step()
	w.write(app("Deployment", "", "b"))
	w.x.Expand(w.now, model.Desired{Workloads: w.docs, Reported: everySource()}, nil)
	st, err := saved.NewStore(w.path).Load()
	if h := st.Histories["Deployment default/web"]; err != nil || h == nil || len(h.Revisions) != 2 {
		t.Errorf("%+v %v", h, err)
	}
}

func TestOldRevisionsAreLimited(t *testing.T) {
	const limit = 10 // unless spec.revisionHistoryLimit is set
	for _, kind := range kindsWithHistory() {
		w := newWorld(t, app(kind, "", "i0"))
		for i := range 15 {
			w.roll(app(kind, "", fmt.Sprint("i", i)))
		}
		if got := strings.Fields(w.history(kind)); len(got) != limit+1 || got[0] != "5=i4" || got[limit] != "15=i14" {
			t.Errorf("%s: %v", kind, got)
		}
		w.roll(app(kind, "  revisionHistoryLimit: 2\n", "i14"))
		w.wantHistory(kind, "13=i12 14=i13 15=i14")
		w.roll(app(kind, "  revisionHistoryLimit: 0\n", "i15"))
		w.wantHistory(kind, "16=i15")
		const large = 16 << 10 // bytes: a quarter of what the old revisions of a workload may have
		enlarged := func(image string) string {
			return app(kind, "", fmt.Sprintf("%s, env: [{name: A, value: %s}]", image, strings.Repeat("x", large)))
		}
		for _, image := range []string{"l1", "l2", "l3", "l4", "l5"} {
			w.roll(enlarged(image))
		}
		w.wantHistory(kind, "18=l2 19=l3 20=l4 21=l5")
	}
}

// TestARevisionWithPodsIsNotDropped: those of an update in progress.
func TestARevisionWithPodsIsNotDropped(t *testing.T) {
	const spec = "  replicas: 2\n  revisionHistoryLimit: 0\n"
	w := newWorld(t, app("Deployment", spec, "a"))
	w.roll(app("Deployment", spec, "a"))
	w.write(app("Deployment", spec, "b"))
	w.settle()
	w.want("web-0=b web-1=a")
	w.wantHistory("Deployment", "1=a 2=b")
	w.roll(app("Deployment", spec, "b"))
	w.wantHistory("Deployment", "2=b")
}

// TestRevisionsBelongToOneWorkload: one that is created again with the same name has none of the last one.
func TestRevisionsBelongToOneWorkload(t *testing.T) {
	w := newWorld(t, app("Deployment", "", "a"))
	given := func(uid types.UID) { w.docs[0].Given = &manifests.ServerMetadata{UID: uid} }
	given("one")
	w.settle()
	w.write(app("Deployment", "", "b"))
	given("one")
	w.settle()
	w.wantHistory("Deployment", "1=a 2=b")
	w.write(app("Deployment", "", "c"))
	given("two")
	w.settle()
	w.wantHistory("Deployment", "1=c")
}

func TestRevisionsAreKeptWhileTheirDocumentMayComeBack(t *testing.T) {
	w := newWorld(t, app("Deployment", "", "a"))
	w.settle()
	w.restart()
	w.x.Expand(w.now, model.Desired{}, nil)
	w.wantHistory("Deployment", "1=a")
	if w.x.Idle() {
		t.Error("revisions of a workload that was removed meanwhile would stay")
	}
	w.x.Expand(w.now, model.Desired{Workloads: w.docs, Reported: everySource(), Unknown: map[string][]string{"file": {"w.yaml"}}}, nil)
	w.wantHistory("Deployment", "1=a")
	w.x.Expand(w.now, model.Desired{Reported: everySource()}, nil)
	w.wantHistory("Deployment", "")
}

// TestAnnotationsOfRevisions: those of the last revision of a Deployment follow it, as in Kubernetes.
func TestAnnotationsOfRevisions(t *testing.T) {
	for _, kind := range kindsWithHistory() {
		w := newWorld(t, "# nothing yet\n")
		cause := func(text, image string) {
			w.roll(strings.Replace(app(kind, "", image), "{name: web}", fmt.Sprintf("{name: web, annotations: {kubernetes.io/change-cause: %s, kubectl.kubernetes.io/last-applied-configuration: x, deployment.kubernetes.io/revision: '7'}}", text), 1))
		}
		cause("first", "a")
		cause("second", "a")
		cause("third", "b")
		var got []string
		for _, r := range w.x.State().Histories[kind+" default/web"].Revisions {
			if len(r.Annotations) != 1 {
				t.Errorf("%s: %v", kind, r.Annotations)
			}
			got = append(got, r.Annotations["kubernetes.io/change-cause"])
		}
		want := []string{"first", "third"}
		if kind == "Deployment" {
			want[0] = "second"
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

func paused(replicas int, yes bool, image string) string {
	return app("Deployment", fmt.Sprintf("  replicas: %d\n  paused: %v\n", replicas, yes), image)
}

func TestAPausedDeploymentDoesNotRoll(t *testing.T) {
	for _, strategy := range []string{"", "  strategy: {type: Recreate}\n"} {
		write := func(w *world, replicas int, yes bool, image string) {
			w.roll(strings.Replace(paused(replicas, yes, image), "  replicas", strategy+"  replicas", 1))
		}
		w := newWorld(t, "# nothing yet\n")
		write(w, 2, false, "a")
		write(w, 2, true, "b")
		w.want("web-0=a web-1=a")
		w.wantHistory("Deployment", "1=a")
		write(w, 3, true, "b") // scaling still applies
		w.want("web-0=a web-1=a web-2=a")
		w.restart()
		write(w, 3, true, "c")
		w.want("web-0=a web-1=a web-2=a")
		w.restart()
		w.pods = map[manifests.Key]*Observed{} // after a power cut nothing runs
		write(w, 1, true, "c")
		w.want("web-0=a")
		write(w, 1, false, "c")
		w.want("web-0=c")
		w.wantHistory("Deployment", "1=a 2=c")
	}
}

func TestADeploymentThatIsCreatedPausedHasNoPods(t *testing.T) {
	w := newWorld(t, paused(2, true, "a"))
	w.settle()
	w.want("")
	w.wantHistory("Deployment", "")
	w.roll(paused(2, true, "b"))
	w.restart()
	w.settle()
	w.want("")
	w.roll(paused(2, false, "b"))
	w.want("web-0=b web-1=b")
	w.wantHistory("Deployment", "1=b")
}

// TestAnUpdateThatIsPausedStops: pods of both templates stay, and others are created from the new one.
func TestAnUpdateThatIsPausedStops(t *testing.T) {
	w := newWorld(t, "# nothing yet\n")
	w.roll(paused(3, false, "a"))
	w.write(paused(3, false, "b"))
	w.settle()
	w.want("web-0=b web-1=a web-2=a")
	w.roll(paused(4, true, "b"))
	w.want("web-0=b web-1=a web-2=a web-3=b")
	w.roll(paused(4, true, "a")) // not even to the template of others
	w.want("web-0=b web-1=a web-2=a web-3=b")
	w.roll(paused(4, false, "a"))
	w.want("web-0=a web-1=a web-2=a web-3=a")
	w.wantHistory("Deployment", "2=b 3=a[1]")
}

// TestAPausedDeploymentOfAnOlderVersion: its state has no revisions, and its pods stay.
func TestAPausedDeploymentOfAnOlderVersion(t *testing.T) {
	for image, want := range map[string]string{"a": "web-0=a web-1=a", "b": "web-0=a"} {
		w := newWorld(t, "# nothing yet\n")
		w.roll(paused(1, false, "a"))
		if err := os.Remove(filepath.Join(filepath.Dir(w.path), "workloads-history.json")); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.roll(paused(2, true, image))
		w.want(want)
	}
}

func TestPodsBelowThePartitionAreOfTheCurrentRevision(t *testing.T) {
	set := func(partition int, image string) string {
		return app("StatefulSet", fmt.Sprintf("  replicas: 3\n  podManagementPolicy: Parallel\n  updateStrategy: {rollingUpdate: {partition: %d}}\n", partition), image)
	}
	w := newWorld(t, "# nothing yet\n")
	w.roll(set(0, "a"))
	w.roll(set(2, "b"))
	w.want("web-0=a web-1=a web-2=b")
	w.restart()
	w.pods = map[manifests.Key]*Observed{} // all of them are lost
	w.roll(set(2, "b"))
	w.want("web-0=a web-1=a web-2=b")
	w.roll(set(1, "b"))
	w.want("web-0=a web-1=b web-2=b")
	if h := w.x.State().Histories["StatefulSet default/web"]; h.Current != h.Revisions[0].Hash {
		t.Errorf("an update that is not complete: %+v", h)
	}
	w.roll(set(0, "b"))
	w.want("web-0=b web-1=b web-2=b")
	if h := w.x.State().Histories["StatefulSet default/web"]; h.Current != h.Revisions[1].Hash {
		t.Errorf("an update that is complete: %+v", h)
	}
	w.roll(set(3, "c"))
	w.want("web-0=b web-1=b web-2=b")
	w.pods = map[manifests.Key]*Observed{}
	w.restart()
	w.roll(set(3, "c"))
	w.want("web-0=b web-1=b web-2=b")
}

// TestPodsOfTwoRevisionsAreNotConfused: those of one document with one name.
func TestPodsOfTwoRevisionsAreNotConfused(t *testing.T) {
	for _, label := range []string{appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey} {
		w := newWorld(t, app("StatefulSet", "", "a"))
		doc := Workload{Object: w.docs[0].Object, Kind: "StatefulSet", Origin: w.docs[0].Origin}
		made := func(hash string) *manifests.Pod {
			pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web-0", Labels: map[string]string{label: hash}}}
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: hash}}
			p, err := w.x.make(doc, pod)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if a, b := made("a"), made("b"); a == b || made("a") != a || b.Object.Spec.Containers[0].Image != "b" {
			t.Errorf("%s: %+v, %+v", label, a.Object, b.Object)
		}
	}
}

// TestOnDelete: only pods that are deleted get the new template.
func TestOnDelete(t *testing.T) {
	for _, kind := range []string{"StatefulSet", "DaemonSet"} {
		const onDelete, rolling = "  updateStrategy: {type: OnDelete}\n", "  updateStrategy: {type: RollingUpdate}\n"
		w := newWorld(t, "# nothing yet\n")
		w.roll(app(kind, onDelete, "a"))
		w.roll(app(kind, onDelete, "b"))
		w.want("web-0=a")
		w.restart()
		w.roll(app(kind, onDelete, "b"))
		w.want("web-0=a")
		w.x.Deleted([]manifests.Key{w.pod("web-0").Recorded.Key()})
		w.step()
		w.want("web-0=b")
		w.roll(app(kind, onDelete, "c"))
		w.want("web-0=b")
		w.roll(app(kind, rolling, "c"))
		w.want("web-0=c")
		w.wantHistory(kind, "1=a 2=b 3=c")
		if got := Final(w.docs[0]); len(got) != 1 {
			t.Errorf("%s: %v", kind, got)
		}
		w.write(app(kind, onDelete, "d"))
		if got := Final(w.docs[0]); len(got) != 0 {
			t.Errorf("%s: waits for %v", kind, got)
		}
	}
}

// TestADeletedPodOfAnUpdateKeepsItsTemplate: in a Deployment its ReplicaSet creates it again.
func TestADeletedPodOfAnUpdateKeepsItsTemplate(t *testing.T) {
	w := newWorld(t, "# nothing yet\n")
	w.roll(paused(1, false, "a"))
	w.roll(paused(1, true, "b"))
	w.x.Deleted([]manifests.Key{w.pod("web-0").Recorded.Key()})
	w.step()
	w.want("web-0=a")
}
