package strategy

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/kinds"
)

func TestInvalidMetadata(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    kinds.Object
		text string
	}{
		"a Namespace with a dot":      {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}}, "metadata.name"},
		"a ServiceAccount":            {&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "A"}}, "metadata.name"},
		"labels of a ServiceAccount":  {&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a b": ""}}}, "metadata.labels"},
		"a finalizer without a group": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: []string{"plain"}}}, "metadata.finalizers[0]"},
		"an owner without a uid": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "x", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p"}},
		}}, "metadata.ownerReferences[0].uid"},
		"a Lease of no time": {&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(0))},
		}, "spec.leaseDurationSeconds"},
		"an Event about elsewhere": {&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, InvolvedObject: corev1.ObjectReference{Namespace: "other"},
		}, "involvedObject.namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is(t, Create(kindOf(t, c.o), c.o, NewMetadata{Namespace: "ns", Now: noon, UID: "u"}), 422, c.text)
		})
	}
}

func TestWhatWasInvalidMayStay(t *testing.T) {
	t.Parallel()
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Finalizers: []string{"plain"}}}
	now := old.DeepCopy()
	now.Data = map[string]string{"a": "b"}
	if err := Update(kindOf(t, old), "", old, now); err != nil {
		t.Error(err)
	}
}

func TestNoFinalizerIsAddedToWhatGoes(t *testing.T) {
	t.Parallel()
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "x", Finalizers: []string{"a.b/c"}, DeletionTimestamp: &metav1.Time{Time: noon},
	}}
	now := old.DeepCopy()
	now.Finalizers = append(now.Finalizers, "a.b/d")
	is(t, Update(kindOf(t, old), "", old, now), 422, "metadata.finalizers")
	now.Finalizers = nil
	if err := Update(kindOf(t, old), "", old, now); err != nil {
		t.Error(err)
	}
}

func TestAnUpdateHasAName(t *testing.T) {
	t.Parallel()
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
	is(t, Update(kindOf(t, old), "", old, &corev1.ConfigMap{}), 400, "name must be provided")
}

func TestSomeDeletesAnswerTheObject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o      kinds.Object
		object bool
	}{
		{&corev1.Service{}, true},
		{&storagev1.StorageClass{}, true},
		{&corev1.ConfigMap{}, false},
	} {
		c.o.SetName("x")
		d, err := Delete(kindOf(t, c.o), c.o, &metav1.DeleteOptions{}, noon)
		if err != nil {
			t.Fatal(err)
		}
		if have := d.Answer != nil && d.Answer.GetDeletionTimestamp() == nil; have != c.object {
			t.Errorf("%T: %+v", c.o, d)
		}
	}
}
