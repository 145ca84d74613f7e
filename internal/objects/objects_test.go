package objects

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

func TestWordsMeanWhatTheyMeanToKubectl(t *testing.T) {
	for word, want := range map[string]string{
		"po": "Pod", "pods": "Pod", "deploy": "Deployment", "deployments.apps": "Deployment", "RS": "ReplicaSet", "sts": "StatefulSet", "ds": "DaemonSet", "cj": "CronJob",
		"svc": "Service", "cm": "ConfigMap", "no": "Node", "nodes": "Node", "ev": "Event", "jobs": "Job", "pvc": "PersistentVolumeClaim", "storageclasses": "StorageClass",
	} {
		if kind, namespaced, ok := Find(word); !ok || kind != want || namespaced == slices.Contains([]string{"Node", "StorageClass"}, want) {
			t.Errorf("%s is %s (%t), want %s", word, kind, namespaced, want)
		}
	}
	if kind, _, ok := Find("widgets"); ok {
		t.Errorf("widgets are %s", kind)
	}
}

// podOf is a pod of a workload.
func podOf(kind, name string, phase corev1.PodPhase, revision string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"pod-template-hash": revision, "app": "web"},
		OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "web", Controller: &yes}},
	}, Status: corev1.PodStatus{Phase: phase}}
	if phase == corev1.PodRunning {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

// shownAs is an object as a client has it.
func shownAs(t *testing.T, f Facts, kind string, o metav1.Object) Item {
	t.Helper()
	before, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(f.Show(&manifests.Object{Object: o, Kind: kind}, map[string]string{"monopod.dev/source": "a.yaml:3"}))
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := json.Marshal(o); string(after) != string(before) {
		t.Errorf("the object was changed: %s", after)
	}
	item, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

func TestTheStateOfAWorkloadIsThatOfItsPods(t *testing.T) {
	three, one := int32(3), int32(1)
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	of := func(kind string, more ...*corev1.Pod) Facts {
		return Facts{Pods: append(more, podOf(kind, "web-0", corev1.PodRunning, "new"), podOf(kind, "web-1", corev1.PodPending, "old"), podOf("Other", "x", corev1.PodRunning, "new")), Revision: func(corev1.PodTemplateSpec) string { return "new" }}
	}
	ended := of("Job", podOf("Job", "web-2", corev1.PodSucceeded, "new"), podOf("Job", "web-3", corev1.PodFailed, "new"))
	finished := ended
	finished.Ends = map[string]string{"default/web": "Complete"}
	ran := of("CronJob")
	at := metav1.NewTime(time.Date(2026, 11, 21, 11, 0, 0, 0, time.Local))
	ran.LastRuns = map[string]time.Time{"default/web": at.Time}
	elsewhere := of("DaemonSet")
	elsewhere.Matches = func(s *corev1.PodSpec) bool { return s.NodeSelector["disk"] == "" }
	ssd := appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}}}
	available := func(s corev1.ConditionStatus) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: s}}
	}
	active := func(names ...string) (all []corev1.ObjectReference) {
		for _, name := range names {
			all = append(all, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name})
		}
		return all
	}
	everywhere := appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1, UpdatedNumberScheduled: 1}
	for _, c := range []struct {
		kind   string
		object metav1.Object
		facts  Facts
		want   any
	}{
		{"Deployment", &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three}}, of("Deployment"), appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UnavailableReplicas: 2, Conditions: available("False")}},
		{"Deployment", &appsv1.Deployment{ObjectMeta: meta}, Facts{}, appsv1.DeploymentStatus{UnavailableReplicas: 1, Conditions: available("False")}},
		{"ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}, of("ReplicaSet"), appsv1.ReplicaSetStatus{Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 1, AvailableReplicas: 1}},
		{"ReplicationController", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}, of("ReplicationController"), corev1.ReplicationControllerStatus{Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 1, AvailableReplicas: 1}},
		{"StatefulSet", &appsv1.StatefulSet{ObjectMeta: meta, Status: appsv1.StatefulSetStatus{ReadyReplicas: 9}}, of("StatefulSet"), appsv1.StatefulSetStatus{Replicas: 2, CurrentReplicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}},
		{"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta}, of("DaemonSet"), everywhere},
		{"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta}, elsewhere, everywhere},
		{"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta, Spec: ssd}, elsewhere, appsv1.DaemonSetStatus{}},
		{"Job", &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: &three}}, ended, batchv1.JobStatus{Active: 2, Ready: &one, Succeeded: 1, Failed: 1}},
		{"Job", &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: &three}}, finished, batchv1.JobStatus{Ready: &one, Succeeded: 3, Failed: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "True"}}}},
		{"CronJob", &batchv1.CronJob{ObjectMeta: meta}, ran, batchv1.CronJobStatus{LastScheduleTime: &at, Active: active("web-0", "web-1")}},
	} {
		item := shownAs(t, c.facts, c.kind, c.object)
		if got := reflect.ValueOf(item.Object).Elem().FieldByName("Status").Interface(); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %s", c.kind, cmp.Diff(c.want, got))
		}
		if source := item.Object.GetAnnotations()["monopod.dev/source"]; source != "a.yaml:3" {
			t.Errorf("%s is written in %q", c.kind, source)
		}
	}
}

func TestAServiceOwnsWhatItSelects(t *testing.T) {
	pod := podOf("Deployment", "web-0", corev1.PodRunning, "")
	for want, selector := range map[bool]map[string]string{true: {"app": "web"}, false: {}} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Spec: corev1.ServiceSpec{Selector: selector}}
		if got := Owns("Service", s, pod); got != want {
			t.Errorf("%v: %t", selector, got)
		}
	}
}

const evil = "a\x1b[2J\u009b\u202e\nFORGED"

func TestOutputsEscapeStringsAndKeepTheirLayout(t *testing.T) {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": evil, "labels": map[string]any{evil: evil}}, "n": 3, "list": []any{"x", evil}, "nil": nil})
	if err != nil {
		t.Fatal(err)
	}
	const escaped = `a\x1b[2J\x9b\u202e\nFORGED`
	for expression, want := range map[string]string{
		"metadata.name": escaped, ".n": "3", `{.n}{"\n\t"}{.metadata.name}`: "3\n\t" + escaped, "{.missing}": "", `{range .list[*]}{@}{"\n"}{end}`: "x\n" + escaped + "\n",
	} {
		j, err := ParseJSONPath(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := j.Text(raw); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", expression, got, err, want)
		}
	}
	j, err := ParseJSONPath("{.metadata}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := j.Text(raw); err != nil || strings.ContainsAny(got, "\x1b\u009b\u202e\n") {
		t.Errorf("%q, %v", got, err)
	}
	c, err := ParseColumns("NAME:.metadata.name,LIST:.list[*],N:n,GONE:.x,NIL:.nil")
	if err != nil {
		t.Fatal(err)
	}
	row, err := c.Row(raw) // a table escapes its cells
	if want := []string{evil, "x," + evil, "3", none, none}; err != nil || !slices.Equal(row, want) {
		t.Errorf("%q, %v, want %q", row, err, want)
	}
	for _, bad := range []string{"NAME", "NAME:", ":.x", "A:.b,"} {
		if _, err := ParseColumns(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
