package kubeview

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/endpoints"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/runtimetest"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
)

// expanding is a world whose workloads are expanded as in the daemon.
type expanding struct {
	*world
	expander *workload.Expander
	desired  model.Desired
}

func expand(t *testing.T, w *world, d model.Desired) *expanding {
	t.Helper()
	x, err := workload.NewExpander(saved.NewStore(filepath.Join(t.TempDir(), "workloads.json")), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.state.Publish(d)
	return &expanding{w, x, d}
}

// step expands once, and waits until the pods are as they then are.
func (e *expanding) step(wait time.Duration) {
	var pods []workload.Observed
	for _, s := range e.pool.Pods() {
		pods = append(pods, workload.Observed{Status: s.Pod, Recorded: s.Recorded})
	}
	r := e.expander.Expand(time.Now(), e.desired, pods)
	e.state.Workloads.SetExpanded(e.expander.State(), r.Claims)
	to := e.desired
	to.Pods = r.Pods
	e.state.Rollouts.Update(to, e.pool.Update)
	time.Sleep(wait)
	synctest.Wait()
}

func jobYAML(kind, name, spec, script string) string {
	template := fmt.Sprintf("{spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [sh, -c, %q]}]}}", script)
	if kind == "CronJob" {
		return fmt.Sprintf("---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: %s}\nspec: {schedule: '* * * * *', %s jobTemplate: {metadata: {labels: {a: b}}, spec: {template: %s}}}\n", name, spec, template)
	}
	return fmt.Sprintf("---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec: {%s template: %s}\n", name, spec, template)
}

func TestJobUntilItIsComplete(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		e := expand(t, w, desired(t, api, jobYAML("Job", "j", "", runtimetest.ScriptSucceed)))
		began := time.Now()
		for range 3 {
			e.step(5 * time.Second)
		}
		j := get[*batchv1.Job](w, "batch/v1/Job", "j")
		if j.Status.Succeeded != 1 || j.Status.CompletionTime == nil || !j.Status.StartTime.Time.Equal(began) || len(j.Status.Conditions) != 2 || j.Status.Conditions[1].Type != batchv1.JobComplete {
			t.Errorf("%+v", j.Status)
		}
		if *j.Spec.Completions != 1 || *j.Spec.BackoffLimit != 6 || j.Generation != 1 {
			t.Errorf("%+v", j.Spec)
		}
		selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		pods := w.all("Pod")
		if len(pods) != 1 || !selector.Matches(labels.Set(pods[0].GetLabels())) || !metav1.IsControlledBy(pods[0], j) {
			t.Errorf("selector %s, pods %+v", selector, pods)
		}
	})
}

// TestPodsOfADeletedJobAreNotThoseOfTheNextOne: they have the uid of the old Job until they are gone.
func TestPodsOfADeletedJobAreNotThoseOfTheNextOne(t *testing.T) {
	given := func(d model.Desired, uid types.UID) model.Desired {
		for _, o := range d.Workloads {
			o.Given = &manifests.ServerMetadata{UID: uid}
			o.Object.SetUID(uid)
		}
		return d
	}
	bubble(t, nil, func(t *testing.T, w *world) {
		text := jobYAML("Job", "j", "", runtimetest.ScriptStubborn)
		e := expand(t, w, given(desired(t, api, text), "old"))
		e.step(5 * time.Second)
		if j := get[*batchv1.Job](w, "batch/v1/Job", "j"); j.UID != "old" || j.Status.Active != 1 {
			t.Errorf("%+v", j)
		}
		e.desired = given(desired(t, api, text), "new")
		e.state.Publish(e.desired)
		for range 2 {
			j, pod := get[*batchv1.Job](w, "batch/v1/Job", "j"), w.all("Pod")[0]
			if j.UID != "new" || j.Status.Active != 0 || len(j.Status.Conditions) != 0 || !metav1.IsControlledBy(pod, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "old"}}) {
				t.Errorf("%+v\n%+v", j, pod.GetOwnerReferences())
			}
			e.step(5 * time.Second)
		}
		time.Sleep(time.Minute)
		e.step(5 * time.Second)
		if j, pod := get[*batchv1.Job](w, "batch/v1/Job", "j"), w.all("Pod")[0]; j.Status.Active != 1 || j.Status.Failed != 0 || !metav1.IsControlledBy(pod, j) {
			t.Errorf("%+v\n%+v", j, pod.GetOwnerReferences())
		}
	})
}

func TestCronJobHasJobsOfItsRuns(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		time.Sleep(time.Until(time.Date(2027, 1, 1, 0, 0, 30, 0, time.UTC))) // a clock that counts as set
		e := expand(t, w, desired(t, api, jobYAML("CronJob", "c", "", runtimetest.ScriptServe)))
		e.step(time.Minute)
		e.step(5 * time.Second)
		c := get[*batchv1.CronJob](w, "batch/v1/CronJob", "c")
		jobs := w.all("batch/v1/Job")
		if len(jobs) != 1 || len(c.Status.Active) != 1 || c.Status.LastScheduleTime == nil || *c.Spec.SuccessfulJobsHistoryLimit != 3 {
			t.Fatalf("%+v, %+v", jobs, c)
		}
		j := jobs[0].(*batchv1.Job)
		if j.UID != c.Status.Active[0].UID || !metav1.IsControlledBy(j, c) || j.Labels["a"] != "b" || j.Status.Active != 1 || !j.CreationTimestamp.Equal(c.Status.LastScheduleTime) {
			t.Errorf("%+v", j)
		}
		if p := w.all("Pod")[0]; !metav1.IsControlledBy(p, j) {
			t.Errorf("%+v", p.GetOwnerReferences())
		}
	})
}

const othersYAML = `---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: i, command: [sh, -c, "` + runtimetest.ScriptServe + `"]}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: c, image: i, command: [sh, -c, "` + runtimetest.ScriptServe + `"]}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: set}
spec:
  selector: {matchLabels: {app: set}}
  template: {metadata: {labels: {app: set}}, spec: {containers: [{name: c, image: i, command: [sh, -c, "` + runtimetest.ScriptServe + `"]}]}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  template: {metadata: {labels: {app: old}}, spec: {containers: [{name: c, image: i, command: [sh, -c, "` + runtimetest.ScriptServe + `"]}]}}
`

func TestOtherWorkloads(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		d := desired(t, api, othersYAML)
		for i, doc := range d.Workloads {
			doc.Given = &manifests.ServerMetadata{UID: types.UID(fmt.Sprint("uid-", i)), Generation: int64(i + 5)}
		}
		e := expand(t, w, d)
		for range 3 {
			e.step(5 * time.Second)
		}
		s := get[*appsv1.StatefulSet](w, "apps/v1/StatefulSet", "db")
		if s.Status.ReadyReplicas != 1 || s.Status.CurrentRevision != s.Status.UpdateRevision || s.Status.ObservedGeneration != 5 || s.Spec.PodManagementPolicy != appsv1.OrderedReadyPodManagement || *s.Spec.UpdateStrategy.RollingUpdate.Partition != 0 {
			t.Errorf("%+v", s)
		}
		if c := get[*corev1.PersistentVolumeClaim](w, "PersistentVolumeClaim", "data-db-0"); c.Status.Phase != corev1.ClaimBound {
			t.Errorf("%+v", c)
		}
		a := get[*appsv1.DaemonSet](w, "apps/v1/DaemonSet", "agent")
		if a.Status.NumberReady != 1 || a.Status.ObservedGeneration != 6 || a.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal != 1 {
			t.Errorf("%+v", a)
		}
		r := get[*appsv1.ReplicaSet](w, "apps/v1/ReplicaSet", "set")
		if r.Status.ReadyReplicas != 1 || r.Status.ObservedGeneration != 7 || *r.Spec.Replicas != 1 {
			t.Errorf("%+v", r)
		}
		c := get[*corev1.ReplicationController](w, "ReplicationController", "old")
		if c.Status.ReadyReplicas != 1 || c.Status.ObservedGeneration != 8 || c.Spec.Selector["app"] != "old" || c.UID != "uid-3" {
			t.Errorf("%+v", c)
		}
		owners := map[string]kinds.Object{"db-0": s, "agent-0": a, "set-0": r, "old-0": c}
		for _, p := range w.all("Pod") {
			if o := owners[p.GetName()]; o == nil || !metav1.IsControlledBy(p, o) || p.GetOwnerReferences()[0].APIVersion != o.GetObjectKind().GroupVersionKind().GroupVersion().String() {
				t.Errorf("%s: %+v", p.GetName(), p.GetOwnerReferences())
			}
			delete(owners, p.GetName())
		}
		if len(owners) > 0 {
			t.Errorf("no pods of %v", owners)
		}
	})
}

// TestADaemonSetForOtherNodesWantsNoPods: otherwise kubectl rollout status and helm --wait would wait for its pod forever.
func TestADaemonSetForOtherNodesWantsNoPods(t *testing.T) {
	matches := true
	selects := func(c *Config) {
		c.Matches = func(spec *corev1.PodSpec) bool { return spec.Containers[0].Name == "c" && matches }
	}
	bubble(t, selects, func(t *testing.T, w *world) {
		e := expand(t, w, desired(t, api, othersYAML))
		for range 3 {
			e.step(5 * time.Second)
		}
		for _, want := range []appsv1.DaemonSetStatus{
			{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1, UpdatedNumberScheduled: 1},
			{NumberMisscheduled: 1},
		} {
			s := get[*appsv1.DaemonSet](w, "apps/v1/DaemonSet", "agent").Status
			if s.ObservedGeneration = 0; !reflect.DeepEqual(s, want) {
				t.Errorf("%+v, want %+v", s, want)
			}
			if r := get[*appsv1.StatefulSet](w, "apps/v1/StatefulSet", "db"); r.Status.ReadyReplicas != 1 {
				t.Errorf("%+v", r.Status)
			}
			matches = false
		}
	})
}

// TestPodsOfWhichSomethingIsLeft: as they were last, and terminating.
func TestPodsOfWhichSomethingIsLeft(t *testing.T) {
	own := &kept{last: map[types.UID]*metav1.ObjectMeta{}}
	bubble(t, func(c *Config) { c.Kept = own }, func(t *testing.T, w *world) {
		w.publish(desired(t, files, podYAML("web", "")))
		w.settle()
		p := get[*corev1.Pod](w, "Pod", "web")
		at := metav1.Now()
		left := func(uid types.UID) *corev1.Pod {
			b := &build{view: w.View, now: time.Now(), objects: map[*kinds.Kind][]kinds.Object{}, namespaces: map[string]bool{}, taken: map[memoKey]bool{}}
			w.pods.begin()
			gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, DeletionTimestamp: &at}}
			b.leavingPod(&node.PodView{Pod: gone})
			return b.shownPods[0]
		}
		first := left(p.UID)
		if first.DeletionTimestamp == nil || *first.DeletionGracePeriodSeconds != 30 || first.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			t.Errorf("%+v", first)
		}
		if again := left(p.UID); again != first {
			t.Error("it is another object")
		}
		own.last[p.UID] = &metav1.ObjectMeta{Labels: map[string]string{"late": "yes"}}
		if late := left(p.UID); late.Labels["late"] != "yes" || first.Labels["late"] != "" {
			t.Errorf("%+v, and before %+v", late.ObjectMeta, first.ObjectMeta)
		}
		if other := left("another"); other.UID != "another" || other.Status.Phase != "" {
			t.Errorf("%+v", other)
		}
	})
}

// views returns a View of many running pods, of which half are those of a Service.
func views(tb testing.TB, count int) *View {
	tb.Helper()
	var pods []node.PodView
	for i := range count {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p-%d", i), UID: types.UID(fmt.Sprint("uid-", i)), Labels: map[string]string{"half": fmt.Sprint(i % 2)}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		pods = append(pods, node.PodView{Pod: p, Origin: manifests.Origin{Source: "file", File: "/m/a.yaml", Line: i}, Manifest: "x"})
	}
	w := newWorld(&testing.T{}, nil)
	w.snapshot = func() ([]node.PodView, []node.PodView, error) { return pods, nil, nil }
	var d model.Desired
	for i := range count {
		d.Objects = append(d.Objects, &manifests.Object{Kind: "ConfigMap", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c-%d", i)}}, Origin: manifests.Origin{Source: "file", File: "/m/c.yaml"}})
	}
	d.Objects = append(d.Objects, &manifests.Object{Kind: "Service", Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"half": "1"}, Ports: []corev1.ServicePort{{Port: 80}}}}})
	w.state.Publish(d)
	return w.View
}

// BenchmarkObjects measures a change while a client watches: 1,000 pods and 1,000 ConfigMaps.
func BenchmarkObjects(b *testing.B) {
	v := views(b, 1000)
	v.Objects(b.Context())
	for b.Loop() {
		v.Objects(b.Context())
	}
}

func TestManyPodsAreShownQuickly(t *testing.T) {
	v := views(t, 1000)
	objects, _ := v.Objects(t.Context())
	if n := len(objects[kindNamed(t, "Pod")]); n != 1000 {
		t.Fatalf("%d pods", n)
	}
	allocs := testing.AllocsPerRun(3, func() { v.Objects(t.Context()) })
	if allocs > 40*1000 {
		t.Errorf("%.0f allocations to find out that nothing has changed", allocs)
	}
	if s := objects[kindNamed(t, "discovery.k8s.io/v1/EndpointSlice")]; len(s) != 5 || !strings.HasPrefix(s[0].GetName(), "s-") {
		t.Errorf("%d slices", len(s))
	}
}

// TestEndpointsOfManyServicesAreLimited: their number is that of pairs of Services and pods.
func TestEndpointsOfManyServicesAreLimited(t *testing.T) {
	v := views(t, 1000) // half of them are behind each Service
	d, _ := v.cfg.State.Desired()
	for i := range 200 {
		d.Objects = append(d.Objects, &manifests.Object{Kind: "Service", Object: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("many-", i)},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"half": "1"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}})
	}
	v.cfg.State.Publish(d)
	objects, _ := v.Objects(t.Context())
	addresses, truncated := 0, 0
	for _, o := range objects[kindNamed(t, "Endpoints")] {
		whole := o.GetAnnotations()[corev1.EndpointsOverCapacity] == ""
		n := 0
		for _, subset := range o.(*corev1.Endpoints).Subsets {
			n += len(subset.Addresses)
		}
		if whole != (n == 500) {
			t.Errorf("%s has %d addresses, annotations %v", o.GetName(), n, o.GetAnnotations())
		}
		if addresses += n; !whole {
			truncated++
		}
	}
	sliced := 0
	for _, o := range objects[kindNamed(t, "discovery.k8s.io/v1/EndpointSlice")] {
		sliced += len(o.(*discoveryv1.EndpointSlice).Endpoints)
	}
	if addresses != endpoints.Max || sliced != endpoints.Max || truncated != 201-endpoints.Max/500 {
		t.Errorf("%d addresses in Endpoints, %d of them truncated, %d in slices", addresses, truncated, sliced)
	}
}

// TestManyServicesAreShownQuickly: what has not changed is not built again.
func TestManyServicesAreShownQuickly(t *testing.T) {
	const services, pods = 3000, 24
	v := views(t, pods)
	d, _ := v.cfg.State.Desired()
	for i := range services {
		d.Objects = append(d.Objects, &manifests.Object{Kind: "Service", Object: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("many-", i)},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"half": "1"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}})
	}
	v.cfg.State.Publish(d)
	before, _ := v.Objects(t.Context())
	allocs := testing.AllocsPerRun(3, func() { v.Objects(t.Context()) })
	if allocs > 40*services {
		t.Errorf("%.0f allocations for each Service to find out that nothing has changed", allocs/services)
	}
	after, _ := v.Objects(t.Context())
	for _, kind := range []string{"Endpoints", "discovery.k8s.io/v1/EndpointSlice"} {
		if k := kindNamed(t, kind); len(before[k]) != services+1 || !slices.Equal(before[k], after[k]) {
			t.Errorf("%d and %d %s, not the same", len(before[k]), len(after[k]), kind)
		}
	}
}

// TestADeploymentSaysWhichPodIsNotRun: the name of its pod is that of another one.
func TestADeploymentSaysWhichPodIsNotRun(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		d := desired(t, api, deploymentYAML)
		w.publish(d)
		w.settle()
		failure := func() string {
			for _, c := range get[*appsv1.Deployment](w, "apps/v1/Deployment", "web").Status.Conditions {
				if c.Type == appsv1.DeploymentReplicaFailure {
					return fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message)
				}
			}
			return ""
		}
		if got := failure(); got != "" {
			t.Error(got)
		}
		pod, by := manifests.Key{Namespace: "default", Name: "web-1"}, manifests.Origin{File: "/m/other.yaml", Line: 3}
		w.state.Workloads.SetClashes([]workload.Clash{{Pod: pod, At: by, By: by}, {Pod: pod, At: d.Workloads[0].Origin, By: by}})
		if got := failure(); got != "True FailedCreate: pod default/web-1 is not run: another pod of that name is defined in /m/other.yaml:3; rename one of them" {
			t.Error(got)
		}
		w.state.Workloads.SetClashes(nil)
		if got := failure(); got != "" {
			t.Error(got)
		}
	})
}
