package workload

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/runner/workload/saved"
)

// world is a machine without containers: the test sets the states of pods.
type world struct {
	t      *testing.T
	x      *Expander
	path   string
	now    time.Time
	docs   []*manifests.Object
	pods   map[manifests.Key]*Observed
	result Result
}

func newWorld(t *testing.T, document string) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "workloads.json"), now: time.Date(2026, 11, 21, 12, 0, 30, 0, time.Local), pods: map[manifests.Key]*Observed{}}
	w.restart()
	w.write(document)
	return w
}

// restart starts a new agent with the same pods.
func (w *world) restart() {
	w.t.Helper()
	x, err := NewExpander(saved.NewStore(w.path), slog.New(slog.NewTextHandler(w.t.Output(), nil)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.x = x
}

// write replaces all documents.
func (w *world) write(text string) {
	w.t.Helper()
	c, err := decode.All("w.yaml", []byte(text), decode.Options{Source: "file"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.docs = c.Workloads
}

// step expands once; new or changed pods start to run, not ready yet, and others are removed.
func (w *world) step() {
	w.t.Helper()
	var seen []Observed
	for _, o := range w.pods {
		seen = append(seen, *o)
	}
	w.result = w.x.Expand(w.now, model.Desired{Workloads: w.docs, Reported: everySource()}, seen)
	next := map[manifests.Key]*Observed{}
	for _, p := range w.result.Pods {
		o := w.pods[p.Key()]
		if o == nil || o.Recorded.Object.Labels["pod-template-hash"]+o.Recorded.Object.Labels["controller-revision-hash"] != p.Object.Labels["pod-template-hash"]+p.Object.Labels["controller-revision-hash"] {
			status := p.Object.DeepCopy()
			status.Status.Phase = corev1.PodRunning
			o = &Observed{Status: status}
		}
		o.Recorded = p
		next[p.Key()] = o
	}
	w.pods = next
}

// settle expands until nothing changes.
func (w *world) settle() {
	w.t.Helper()
	for range 20 {
		before := w.String()
		w.step()
		if w.String() == before {
			return
		}
	}
	w.t.Fatal("does not converge")
}

func (w *world) pod(name string) *Observed {
	w.t.Helper()
	o := w.pods[manifests.Key{Namespace: "default", Name: name}]
	if o == nil {
		w.t.Fatalf("there is no pod %s: %s", name, w)
	}
	return o
}

func (w *world) ready(names ...string) {
	w.t.Helper()
	for _, n := range names {
		w.pod(n).Status.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

func (w *world) end(phase corev1.PodPhase, names ...string) {
	w.t.Helper()
	for _, n := range names {
		w.pod(n).Status.Status.Phase = phase
	}
}

// String lists the existing pods: name, image and state.
func (w *world) String() string {
	var out []string
	for key, o := range w.pods {
		s := key.Name + "=" + o.Recorded.Object.Spec.Containers[0].Image
		if p := o.Status.Status.Phase; p != corev1.PodRunning {
			s += "!" + string(p)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, cmp.Compare)
	return strings.Join(out, " ")
}

func (w *world) want(want string) {
	w.t.Helper()
	if got := w.String(); got != want {
		w.t.Errorf("pods are %s\nwant     %s", got, want)
	}
}

func app(kind, spec, image string) string {
	return "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n" + spec +
		"  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: " + image + "}]}\n"
}

func TestDeploymentHasNumberedPodsAndRollsOneByOne(t *testing.T) {
	w := newWorld(t, app("Deployment", "  replicas: 3\n", "a"))
	w.step()
	w.want("web-0=a web-1=a web-2=a")
	owner := w.pod("web-1").Recorded.Object.OwnerReferences
	if len(owner) != 1 || owner[0].Kind != "Deployment" || owner[0].Name != "web" || owner[0].APIVersion != "apps/v1" {
		t.Errorf("owner is %+v", owner)
	}
	w.ready("web-0", "web-1", "web-2")
	w.write(app("Deployment", "  replicas: 3\n", "b"))
	w.settle()
	w.want("web-0=b web-1=a web-2=a") // the next one waits until it is ready
	w.restart()
	w.settle()
	w.want("web-0=b web-1=a web-2=a")
	w.write(app("Deployment", "  replicas: 3\n", "c")) // b was bad: the fix is applied where b was tried
	w.settle()
	w.want("web-0=c web-1=a web-2=a")
	for _, name := range []string{"web-0", "web-1", "web-2"} {
		w.ready(name)
		w.settle()
	}
	w.want("web-0=c web-1=c web-2=c")
	w.write(app("Deployment", "  replicas: 1\n", "c"))
	w.settle()
	w.want("web-0=c")
	w.docs = nil
	w.settle()
	w.want("")
}

func TestRolloutWaitsForPodThatIsNotUpdatedYet(t *testing.T) {
	w := newWorld(t, app("ReplicaSet", "  replicas: 2\n", "a"))
	w.step()
	w.ready("web-0", "web-1")
	old := w.pod("web-0").Recorded
	w.write(app("ReplicaSet", "  replicas: 2\n", "b"))
	w.step()
	w.pod("web-0").Recorded = old // still the old manifest, and ready
	w.ready("web-0")
	w.x.Expand(w.now, model.Desired{Workloads: w.docs, Reported: everySource()}, []Observed{*w.pod("web-0"), *w.pod("web-1")})
	got := map[string]string{}
	for key, p := range w.x.assigned {
		got[key.Name] = p.Object.Spec.Containers[0].Image
	}
	if got["web-0"] != "b" || got["web-1"] != "a" {
		t.Errorf("given out: %v", got)
	}
}

func TestRecreateAndDaemonSet(t *testing.T) {
	w := newWorld(t, app("Deployment", "  replicas: 2\n  strategy: {type: Recreate}\n", "a"))
	w.step()
	w.write(app("Deployment", "  replicas: 2\n  strategy: {type: Recreate}\n", "b"))
	w.step()
	w.want("web-0=b web-1=b")
	w = newWorld(t, app("DaemonSet", "", "a"))
	w.step()
	w.want("web-0=a")
}

func TestAStatefulSetKeepsItsOrder(t *testing.T) {
	const more = "  serviceName: peers\n  ordinals: {start: 1}\n"
	set := func(n, image string) string { return app("StatefulSet", "  replicas: "+n+"\n"+more, image) }
	w := newWorld(t, set("3", "a"))
	w.settle()
	w.want("web-1=a")
	w.ready("web-1")
	w.settle()
	w.want("web-1=a web-2=a")
	w.ready("web-2")
	w.settle()
	w.ready("web-3")
	p := w.pod("web-2").Recorded.Object
	if p.Spec.Hostname != "web-2" || p.Spec.Subdomain != "peers" || p.Labels["apps.kubernetes.io/pod-index"] != "2" || p.Labels["statefulset.kubernetes.io/pod-name"] != "web-2" {
		t.Errorf("names of web-2: %q %q %v", p.Spec.Hostname, p.Spec.Subdomain, p.Labels)
	}
	w.write(set("3", "b"))
	w.settle()
	w.want("web-1=a web-2=a web-3=b") // highest ordinal first
	w.write(set("1", "a"))
	w.step()
	w.want("web-1=a web-2=a") // the last one first
	w.step()
	w.want("web-1=a")
}

func TestPartitionKeepsPodsBelowItUnchanged(t *testing.T) {
	set := func(image string) string {
		return app("StatefulSet", "  replicas: 2\n  podManagementPolicy: Parallel\n  updateStrategy: {rollingUpdate: {partition: 1}}\n", image)
	}
	w := newWorld(t, set("a"))
	w.step()
	w.want("web-0=a web-1=a")
	w.ready("web-0", "web-1")
	w.write(set("b"))
	w.settle()
	w.ready("web-1")
	w.settle()
	w.want("web-0=a web-1=b")
}

func job(spec, image string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n" + spec + "  template:\n    spec: {restartPolicy: Never, containers: [{name: c, image: " + image + "}]}\n"
}

func TestAJobCompletesAndStaysCompleted(t *testing.T) {
	w := newWorld(t, job("  completions: 3\n  parallelism: 2\n", "a"))
	w.settle()
	w.want("j-0=a j-1=a")
	w.end(corev1.PodSucceeded, "j-0")
	w.settle()
	w.want("j-0=a!Succeeded j-1=a j-2=a")
	w.restart()
	w.settle()
	w.want("j-0=a!Succeeded j-1=a j-2=a")
	w.end(corev1.PodSucceeded, "j-1", "j-2")
	w.settle()
	w.restart()
	w.pods = map[manifests.Key]*Observed{} // all records are lost too
	w.settle()
	w.want("")
	w.write(job("  completions: 1\n", "b")) // another template is another run
	w.settle()
	w.want("j-0=b")
}

func TestAnEditOfACompletedJobRunsItAgain(t *testing.T) {
	w := newWorld(t, job("", "a"))
	w.settle()
	w.end(corev1.PodSucceeded, "j-0")
	w.settle()
	w.want("j-0=a!Succeeded")
	w.write(job("", "b"))
	w.settle()
	w.want("j-0=b")
	if w.x.state.Jobs["Job default/j"].Finished != "" {
		t.Error("the success of the old run was taken for one of the new")
	}
}

func TestJobRetriesWithBackOffUpToLimit(t *testing.T) {
	w := newWorld(t, job("  backoffLimit: 1\n", "a"))
	w.settle()
	w.end(corev1.PodFailed, "j-0")
	w.settle()
	w.want("j-0=a!Failed")
	if wait := w.result.Next.Sub(w.now); wait != firstRetry {
		t.Errorf("tries again after %v", wait)
	}
	w.now = w.now.Add(firstRetry)
	w.settle()
	w.want("j-0-1=a j-0=a!Failed")
	w.end(corev1.PodFailed, "j-0-1")
	w.settle()
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.want("j-0-1=a!Failed j-0=a!Failed")
	if st := w.x.state.Jobs["Job default/j"]; st.Finished != saved.Failed || st.Reason != reasonBackoffLimit {
		t.Errorf("state is %+v", st)
	}
}

func TestRestartsOfContainersCountToo(t *testing.T) {
	w := newWorld(t, strings.Replace(job("  backoffLimit: 2\n", "a"), "Never", "OnFailure", 1))
	w.settle()
	w.pod("j-0").Status.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 3}}
	w.settle()
	w.want("")
}

func TestJobDeadlineAndTTLCountElapsedTime(t *testing.T) {
	w := newWorld(t, job("  activeDeadlineSeconds: 200\n", "a"))
	w.settle()
	w.now = w.now.Add(100 * time.Second)
	w.settle()
	w.restart()
	w.now = w.now.Add(300 * 24 * time.Hour) // the clock was set while the agent was stopped
	w.settle()
	w.want("j-0=a")
	w.now = w.now.Add(101 * time.Second)
	w.settle()
	w.want("")
	if st := w.x.state.Jobs["Job default/j"]; st.Reason != reasonDeadline {
		t.Errorf("state is %+v", st)
	}
	w = newWorld(t, job("  ttlSecondsAfterFinished: 10\n", "a"))
	w.settle()
	w.end(corev1.PodSucceeded, "j-0")
	w.settle()
	w.want("j-0=a!Succeeded")
	w.now = w.now.Add(10 * time.Second)
	w.settle()
	w.want("")
}

func TestIndexedPodsHaveIndex(t *testing.T) {
	w := newWorld(t, job("  completionMode: Indexed\n  completions: 2\n  parallelism: 2\n", "a"))
	w.settle()
	p := w.pod("j-1").Recorded.Object
	env := p.Spec.Containers[0].Env
	if p.Annotations["batch.kubernetes.io/job-completion-index"] != "1" || p.Spec.Hostname != "j-1" || len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" {
		t.Errorf("annotations %v, host name %q, env %+v", p.Annotations, p.Spec.Hostname, env)
	}
}

func TestASuspendedJobHasNoPods(t *testing.T) {
	w := newWorld(t, job("  suspend: true\n", "a"))
	w.settle()
	w.want("")
	w.write(job("  suspend: false\n", "a"))
	w.settle()
	w.want("j-0=a")
	w.write(job("  suspend: true\n", "a"))
	w.settle()
	w.want("")
}

func cronJob(spec string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tick}\nspec:\n  schedule: \"*/5 * * * *\"\n" + spec +
		"  jobTemplate:\n    spec:\n      template:\n        spec: {restartPolicy: Never, containers: [{name: c, image: a}]}\n"
}

// at sets the clock to a minute of the day and expands.
func (w *world) at(hour, minute int) string {
	w.t.Helper()
	w.now = time.Date(w.now.Year(), w.now.Month(), w.now.Day(), hour, minute, 1, 0, time.Local)
	w.settle()
	return w.String()
}

// runs counts the running and the ended pods.
func (w *world) runs() (running, ended int) {
	for _, o := range w.pods {
		if o.Status.Status.Phase == corev1.PodRunning {
			running++
		} else {
			ended++
		}
	}
	return running, ended
}

func (w *world) endAll(phase corev1.PodPhase) {
	w.t.Helper()
	for _, o := range w.pods {
		if o.Status.Status.Phase == corev1.PodRunning {
			o.Status.Status.Phase = phase
		}
	}
	w.settle()
}

func (w *world) wantRuns(running, ended int) {
	w.t.Helper()
	if r, e := w.runs(); r != running || e != ended {
		w.t.Errorf("%d run and %d have ended, want %d and %d: %s", r, e, running, ended, w)
	}
}

func TestACronJobRunsOnTimeAndKeepsItsHistory(t *testing.T) {
	w := newWorld(t, cronJob("  successfulJobsHistoryLimit: 2\n"))
	w.settle()
	w.wantRuns(0, 0) // not for times before its creation
	if want := time.Date(2026, 11, 21, 12, 5, 0, 0, time.Local); !w.result.Next.Equal(want) {
		t.Errorf("looks again at %v", w.result.Next)
	}
	for i := range 4 {
		w.at(12, 5+5*i)
		w.wantRuns(1, min(i, 2))
		w.endAll(corev1.PodSucceeded)
	}
	w.wantRuns(0, 2)
	w.restart()
	w.settle()
	w.wantRuns(0, 2)
	w.at(18, 3) // many were missed: only the latest is run
	w.wantRuns(1, 2)
}

func TestConcurrencyPolicies(t *testing.T) {
	for policy, running := range map[string]int{"Allow": 2, "Forbid": 1, "Replace": 1} {
		w := newWorld(t, cronJob("  concurrencyPolicy: "+policy+"\n"))
		w.settle()
		first := w.at(12, 5)
		second := w.at(12, 10)
		w.wantRuns(running, 0)
		if (policy == "Forbid") != (first == second) {
			t.Errorf("%s: %s, then %s", policy, first, second)
		}
	}
}

func TestLateRunIsSkippedAfterStartingDeadline(t *testing.T) {
	w := newWorld(t, cronJob("  startingDeadlineSeconds: 60\n"))
	w.settle()
	w.at(12, 7)
	w.wantRuns(0, 0)
	w.at(12, 10)
	w.wantRuns(1, 0)
}

func TestSuspendedCronJobStartsNoJob(t *testing.T) {
	w := newWorld(t, cronJob("  suspend: true\n"))
	w.settle()
	w.at(12, 5)
	w.wantRuns(0, 0)
}

func TestUnsetClockStartsNoJob(t *testing.T) {
	w := newWorld(t, cronJob(""))
	w.settle()
	w.at(12, 5)
	w.endAll(corev1.PodSucceeded)
	w.restart()
	right := w.now
	w.now = time.Date(1970, 1, 1, 0, 5, 1, 0, time.Local)
	w.settle()
	w.wantRuns(0, 1)
	w.now = right.Add(10 * time.Second)
	w.settle()
	w.wantRuns(0, 1) // it has already run for 12:05
	w.at(12, 10)
	w.wantRuns(1, 1)
}

func TestScheduleRecoversFromClockFarAhead(t *testing.T) {
	w := newWorld(t, cronJob(""))
	w.now = time.Date(2040, 1, 1, 0, 4, 0, 0, time.Local)
	w.settle()
	w.now = w.now.Add(2 * time.Minute)
	w.settle()
	w.wantRuns(1, 0)
	w.endAll(corev1.PodSucceeded)
	w.now = time.Date(2026, 11, 21, 12, 1, 0, 0, time.Local)
	w.settle()
	w.at(12, 5)
	w.wantRuns(1, 1)
}

func TestStateIsKeptWhileDocumentMayComeBack(t *testing.T) {
	w := newWorld(t, job("", "a"))
	w.settle()
	w.end(corev1.PodSucceeded, "j-0")
	w.settle()
	w.restart()
	w.x.Expand(w.now, model.Desired{}, nil)
	if w.x.Idle() {
		t.Error("a source that was not read yet made a Job forget")
	}
	w.x.Expand(w.now, model.Desired{Reported: everySource()}, nil)
	if !w.x.Idle() {
		t.Error("the notes of a removed Job stay")
	}
}

// TestNodePolicyIsNotCheckedAgain: the policy is that of the source of the document.
func TestNodePolicyIsNotCheckedAgain(t *testing.T) {
	const text = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}},
 spec: {securityContext: {sysctls: [{name: net.core.somaxconn, value: "9"}]}, containers: [{name: c, image: i}]}}}}`
	w := newWorld(t, "# nothing yet\n")
	policy := policy.Policy{AllowedUnsafeSysctls: []string{"net.core.somaxconn"}}
	c, err := decode.All("w.yaml", []byte("---\n"+text), decode.Options{Source: "file", Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	w.docs = c.Workloads
	w.step()
	w.pod("web-0")
}

// A file that has not been read since startup contains a Deployment and a Job that run; a source of lower precedence contains them too.
func TestLowerSourceDoesNotReplaceRunningWorkload(t *testing.T) {
	w := newWorld(t, app("Deployment", "  replicas: 2\n", "a")+"---\n"+job("", "a"))
	w.settle()
	w.ready("web-0", "web-1")
	w.end(corev1.PodSucceeded, "j-0")
	w.settle()
	before := w.String()
	higher := w.docs[0].Origin
	lower := func(text string) []*manifests.Object {
		t.Helper()
		c, err := decode.All("lower.yaml", []byte(text), decode.Options{Source: "applied"})
		if err != nil {
			t.Fatal(err)
		}
		return c.Workloads
	}
	docs := lower(app("Deployment", "  replicas: 5\n", "old") + "---\n" + job("", "old") + "---\n" + strings.ReplaceAll(app("Deployment", "  replicas: 1\n", "new"), "name: web", "name: other"))
	var seen []Observed
	for _, o := range w.pods {
		seen = append(seen, *o)
	}
	w.restart()
	read := false
	expand := func() string {
		d := model.Desired{Workloads: docs, Order: []string{higher.Source, "applied"}, Reported: everySource()}
		if !read {
			d.Unknown = map[string][]string{higher.Source: {higher.File}}
		}
		r := w.x.Expand(w.now, d, seen)
		var names []string
		for _, p := range r.Pods {
			names = append(names, p.Object.Name+"="+p.Object.Spec.Containers[0].Image)
		}
		return strings.Join(names, " ")
	}
	// One of the pods was updated to the content of the lower source before the agent started.
	moved := *seen[0].Recorded
	moved.Origin = docs[0].Origin
	seen[0].Recorded = &moved
	if got := expand(); got != "web-0=a web-1=a j-0=a other-0=new" {
		t.Errorf("made: %s; there were %s", got, before)
	}
	if j := w.x.state.Jobs["Job default/j"]; j == nil || j.Finished != saved.Complete {
		t.Errorf("the notes of the Job: %+v", j)
	}
	read = true
	if got := expand(); !strings.Contains(got, "web-4=old") || !strings.Contains(got, "j-0=old") {
		t.Errorf("once it is known that they are gone: %s", got)
	}
}

// everySource reports all sources of the tests as read.
func everySource() map[string]bool {
	return map[string]bool{"": true, "file": true, "http": true, "applied": true, "test": true}
}
