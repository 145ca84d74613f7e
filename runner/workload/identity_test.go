package workload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner/workload/saved"
)

// slow is a world whose pods end only when the test says so.
type slow struct {
	*world
	uids *int
}

// writeAs replaces all documents by one that the Kubernetes API has stored with a uid; empty: `monopod apply` has stored it.
func (w *world) writeAs(uid types.UID, text string) {
	w.t.Helper()
	c, err := decode.All("w.yaml", []byte(text), decode.Options{Source: "applied"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range c.Workloads {
		if uid != "" {
			o.Given = &manifests.ServerMetadata{UID: uid}
			o.Object.SetUID(uid)
		}
	}
	w.docs = c.Workloads
}

// step expands once. Pods that are not desired any more stay in w.pods until gone removes them.
func (s slow) step() {
	s.t.Helper()
	before := s.pods
	s.world.step()
	for key, o := range before {
		if s.pods[key] == nil {
			s.pods[key] = o
		}
	}
	for key, o := range s.pods {
		if before[key] == nil {
			*s.uids++
			o.Status.UID = types.UID(fmt.Sprint("pod-", *s.uids))
		}
	}
}

func (s slow) gone(name string) {
	s.t.Helper()
	s.pod(name)
	delete(s.pods, manifests.Key{Namespace: "default", Name: name})
}

// listed returns the names of the pods of the last result.
func (s slow) listed() string {
	var names []string
	for _, p := range s.result.Pods {
		names = append(names, p.Object.Name)
	}
	return strings.Join(names, " ")
}

func (s slow) wantListed(when, want string) {
	s.t.Helper()
	if got := s.listed(); got != want {
		s.t.Errorf("%s: the pods are %q, want %q", when, got, want)
	}
}

func newSlow(t *testing.T, uid types.UID, document string) slow {
	t.Helper()
	s := slow{newWorld(t, "# nothing yet\n"), new(int)}
	s.writeAs(uid, document)
	s.step()
	return s
}

func (w *world) jobState() *saved.Job { return w.x.state.Jobs["Job default/j"] }

// TestARecreatedJobRuns: whether its predecessor still runs, is being removed or has succeeded, with and without an expansion or a restart of
// the agent between both writes.
func TestARecreatedJobRuns(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
		for _, between := range []string{"nothing", "expansion", "restart", "expansion and restart"} {
			t.Run(string(phase)+" "+between, func(t *testing.T) {
				s := newSlow(t, "old", job("  backoffLimit: 0\n", "a"))
				s.step()
				old := s.pod("j-0").Status.UID
				s.pod("j-0").Status.Status.Phase = phase
				if phase == corev1.PodSucceeded {
					s.step()
				}
				if strings.Contains(between, "expansion") {
					s.docs = nil
					s.step()
					s.wantListed("deleted", "")
				}
				if strings.Contains(between, "restart") {
					s.restart()
				}
				s.writeAs("new", job("  backoffLimit: 0\n", "a"))
				for range 2 {
					s.step()
					s.wantListed("while the old pod ends", "")
				}
				if phase == corev1.PodRunning {
					s.pod("j-0").Status.Status.Phase = corev1.PodFailed // by SIGTERM
					s.step()
				}
				if st := s.jobState(); st.Finished != "" || st.Failed != 0 || st.Slots[0].Done || st.UID != "new" {
					t.Errorf("the new Job counts the old pod: %+v", st)
				}
				s.gone("j-0")
				s.step()
				s.wantListed("once it is gone", "j-0")
				p := s.pod("j-0")
				if p.Status.UID == old || p.Recorded.Object.Labels[batchv1.ControllerUidLabel] != "new" || controllerOf(p.Recorded) != "new" {
					t.Errorf("the pod of the new Job is %+v", p.Recorded.Object.ObjectMeta)
				}
				s.end(corev1.PodSucceeded, "j-0")
				s.step()
				if s.jobState().Finished != saved.Complete {
					t.Errorf("state %+v", s.jobState())
				}
			})
		}
	}
}

func TestPodsOfARecreatedWorkloadAreNew(t *testing.T) {
	for _, kind := range []string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"} {
		for _, restarted := range []bool{false, true} {
			s := newSlow(t, "old", app(kind, "", "a"))
			if restarted {
				s.restart()
			}
			s.writeAs("new", app(kind, "", "a"))
			s.step()
			s.wantListed(kind+" while the old pod ends", "")
			if s.result.Next.Sub(s.now) != leavingRetry {
				t.Errorf("%s: looks again at %v", kind, s.result.Next)
			}
			s.gone("web-0")
			s.step()
			s.wantListed(kind+" once it is gone", "web-0")
			if uid := controllerOf(s.pod("web-0").Recorded); uid != "new" {
				t.Errorf("%s: the pod belongs to %s", kind, uid)
			}
		}
	}
}

// TestAPodThatIsBeingRemovedIsNotUsedAgain: its name is, once it is gone.
func TestAPodThatIsBeingRemovedIsNotUsedAgain(t *testing.T) {
	for _, uid := range []types.UID{"", "u"} {
		s := newSlow(t, uid, app("Deployment", "  replicas: 2\n", "a"))
		s.writeAs(uid, app("Deployment", "  replicas: 1\n", "a"))
		s.step()
		s.wantListed("scaled down", "web-0")
		s.writeAs(uid, app("Deployment", "  replicas: 2\n", "a"))
		s.step()
		s.wantListed("scaled up while the pod ends", "web-0")
		s.gone("web-1")
		s.step()
		s.wantListed("once it is gone", "web-0 web-1")
	}
	s := newSlow(t, "", job("", "a"))
	for _, suspend := range []string{"true", "false"} {
		s.writeAs("", job("  suspend: "+suspend+"\n", "a"))
		s.step()
		s.wantListed("suspend: "+suspend, "")
	}
	s.end(corev1.PodFailed, "j-0")
	s.step()
	if st := s.jobState(); st.Failed != 0 {
		t.Errorf("a pod that was stopped because its Job was suspended counts as failed: %+v", st)
	}
	s.gone("j-0")
	s.step()
	s.wantListed("resumed", "j-0")
}

func TestAStatefulSetIsScaledDownInOrderWhilePodsEnd(t *testing.T) {
	set := func(n int) string { return app("StatefulSet", fmt.Sprintf("  replicas: %d\n", n), "a") }
	s := newSlow(t, "u", set(3))
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		s.step()
		s.ready(name)
	}
	s.writeAs("u", set(1))
	for range 3 {
		s.step()
		s.wantListed("while the last one ends", "web-0 web-1")
	}
	s.gone("web-2")
	s.step()
	s.wantListed("once it is gone", "web-0")
}

// TestPodsStayWithTheirWorkload over restarts, edits, and files that cannot be read.
func TestPodsStayWithTheirWorkload(t *testing.T) {
	for _, uid := range []types.UID{"", "u"} {
		s := newSlow(t, uid, app("Deployment", "", "a")+"---\n"+job("", "a"))
		s.restart()
		s.step()
		s.wantListed("after a restart", "web-0 j-0")
		// A source that cannot be read: its documents are missing, and nothing of it may be removed.
		var seen []Observed
		for _, o := range s.pods {
			seen = append(seen, *o)
		}
		s.x.Expand(s.now, model.Desired{Order: []string{"applied"}}, seen)
		s.step()
		s.wantListed("after its source could not be read", "web-0 j-0")
	}
}

// TestStateOfAnOlderVersionIsContinued: it has no uids.
func TestStateOfAnOlderVersionIsContinued(t *testing.T) {
	for _, uid := range []types.UID{"", "u"} {
		s := newSlow(t, uid, job("", "a"))
		s.end(corev1.PodSucceeded, "j-0")
		s.step()
		st := s.jobState()
		st.UID, st.Fixed = "", ""
		if err := s.x.store.Save(s.x.state); err != nil {
			t.Fatal(err)
		}
		s.restart()
		s.step()
		s.wantListed("after an update", "j-0")
		if got := s.jobState(); got.Finished != saved.Complete || got.UID == "" || got.Fixed == "" {
			t.Errorf("%+v", got)
		}
	}
}

// TestACronJobThatIsRecreatedHasNoRuns, as Kubernetes removes them.
func TestACronJobThatIsRecreatedHasNoRuns(t *testing.T) {
	w := newWorld(t, "# nothing yet\n")
	w.writeAs("old", cronJob(""))
	w.settle()
	w.at(12, 5)
	w.wantRuns(1, 0)
	w.writeAs("new", cronJob(""))
	w.settle()
	w.wantRuns(0, 0)
	w.at(12, 10)
	w.wantRuns(1, 0)
	if st := w.x.state.Crons["CronJob default/tick"]; st.UID != "new" || len(st.Runs) != 1 || st.Runs[0].Job.UID != "new" {
		t.Errorf("%+v", st)
	}
}

// TestEditsThatKeepAJobRunning: those that Kubernetes allows, and what clients of its API write besides.
func TestEditsThatKeepAJobRunning(t *testing.T) {
	const rest = "  template:\n    metadata: {labels: {a: b%s}%s}\n    spec: {restartPolicy: Never%s, containers: [{name: c, image: %s%s}]}\n"
	text := func(spec, labels, notes, pod, image, container string) string {
		return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  completions: 2\n  parallelism: 1\n" + spec + fmt.Sprintf(rest, labels, notes, pod, image, container)
	}
	for name, c := range map[string]struct {
		uid  types.UID
		text string
		same bool
	}{
		"nothing":                    {"u", text("", "", "", "", "i", ""), true},
		"defaults":                   {"u", text("", "", "", ", dnsPolicy: ClusterFirst, schedulerName: default-scheduler", "i", ", terminationMessagePath: /dev/termination-log"), true},
		"defaults, of monopod apply": {"", text("", "", "", ", dnsPolicy: ClusterFirst", "i", ", imagePullPolicy: Always"), true},
		"generated labels":           {"u", text("", ", controller-uid: u, job-name: j, batch.kubernetes.io/job-name: j, batch.kubernetes.io/controller-uid: u", "", "", "i", ""), true},
		"generated, of apply":        {"", text("", ", controller-uid: u, job-name: j", "", "", "i", ""), true},
		"label":                      {"u", text("", ", c: d", ", annotations: {e: f}", "", "i", ""), true},
		"node selector":              {"u", text("", "", "", ", nodeSelector: {a: b}", "i", ""), true},
		"resources":                  {"u", text("", "", "", "", "i", ", resources: {requests: {cpu: 1m}}"), true},
		"limit":                      {"u", text("  backoffLimit: 3\n", "", "", "", "i", ""), true},
		"image":                      {"u", text("", "", "", "", "other", ""), false},
		"image, of a file":           {"", text("", "", "", "", "other", ""), false},
		"resources, of a file":       {"", text("", "", "", "", "i", ", resources: {requests: {cpu: 1m}}"), false},
		"command":                    {"u", text("", "", "", "", "i", ", command: [x]"), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "# nothing yet\n")
			w.writeAs(c.uid, text("", "", "", "", "i", ""))
			w.settle()
			w.end(corev1.PodFailed, "j-0")
			w.settle()
			w.end(corev1.PodSucceeded, "j-1")
			w.settle()
			before := *w.jobState()
			if shown := JobOf(w.x.state, w.docs[0], Revision(*manifests.PodTemplate(w.docs[0].Object))); shown != w.jobState() {
				t.Errorf("the progress of the document is %+v", shown)
			}
			w.writeAs(c.uid, c.text)
			w.settle()
			after := *w.jobState()
			if same := after.Failed == 1 && after.Slots[1].Done && after.Began.Equal(before.Began); same != c.same {
				t.Errorf("before %+v\nafter  %+v", before, after)
			}
			if shown := JobOf(w.x.state, w.docs[0], Revision(*manifests.PodTemplate(w.docs[0].Object))); shown != w.jobState() {
				t.Errorf("the progress of the edited document is %+v", shown)
			}
			if c.same {
				w.restart()
				w.settle()
				if after := *w.jobState(); after.Failed != 1 || !after.Slots[1].Done {
					t.Errorf("after a restart %+v", after)
				}
			}
		})
	}
}

func TestParallelismOfARunningJobChanges(t *testing.T) {
	queue := func(n int) string { return job(fmt.Sprintf("  parallelism: %d\n", n), "a") }
	w := newWorld(t, queue(2))
	w.settle()
	w.want("j-0=a j-1=a")
	w.write(queue(0)) // paused, not complete
	w.settle()
	w.want("")
	if st := w.jobState(); st.Finished != "" {
		t.Errorf("%+v", st)
	}
	w.write(queue(3))
	w.settle()
	w.want("j-0=a j-1=a j-2=a")
	w.end(corev1.PodSucceeded, "j-2")
	w.settle()
	w.write(queue(1))
	w.settle()
	w.want("j-0=a j-2=a!Succeeded") // the success counts, and one pod still runs
	w.write(queue(0))
	w.settle()
	if st := w.jobState(); st.Finished != saved.Complete {
		t.Errorf("%+v", st)
	}
}

// TestResumedJobsHaveAllTheirTime, as in Kubernetes: the time of a deadline is that since the Job was resumed.
func TestResumedJobsHaveAllTheirTime(t *testing.T) {
	spec := func(suspend bool) string {
		return job(fmt.Sprintf("  suspend: %t\n  activeDeadlineSeconds: 100\n", suspend), "a")
	}
	w := newWorld(t, spec(false))
	w.settle()
	began := w.jobState().Began
	w.now = w.now.Add(90 * time.Second)
	w.write(spec(true))
	w.settle()
	if st := w.jobState(); !st.Suspended || !st.Began.IsZero() || st.Ran != 0 {
		t.Errorf("suspended: %+v", st)
	}
	w.now = w.now.Add(time.Hour)
	w.write(spec(false))
	w.settle()
	if st := w.jobState(); st.Suspended || !st.Resumed || !st.Began.After(began) {
		t.Errorf("resumed: %+v", st)
	}
	w.now = w.now.Add(90 * time.Second)
	w.settle()
	w.want("j-0=a")
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	if st := w.jobState(); st.Reason != reasonDeadline {
		t.Errorf("%+v", st)
	}
}

// TestRestartsReachTheBackoffLimit: as in Kubernetes, as many restarts as the limit are too many, other than failed pods.
func TestRestartsReachTheBackoffLimit(t *testing.T) {
	for _, c := range []struct {
		limit    int
		restarts int32
		fails    bool
	}{{0, 0, false}, {0, 1, true}, {2, 1, false}, {2, 2, true}} {
		w := newWorld(t, strings.Replace(job(fmt.Sprintf("  backoffLimit: %d\n", c.limit), "a"), "Never", "OnFailure", 1))
		w.settle()
		w.pod("j-0").Status.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: c.restarts}}
		w.settle()
		if fails := w.jobState().Finished == saved.Failed; fails != c.fails {
			t.Errorf("%+v: %+v", c, w.jobState())
		}
	}
}

func TestExpiredJobsAreReported(t *testing.T) {
	w := newWorld(t, "# nothing yet\n")
	w.writeAs("u", job("  ttlSecondsAfterFinished: 10\n", "a"))
	w.settle()
	w.end(corev1.PodFailed, "j-0")
	w.end(corev1.PodSucceeded, "j-0")
	w.settle()
	if len(w.result.Expired) != 0 || w.result.Next.Sub(w.now) != 10*time.Second {
		t.Fatalf("%+v", w.result)
	}
	w.now = w.now.Add(9 * time.Second)
	w.settle()
	w.restart()
	w.now = w.now.Add(-24 * 365 * time.Hour) // the clock was set while the agent was stopped
	w.settle()
	if len(w.result.Expired) != 0 {
		t.Errorf("%+v", w.result.Expired)
	}
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	if e := w.result.Expired; len(e) != 1 || e[0] != (Expired{Namespace: "default", Name: "j", UID: "u", Origin: w.docs[0].Origin, TTL: 10}) {
		t.Errorf("%+v", e)
	}
	w.writeAs("u", job("  ttlSecondsAfterFinished: 100\n", "a"))
	w.settle()
	if len(w.result.Expired) != 0 {
		t.Errorf("after the TTL was raised: %+v", w.result.Expired)
	}
}

func TestExpiredRunsOfACronJobAreRemoved(t *testing.T) {
	w := newWorld(t, strings.Replace(cronJob(""), "    spec:\n", "    spec:\n      ttlSecondsAfterFinished: 30\n", 1))
	w.settle()
	w.at(12, 5)
	at := w.x.state.Crons["CronJob default/tick"].LastRun()
	w.endAll(corev1.PodSucceeded)
	w.wantRuns(0, 1)
	w.now = w.now.Add(30 * time.Second)
	w.settle()
	w.wantRuns(0, 0)
	st := w.x.state.Crons["CronJob default/tick"]
	if len(st.Runs) != 0 || !st.LastRun().Equal(at) || st.Succeeded.IsZero() || !w.x.LastRuns()["default/tick"].Equal(at) {
		t.Errorf("%+v", st)
	}
	w.restart()
	w.settle()
	w.wantRuns(0, 0) // the run is not repeated
}
