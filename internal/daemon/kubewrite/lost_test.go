package kubewrite

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/kubeapi"
	"monopod/node/localapi"
)

// TestNoWriteIsLost: each write is decided on the visible result of the previous one, whichever client made it.
func TestNoWriteIsLost(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.write(put(configMap("count", "0")))
	const writers, each = 3, 4
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				_, err := d.Write(context.WithoutCancel(t.Context()), false, func() (kubeapi.Change, error) {
					o, _ := d.desired("ConfigMap", "count")
					n, err := strconv.Atoi(o.(*corev1.ConfigMap).Data["a"])
					return put(configMap("count", strconv.Itoa(n+1))), err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if o, _ := d.desired("ConfigMap", "count"); o.(*corev1.ConfigMap).Data["a"] != strconv.Itoa(writers*each) {
		t.Errorf("%+v after %d writes", o, writers*each)
	}
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: count}\ndata: {a: '100'}\n"
	file := []localapi.ManifestFile{{Name: "a.yaml", Content: []byte(text)}}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // the command does not wait for what it has stored
	if _, err := d.cfg.Applier.Apply(ended, localapi.ApplyRequest{Files: file}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Write(t.Context(), true, func() (kubeapi.Change, error) {
		if o, _ := d.desired("ConfigMap", "count"); o.(*corev1.ConfigMap).Data["a"] != "100" {
			return kubeapi.Change{}, fmt.Errorf("decided on %+v", o)
		}
		return kubeapi.Change{}, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMetadataIsSeenBeforeTheAnswer: a write may change only metadata stored next to the manifest.
func TestMetadataIsSeenBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	for i := range 20 {
		o, pod := configMap("held", "0"), podOf("held")
		if i%2 == 0 {
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1"}}
			pod.Finalizers = []string{"example.com/hold"}
		}
		d.write(put(o, pod))
		if _, given := d.desired("ConfigMap", "held"); len(given.ManagedFields) != len(o.ManagedFields) {
			t.Fatalf("write %d: %d managed fields, want %d", i, len(given.ManagedFields), len(o.ManagedFields))
		}
		if _, given := d.desired("Pod", "held"); len(given.Finalizers) != len(pod.Finalizers) {
			t.Fatalf("write %d: %d finalizers, want %d", i, len(given.Finalizers), len(pod.Finalizers))
		}
	}
}

func TestAWriteForAnObjectThatWasReplacedIsAConflict(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.write(put(configMap("x", "1")))
	other := configMap("x", "2")
	other.UID = "older"
	removal := remove("ConfigMap", "x")
	removal.Remove[0].UID = "older"
	for _, c := range []kubeapi.Change{put(other), removal} {
		if err := d.fails(c); !apierrors.IsConflict(err) {
			t.Errorf("%v", err)
		}
	}
	removal.Remove[0].UID = "uid-x"
	d.write(removal)
}

func TestOnlyNewPodsNeedTheirRuntimeClass(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	name := "gvisor"
	web := podOf("web")
	web.Spec.RuntimeClassName = &name
	err := d.fails(put(web))
	if want := `pods "web" is forbidden: pod rejected: RuntimeClass "gvisor" not found`; !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("%v", err)
	}
	text := "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: gvisor}\nhandler: runsc\noverhead: {podFixed: {cpu: 10m}}\n"
	if _, err := d.cfg.Applier.Apply(t.Context(), localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "a.yaml", Content: []byte(text)}}}); err != nil {
		t.Fatal(err)
	}
	d.write(put(web))
	if o, _ := d.desired("Pod", "web"); o.(*corev1.Pod).Spec.Overhead.Cpu().String() != "10m" || web.Spec.Overhead != nil {
		t.Errorf("the overhead of the class is missing: %+v, or given to the object of the caller: %+v", o, web.Spec.Overhead)
	}
	d.write(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("RuntimeClass", "", "gvisor")}}})
	web = web.DeepCopy()
	web.Labels, web.Spec.Overhead = map[string]string{"a": "b"}, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	d.write(put(web))
}

// TestConditionsOfReadinessGatesSurviveARestart, those of pods of this API.
func TestConditionsOfReadinessGatesSurviveARestart(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	web := podOf("web")
	web.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/a"}, {ConditionType: "example.com/b"}}
	set := corev1.PodCondition{Type: "example.com/a", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	web.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, set}
	d.write(put(web))
	note := d.store.Note(manifests.ObjectID{Kind: "Pod", Namespace: "default", Name: "web"})
	if len(note.Conditions) != 1 || note.Conditions[0].Type != "example.com/a" || note.PodUID != "uid-web" {
		t.Errorf("%+v", note)
	}
	if document, err := d.store.Get(id("Pod", "web")); err != nil || len(document) == 0 {
		t.Error(err)
	}
	d.Load()
	d.write(remove("Pod", "web"))
	if d.store.Note(id("Pod", "web")) != nil {
		t.Error("a removed pod has conditions")
	}
}
