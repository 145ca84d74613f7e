package managed

import (
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/kinds"
)

func kind(t *testing.T, o kinds.Object) *kinds.Kind {
	t.Helper()
	all, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	return kinds.ByKind(all[0])
}

func applied(data ...any) map[string]any {
	values := map[string]any{}
	for i := 0; i < len(data); i += 2 {
		values[data[i].(string)] = data[i+1]
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "namespace": "default"}, "data": values,
	}
}

func TestApplyMerges(t *testing.T) {
	t.Parallel()
	k := kind(t, &corev1.ConfigMap{})
	apply := func(live kinds.Object, manager string, force bool, data ...any) *corev1.ConfigMap {
		t.Helper()
		o, err := Apply(k, "", live, applied(data...), manager, force)
		if err != nil {
			t.Fatal(err)
		}
		return o.(*corev1.ConfigMap)
	}
	live := apply(k.New(), "one", false, "a", "1", "b", "1")
	live = apply(live, "two", false, "b", "1", "c", "2")
	if len(live.ManagedFields) != 2 || len(live.Data) != 3 || live.Kind != "ConfigMap" {
		t.Fatalf("two managers: %v", live)
	}
	_, err := Apply(k, "", live, applied("b", "3"), "two", false)
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) || !strings.Contains(err.Error(), `conflict with "one": .data.b`) {
		t.Errorf("conflict: %v", err)
	}
	if live.Data["b"] != "1" {
		t.Error("the live object was changed")
	}
	live = apply(live, "two", true, "b", "3")
	if live.Data["b"] != "3" || live.Data["c"] != "" {
		t.Errorf("forced: %v", live.Data)
	}
	live = apply(live, "one", false, "a", "1")
	if live.Data["b"] != "3" || live.Data["a"] != "1" {
		t.Errorf("what another manager owns stays: %v", live.Data)
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	k := kind(t, &corev1.ConfigMap{})
	large := make([]any, 0, 2*(maxEntries+1))
	for i := range maxEntries + 1 {
		large = append(large, strconv.Itoa(i), "x")
	}
	with := func(edit func(map[string]any)) map[string]any {
		m := applied("a", "1")
		edit(m)
		return m
	}
	for name, c := range map[string]struct {
		patch map[string]any
		is    func(error) bool
		text  string
	}{
		"a wrong type":     {applied("a", int64(1)), apierrors.IsBadRequest, ".data.a: expected string"},
		"an unknown field": {with(func(m map[string]any) { m["nonsense"] = "x" }), apierrors.IsBadRequest, "field not declared in schema"},
		"managed fields": {with(func(m map[string]any) {
			m["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "x"}}
		}), apierrors.IsBadRequest, "metadata.managedFields must be nil"},
		"another version": {with(func(m map[string]any) { m["apiVersion"] = "v2" }), apierrors.IsBadRequest, "v2"},
		"large maps":      {applied(large...), apierrors.IsRequestEntityTooLargeError, "limited to 10000 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Apply(k, "", k.New(), c.patch, "x", false); err == nil || !c.is(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("have %v (%v), want %s", err, apierrors.ReasonForError(err), c.text)
			}
		})
	}
}

func TestUpdateTracks(t *testing.T) {
	t.Parallel()
	k := kind(t, &appsv1.Deployment{})
	live := k.New()
	made := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	now := Update(k, "", live, made, "kubectl").(*appsv1.Deployment)
	if m := now.ManagedFields; len(m) != 1 || m[0].Manager != "kubectl" || m[0].APIVersion != "apps/v1" || !strings.Contains(m[0].FieldsV1.GetRawString(), "f:replicas") {
		t.Fatalf("created: %v", m)
	}
	scaled := now.DeepCopy()
	scaled.Spec.Replicas = new(int32(2))
	scaled = Update(k, "scale", now.DeepCopy(), scaled, "hpa").(*appsv1.Deployment)
	if m := scaled.ManagedFields; len(m) != 1 || m[0].Subresource != "scale" || m[0].Manager != "hpa" {
		t.Errorf("scaled: %v", m)
	}
	// An Apply after a create by kubectl conflicts with kubectl, not with an unknown manager, so that kubectl can take over the fields.
	_, err := Apply(k, "", now, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"replicas": int64(5)},
	}, "new", false)
	if err == nil || !strings.Contains(err.Error(), `conflict with "kubectl" using apps/v1: .spec.replicas`) {
		t.Errorf("have %v", err)
	}
}

func TestLeasesAreTrackedOnceApplied(t *testing.T) {
	t.Parallel()
	k := kind(t, &coordinationv1.Lease{})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}
	if now := Update(k, "", k.New(), lease, "x"); len(now.GetManagedFields()) > 0 {
		t.Errorf("tracked: %v", now.GetManagedFields())
	}
	live, err := Apply(k, "", k.New(), map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"holderIdentity": "a"},
	}, "one", false)
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity = new("b")
	if now := Update(k, "", live, lease, "two"); len(now.GetManagedFields()) != 1 || now.GetManagedFields()[0].Manager != "two" {
		t.Errorf("not tracked: %v", now.GetManagedFields())
	}
}

func TestLargeObjectsKeepTheirManagers(t *testing.T) {
	t.Parallel()
	k := kind(t, &corev1.ConfigMap{})
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}}
	now := &corev1.ConfigMap{Data: map[string]string{}}
	for i := range maxEntries + 1 {
		now.Data[strconv.Itoa(i)] = ""
	}
	if got := Update(k, "", live, now, "y").GetManagedFields(); len(got) != 1 || got[0].Manager != "x" {
		t.Errorf("managers: %v", got)
	}
}

func TestAllKindsAreTracked(t *testing.T) {
	t.Parallel()
	for _, k := range kinds.All() {
		if !k.Allows("update") || !Tracks(k) {
			continue
		}
		o := k.New()
		o.SetName("x")
		o.SetLabels(map[string]string{"a": "b"})
		if got := Update(k, "", k.New(), o, "x").GetManagedFields(); len(got) != 1 {
			t.Errorf("%s: %v", k.Kind, got)
		}
	}
}

func BenchmarkFirstUse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unpack(packed); err != nil {
			b.Fatal(err)
		}
	}
}

func TestNobodyOwnsWhatTheServerResets(t *testing.T) {
	t.Parallel()
	k := kind(t, &corev1.Namespace{})
	n := k.New().(*corev1.Namespace)
	n.Name, n.Labels = "x", map[string]string{"a": "b"}
	n.Spec.Finalizers, n.Status.Phase = []corev1.FinalizerName{"kubernetes"}, corev1.NamespaceActive
	made := Update(k, "", k.New(), n, "one")
	if m := made.GetManagedFields(); len(m) != 1 || m[0].FieldsV1.GetRawString() != `{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}` {
		t.Errorf("have %v", m)
	}
	status := made.DeepCopyObject().(*corev1.Namespace)
	status.Status.Phase = corev1.NamespaceTerminating
	if m := Update(k, "status", made, status, "two").GetManagedFields(); len(m) != 2 || m[1].Subresource != "status" {
		t.Errorf("have %v", m)
	}
}
