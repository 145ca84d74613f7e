package objects

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/kinds"
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

// shownAs is the row of an object as a client shows it.
func shownAs(t *testing.T, f Facts, kind string, o metav1.Object, wide bool) (Item, string) {
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
	row := Row(item, time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), wide, "a.yaml:3")
	if head := Header(kind, wide); len(head) != len(row) {
		t.Errorf("%s: %d titles for %d cells", kind, len(head), len(row))
	}
	return item, strings.Join(row, "|")
}

func TestTheStateOfAWorkloadIsThatOfItsPods(t *testing.T) {
	three, yes, zone := int32(3), true, "UTC"
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	of := func(kind string, more ...*corev1.Pod) Facts {
		return Facts{Pods: append(more, podOf(kind, "web-0", corev1.PodRunning, "new"), podOf(kind, "web-1", corev1.PodPending, "old"), podOf("Other", "x", corev1.PodRunning, "new")), Revision: func(corev1.PodTemplateSpec) string { return "new" }}
	}
	ended := of("Job", podOf("Job", "web-2", corev1.PodSucceeded, "new"), podOf("Job", "web-3", corev1.PodFailed, "new"))
	finished := ended
	finished.Ends = map[string]string{"default/web": "Complete"}
	ran := of("CronJob")
	ran.LastRuns = map[string]time.Time{"default/web": time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)}
	elsewhere := of("DaemonSet")
	elsewhere.Matches = func(s *corev1.PodSpec) bool { return s.NodeSelector["disk"] == "" }
	ssd := appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}}}
	next := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC).Local().Format("2006-01-02 15:04") + " (in 60m)"
	for _, c := range []struct {
		kind   string
		object metav1.Object
		facts  Facts
		want   string
	}{
		{"Deployment", &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three}}, of("Deployment"), "1/3|1|1"},
		{"Deployment", &appsv1.Deployment{ObjectMeta: meta}, Facts{}, "0/1|0|0"},
		{"ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}, of("ReplicaSet"), "3|2|1"},
		{"ReplicationController", &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three}}, of("ReplicationController"), "3|2|1"},
		{"StatefulSet", &appsv1.StatefulSet{ObjectMeta: meta, Status: appsv1.StatefulSetStatus{ReadyReplicas: 9}}, of("StatefulSet"), "1/1"},
		{"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta}, of("DaemonSet"), "1|1|1|1|1"},
		{"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta}, elsewhere, "1|1|1|1|1"},
		{"DaemonSet", &appsv1.DaemonSet{ObjectMeta: meta, Spec: ssd}, elsewhere, "0|0|0|0|0"},
		{"Job", &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: &three}}, ended, "Running|1/3"},
		{"Job", &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Completions: &three}}, finished, "Complete|3/3"},
		{"Job", &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Suspend: &yes}}, Facts{}, "Suspended|0/1"},
		{"CronJob", &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "0 * * * *", TimeZone: &zone}}, ran, "0 * * * *|UTC|False|2|60m|" + next},
		{"CronJob", &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "nonsense"}}, Facts{}, "nonsense|<none>|False|0|<none>|<invalid>"},
		{"Service", &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}, {Port: 53, Protocol: "UDP", NodePort: 3000}}}}, Facts{}, "ClusterIP|<none>|80/TCP,53:3000/UDP"},
		{"Secret", &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"password": []byte("hunter2")}}, Facts{}, "Opaque|1"},
	} {
		item, row := shownAs(t, c.facts, c.kind, c.object, false)
		if row != "default|web|"+c.want {
			t.Errorf("%s: %s, want %s", c.kind, row, c.want)
		}
		if strings.Contains(string(item.Raw), "aHVudGVy") {
			t.Errorf("the value of a secret is shown: %s", item.Raw)
		}
		if _, wide := shownAs(t, c.facts, c.kind, c.object, true); !strings.HasSuffix(wide, "|a.yaml:3") {
			t.Errorf("%s: %s", c.kind, wide)
		}
	}
}

// TestEachKindHasACellForEachTitle: describe reads them side by side.
func TestEachKindHasACellForEachTitle(t *testing.T) {
	for _, kind := range append(kinds.All(), Node) {
		item, err := Decode([]byte(`{"kind": "` + kind + `", "metadata": {"name": "a"}}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, wide := range []bool{false, true} {
			if kind == "Pod" { // a table of its own
				continue
			}
			if head, row := Header(kind, wide), Row(item, time.Time{}, wide, ""); len(head) != len(row) {
				t.Errorf("%s: %d titles for %d cells", kind, len(head), len(row))
			}
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
