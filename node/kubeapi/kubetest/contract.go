package kubetest

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
)

// Subject is a Writer and the State that shows what it stores.
type Subject struct {
	Writer kubeapi.Writer
	State  kubeapi.State
}

// Contract tests the behavior that the API relies on. create returns an empty store with the namespace default.
func Contract(t *testing.T, create func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"what is put is seen":                     testPut,
		"metadata is kept as it is given":         testMetadata,
		"all of a change is stored, or nothing":   testRefused,
		"a dry run stores nothing":                testDryRun,
		"an error of decide is returned as it is": testDecide,
		"what is removed is gone":                 testRemove,
		"another uid is not removed":              testOtherUID,
		"an empty change is no write":             testEmpty,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, create(t))
		})
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"a": "1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "8a5c5a6e-7f3e-4d38-8a8b-1d0b3c5d9a01"},
	}
}

func (s Subject) write(t *testing.T, dryRun bool, change kubeapi.Change) {
	t.Helper()
	if _, err := s.Writer.Write(t.Context(), dryRun, func() (kubeapi.Change, error) { return change, nil }); err != nil {
		t.Fatal(err)
	}
}

func (s Subject) find(t *testing.T, o kinds.Object) kinds.Object {
	t.Helper()
	r := RefOf(o)
	all, _ := s.State.Objects(t.Context())
	for _, have := range all[r.Kind] {
		if have.GetNamespace() == r.Namespace && have.GetName() == r.Name {
			return have
		}
	}
	return nil
}

func testPut(t *testing.T, s Subject) {
	m := configMap("x")
	if d := s.Writer.Definition(RefOf(m)); d.Applied || d.Place != "" {
		t.Errorf("before: %+v", d)
	}
	s.write(t, false, kubeapi.Change{Put: []kinds.Object{m}})
	have, ok := s.find(t, m).(*corev1.ConfigMap)
	if !ok || have.Data["a"] != "1" {
		t.Fatalf("have %v", have)
	}
	if d := s.Writer.Definition(RefOf(m)); !d.Applied || d.Place != "" {
		t.Errorf("after: %+v", d)
	}
	edited := m.DeepCopy()
	edited.Data["a"] = "2"
	s.write(t, false, kubeapi.Change{Put: []kinds.Object{edited}})
	if have := s.find(t, m).(*corev1.ConfigMap); have.Data["a"] != "2" {
		t.Errorf("have %v", have.Data)
	}
}

func testMetadata(t *testing.T, s Subject) {
	m := configMap("x")
	m.Generation, m.Finalizers, m.Labels, m.Annotations = 3, []string{"a/b"}, map[string]string{"a": "b"}, map[string]string{"c": "d"}
	m.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	m.DeletionTimestamp = new(metav1.Unix(1_700_000_100, 0))
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "y", UID: "v"}}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "x", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`),
	}}
	s.write(t, false, kubeapi.Change{Put: []kinds.Object{m}})
	have := s.find(t, m)
	if have == nil {
		t.Fatal("it is not there")
	}
	if have.GetUID() != m.UID || have.GetGeneration() != 3 || len(have.GetFinalizers()) != 1 || have.GetLabels()["a"] != "b" ||
		have.GetAnnotations()["c"] != "d" || !have.GetCreationTimestamp().Time.Equal(m.CreationTimestamp.Time) ||
		have.GetDeletionTimestamp() == nil || len(have.GetOwnerReferences()) != 1 || len(have.GetManagedFields()) != 1 {
		t.Errorf("have %+v", have)
	}
}

func testRefused(t *testing.T, s Subject) {
	refused := errors.New("no")
	bad := configMap("bad")
	_, err := s.Writer.Write(t.Context(), false, func() (kubeapi.Change, error) {
		return kubeapi.Change{Put: []kinds.Object{bad}}, refused
	})
	if !errors.Is(err, refused) || s.find(t, bad) != nil {
		t.Errorf("err %v, object %v", err, s.find(t, bad))
	}
}

func testDryRun(t *testing.T, s Subject) {
	m := configMap("x")
	s.write(t, true, kubeapi.Change{Put: []kinds.Object{m}})
	if s.find(t, m) != nil {
		t.Error("a dry run put it")
	}
	s.write(t, false, kubeapi.Change{Put: []kinds.Object{m}})
	s.write(t, true, kubeapi.Change{Remove: []kubeapi.Removal{{Ref: RefOf(m), UID: m.UID}}})
	if s.find(t, m) == nil {
		t.Error("a dry run removed it")
	}
}

func testDecide(t *testing.T, s Subject) {
	refused := errors.New("no")
	if _, err := s.Writer.Write(t.Context(), true, func() (kubeapi.Change, error) { return kubeapi.Change{}, refused }); !errors.Is(err, refused) {
		t.Errorf("have %v", err)
	}
}

func testRemove(t *testing.T, s Subject) {
	one, two := configMap("one"), configMap("two")
	s.write(t, false, kubeapi.Change{Put: []kinds.Object{one, two}})
	s.write(t, false, kubeapi.Change{Remove: []kubeapi.Removal{{Ref: RefOf(one), UID: one.UID}, {Ref: RefOf(two), UID: two.UID}}})
	if s.find(t, one) != nil || s.find(t, two) != nil || s.Writer.Definition(RefOf(one)).Applied {
		t.Error("they are still there")
	}
}

func testOtherUID(t *testing.T, s Subject) {
	m := configMap("x")
	s.write(t, false, kubeapi.Change{Put: []kinds.Object{m}})
	// It may be an error, or nothing; the object stays.
	_, _ = s.Writer.Write(t.Context(), false, func() (kubeapi.Change, error) {
		return kubeapi.Change{Remove: []kubeapi.Removal{{Ref: RefOf(m), UID: "other"}}}, nil
	})
	if s.find(t, m) == nil {
		t.Error("another object of that name was removed")
	}
}

func testEmpty(t *testing.T, s Subject) { s.write(t, false, kubeapi.Change{}) }
