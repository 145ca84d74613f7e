package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/workload/saved"
)

func TestPodsOfAStatefulSetHaveClaimsOfTheirOwn(t *testing.T) {
	const claims = "  serviceName: web\n  podManagementPolicy: Parallel\n  replicas: 2\n  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]\n"
	const retention = "  persistentVolumeClaimRetentionPolicy: {whenDeleted: %s, whenScaled: %s}\n"
	for _, tt := range []struct {
		policy string
		kept   bool
	}{
		{"", true}, {fmt.Sprintf(retention, "Retain", "Retain"), true}, {fmt.Sprintf(retention, "Delete", "Retain"), true}, {fmt.Sprintf(retention, "Delete", "Delete"), false},
	} {
		w := newWorld(t, app("StatefulSet", claims+tt.policy, "a"))
		w.step()
		before := w.result.Claims
		w.step()
		if len(before) != 2 {
			t.Fatalf("%d claims", len(before))
		}
		for i, c := range w.result.Claims {
			name, pod := fmt.Sprintf("data-web-%d", i), fmt.Sprintf("web-%d", i)
			if c != before[i] {
				t.Errorf("%s is another object in each expansion", name)
			}
			if o := c.Object; c.Kind != "PersistentVolumeClaim" || o.GetName() != name || o.GetNamespace() != "default" || (o.GetAnnotations()[manifests.AnnotationRetain] == "true") != tt.kept {
				t.Errorf("%q: %+v", tt.policy, o)
			}
			volumes := w.pod(pod).Recorded.Object.Spec.Volumes
			if len(volumes) != 1 || volumes[0].Name != "data" || volumes[0].PersistentVolumeClaim == nil || volumes[0].PersistentVolumeClaim.ClaimName != name {
				t.Errorf("%s: %+v", pod, volumes)
			}
		}
	}
}

func TestOfTwoPodsWithOneNameTheFirstIsRun(t *testing.T) {
	w := newWorld(t, app("Deployment", "", "first")+"---\n"+app("ReplicaSet", "", "second"))
	w.step()
	w.want("web-0=first")
	key := manifests.Key{Namespace: "default", Name: "web-0"}
	if c := w.result.Clashes; len(c) != 1 || c[0].Pod != key || c[0].By.Line != 1 || c[0].At.Line <= c[0].By.Line {
		t.Errorf("%+v", c)
	}
	// A pod of a document comes before all workloads.
	document := *w.pod("web-0").Recorded
	document.Origin = manifests.Origin{Source: "file", File: "pod.yaml", Line: 7}
	r := w.x.Expand(w.now, model.Desired{Pods: []*manifests.Pod{&document}, Workloads: w.docs, Reported: everySource()}, nil)
	if len(r.Pods) != 1 || r.Pods[0] != &document || len(r.Clashes) != 2 || r.Clashes[0].By != document.Origin {
		t.Errorf("%d pods, clashes %+v", len(r.Pods), r.Clashes)
	}
	// One of another space does not.
	w.x.Spaces = &manifests.Spaces{Local: []string{w.docs[0].Origin.Source}}
	document.Origin.Source = "fleet"
	r = w.x.Expand(w.now, model.Desired{Pods: []*manifests.Pod{&document}, Workloads: w.docs, Reported: everySource()}, nil)
	if len(r.Pods) != 1 || r.Pods[0] == &document || len(r.Clashes) != 2 || r.Clashes[0].At != document.Origin {
		t.Errorf("of another space: %d pods, clashes %+v", len(r.Pods), r.Clashes)
	}
	r = w.x.Expand(w.now, model.Desired{Workloads: w.docs[:1], Reported: everySource()}, nil)
	if len(r.Pods) != 1 || len(r.Clashes) != 0 {
		t.Errorf("once one is gone: %d pods, clashes %+v", len(r.Pods), r.Clashes)
	}
}

func TestResultsOfJobsAndRunsOfCronJobs(t *testing.T) {
	w := newWorld(t, strings.ReplaceAll(job("", "a"), "name: j", "name: good")+"---\n"+strings.ReplaceAll(job("  backoffLimit: 0\n", "a"), "name: j", "name: bad")+"---\n"+cronJob(""))
	w.settle()
	if f, l := w.x.Finished(), w.x.LastRuns(); len(f) != 0 || len(l) != 0 {
		t.Errorf("nothing has ended or run yet: %v, %v", f, l)
	}
	w.end(corev1.PodSucceeded, "good-0")
	w.end(corev1.PodFailed, "bad-0")
	w.at(12, 7)
	if f := w.x.Finished(); len(f) != 2 || f["default/good"] != saved.Complete || f["default/bad"] != saved.Failed {
		t.Errorf("%v", f)
	}
	if l := w.x.LastRuns(); len(l) != 1 || !l["default/tick"].Equal(time.Date(2026, 11, 21, 12, 5, 0, 0, time.Local)) {
		t.Errorf("%v", l)
	}
}

// A template that cannot be a pod must not end the pods that run.
func TestPodsStayWhileTheirWorkloadCannotBeFollowed(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "new"}}}}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	for _, w := range []Workload{
		{Kind: "Deployment", Object: &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}}},
		{Kind: "CronJob", Object: &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "never"}}},
	} {
		old := &manifests.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", OwnerReferences: []metav1.OwnerReference{owner(w)}}}}
		other := &manifests.Pod{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}}}
		state := saved.State{Crons: map[string]*saved.CronJob{"CronJob default/web": {Last: time.Unix(5, 0)}}}
		out := Expand(Input{
			Workloads: []Workload{w}, Pods: map[manifests.Key]Current{old.Key(): {Pod: old}, other.Key(): {Pod: other}}, State: state,
			Make: func(Workload, *corev1.Pod) (*manifests.Pod, error) { return nil, errors.New("no pod") },
		})
		if len(out.Pods) != 1 || out.Pods[0] != old || out.Problems[w.Kind+" default/web"] == nil {
			t.Errorf("%s: %v, %v", w.Kind, out.Pods, out.Problems)
		}
		if w.Kind == "CronJob" && out.State.Crons["CronJob default/web"] == nil {
			t.Error("when it ran last is forgotten")
		}
	}
}

func TestTheLatestScheduledTimeIsFoundAtOnce(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)
	for spec, want := range map[string]time.Time{
		"* * * * *":   time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		"30 * * * *":  time.Date(2026, 11, 21, 11, 30, 0, 0, time.UTC),
		"30 13 * * *": time.Date(2026, 11, 20, 13, 30, 0, 0, time.UTC),
		"0 0 1 * *":   time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		"0 0 29 2 *":  time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
		"0 0 31 2 *":  {}, // there is no such day
	} {
		s, err := cron.ParseStandard(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := latest(s, now); !got.Equal(want) || ok == want.IsZero() {
			t.Errorf("%s: %v, %v; want %v", spec, got, ok, want)
		}
	}
}

// TestADroppedRunIsOver: its pods go, it does not run again, also after a restart, and when it ran is known.
func TestADroppedRunIsOver(t *testing.T) {
	w := newWorld(t, cronJob("  concurrencyPolicy: Forbid\n"))
	w.settle()
	w.at(12, 5)
	w.wantRuns(1, 0)
	shared := w.x.State()
	run := saved.RunID{Namespace: "default", CronJob: "tick", Name: shared.Crons["CronJob default/tick"].Runs[0].Name}
	if !shared.Has(run) {
		t.Fatalf("%v is not known", run)
	}
	w.x.Drop([]saved.RunID{run, {Namespace: "default", CronJob: "tick", Name: "never"}, {Namespace: "default", CronJob: "none", Name: "never"}})
	w.at(12, 6)
	w.wantRuns(0, 0)
	if w.x.State().Has(run) || !shared.Has(run) {
		t.Error("the run is known still, or a state that was given out has changed")
	}
	w.restart()
	w.settle()
	w.wantRuns(0, 0)
	if at := w.x.LastRuns()["default/tick"]; !at.Equal(time.Date(2026, 11, 21, 12, 5, 0, 0, time.Local)) {
		t.Errorf("it ran last at %v", at)
	}
	w.at(12, 10)
	w.wantRuns(1, 0) // it does not wait for the dropped one
}

// TestADeletedPodOfAJobDoesNotDoItsWorkAgain: one that has ended goes, whether that was seen before or not, and one that runs is created again.
func TestADeletedPodOfAJobDoesNotDoItsWorkAgain(t *testing.T) {
	for name, document := range map[string]string{"Job": job("", "a"), "CronJob": cronJob("")} {
		for _, seen := range []bool{true, false} {
			w := newWorld(t, document)
			w.settle()
			w.at(12, 5)
			var pod manifests.Key
			for pod = range w.pods {
				w.end(corev1.PodSucceeded, pod.Name)
			}
			if seen {
				w.settle()
				w.wantRuns(0, 1)
			}
			w.x.Deleted([]manifests.Key{pod})
			w.settle()
			w.wantRuns(0, 0)
			if c := w.x.State().Crons["CronJob default/tick"]; w.x.Finished()["default/j"] != saved.Complete && (c == nil || c.Active() != 0) {
				t.Errorf("%s: it is not complete: %+v", name, w.x.State())
			}
			w.restart()
			w.settle()
			w.wantRuns(0, 0)
		}
	}
	w := newWorld(t, job("  completions: 2\n  parallelism: 2\n", "a"))
	w.settle()
	w.end(corev1.PodFailed, "j-1")
	w.x.Deleted([]manifests.Key{{Namespace: "default", Name: "j-0"}, {Namespace: "default", Name: "j-1"}})
	w.step()
	w.want("")
	w.step()
	w.want("j-0=a")
	w.now = w.now.Add(firstRetry)
	w.step()
	w.want("j-0=a j-1-1=a")
}
