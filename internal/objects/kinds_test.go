package objects

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/kinds"
)

func TestNamesOfObjects(t *testing.T) {
	for raw, want := range map[string]string{
		`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}`:                                        "pod/a",
		`{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web"}}`:                          "deployment.apps/web",
		`{"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "fast"}}`:             "storageclass.storage.k8s.io/fast",
		`{"kind": "CronJob", "apiVersion": "batch/v1", "metadata": {"name": "n"}, "spec": {"schedule": "x y"}}`: "cronjob.batch/n",
	} {
		item, err := Decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := item.Name(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, raw := range []string{"", "[]", `{"kind": "Pod", "spec": 1}`} {
		if item, err := Decode([]byte(raw)); err == nil {
			t.Errorf("%q is %+v", raw, item)
		}
	}
}

func TestConditionsAndWorkloadsAreOfKindsThatExist(t *testing.T) {
	for _, kind := range InAll() {
		if kind != "Pod" && kind != "Service" && !IsWorkload(kind) {
			t.Errorf("%s is shown by `get all` and is no workload", kind)
		}
	}
	for kind, info := range kinds.Known().ByKind {
		if IsWorkload(kind) != (info.Role == kinds.Workload) {
			t.Errorf("%s is a workload: %t", kind, IsWorkload(kind))
		}
		if (len(Conditions(kind)) > 0) != IsWorkload(kind) && kind != "CronJob" {
			t.Errorf("%s has the conditions %v", kind, Conditions(kind))
		}
	}
	if !slices.Contains(Conditions(Node), "Ready") || Conditions("ConfigMap") != nil {
		t.Error("wrong conditions")
	}
}

func TestPodsBelongToTheirControllerAndNamespace(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	pod := podOf("Job", "web-0", corev1.PodRunning, "")
	elsewhere := pod.DeepCopy()
	elsewhere.Namespace = "other"
	orphan := pod.DeepCopy()
	orphan.OwnerReferences = nil
	for _, tt := range []struct {
		name, kind string
		pod        *corev1.Pod
		want       bool
	}{
		{"its own", "Job", pod, true},
		{"one of another kind of the same name", "CronJob", pod, false},
		{"one of another namespace", "Job", elsewhere, false},
		{"one of no controller", "Job", orphan, false},
	} {
		if got := Owns(tt.kind, &batchv1.Job{ObjectMeta: meta}, tt.pod); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web", "tier": ""}}}
	if Owns("Service", service, pod) {
		t.Error("a label that the pod does not have is taken for an empty one")
	}
}

func TestShowHidesSecretsAndNamesTheSource(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: `{"data":{"k":"aHVudGVyMg=="}}`}}, Data: map[string][]byte{"k": []byte("hunter2")}}
	shown, ok := Facts{}.Show(&manifests.Object{Object: secret, Kind: "Secret"}, map[string]string{"monopod.dev/source": "a.yaml:3"}).(*corev1.Secret)
	if !ok {
		t.Fatal("it is no Secret any longer")
	}
	if diff := cmp.Diff(map[string][]byte{"k": {}}, shown.Data); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "b", "monopod.dev/source": "a.yaml:3"}, shown.Annotations); diff != "" {
		t.Error(diff)
	}
	if string(secret.Data["k"]) != "hunter2" || len(secret.Annotations) != 2 {
		t.Errorf("the Secret itself was changed: %v", secret)
	}
	raw, err := json.Marshal(shown)
	if err != nil || !strings.Contains(string(raw), `"kind":"Secret"`) {
		t.Errorf("%s, %v", raw, err)
	}
}
