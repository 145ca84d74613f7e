package kinds

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	known "monopod/manifests/kinds"
)

func TestEachKindIsWhole(t *testing.T) {
	resources, names := map[schema.GroupVersionResource]bool{}, map[string]*Kind{}
	for _, k := range All() {
		if resources[k.Resource()] {
			t.Errorf("%v twice", k.Resource())
		}
		resources[k.Resource()] = true
		if k.Virtual {
			if o, err := Scheme().New(k.GroupVersionKind); err != nil || o == nil || !slices.Equal(k.Verbs, []string{"create"}) {
				t.Errorf("%v: %v %v", k.GroupVersionKind, err, k.Verbs)
			}
			continue
		}
		o := k.New()
		if got := o.GetObjectKind().GroupVersionKind(); got != k.GroupVersionKind {
			t.Errorf("%v makes %v", k.GroupVersionKind, got)
		}
		o.SetName("a")
		o.SetNamespace("b")
		set := k.Fields(o)
		if set["metadata.name"] != "a" || (set["metadata.namespace"] == "b") != k.Namespaced {
			t.Errorf("%v: %v", k.GroupVersionKind, set)
		}
		if _, err := Scheme().New(k.ListKind()); err != nil {
			t.Error(err)
		}
		if ByKind(k.GroupVersionKind) != k || ByResource(k.Resource()) != k || !slices.Contains(Serve(Inert()).GroupVersions(), k.GroupVersion()) {
			t.Errorf("%v is not found", k.GroupVersionKind)
		}
		if !slices.IsSorted(k.Verbs) || !k.Allows("list") || k.Allows("fly") {
			t.Errorf("%v: verbs %v", k.GroupVersionKind, k.Verbs)
		}
		for _, name := range append([]string{k.Plural, k.Singular}, k.Short...) {
			if other := names[name]; other != nil && name != "" && name != k.Plural && name != k.Singular && other.Group == k.Group {
				t.Errorf("%s is %v and %v", name, other.GroupVersionKind, k.GroupVersionKind)
			}
			names[name] = k
		}
		for _, s := range k.Subresources {
			if k.Subresource(s.Name) == nil || s.Name == "" || len(s.Verbs) == 0 || s.Kind.Kind == "" {
				t.Errorf("%v: %+v", k.GroupVersionKind, s)
			}
		}
		if k.Subresource("none") != nil {
			t.Errorf("%v has any subresource", k.GroupVersionKind)
		}
	}
	if ByKind(schema.GroupVersionKind{Kind: "Pod"}) != nil || ByResource(schema.GroupVersionResource{Resource: "pods"}) != nil {
		t.Error("kinds without a version")
	}
}

func TestFieldsOfSelectors(t *testing.T) {
	pod := ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	set := pod.Fields(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", HostNetwork: true}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}})
	if set["spec.nodeName"] != "n" || set["status.phase"] != "Running" || set["spec.hostNetwork"] != "true" || set["status.podIP"] != "10.0.0.1" {
		t.Error(set)
	}
	controller := &corev1.ReplicationController{Status: corev1.ReplicationControllerStatus{Replicas: 3}}
	if set := ByKind(corev1.SchemeGroupVersion.WithKind("ReplicationController")).Fields(controller); set["status.replicas"] != "3" {
		t.Error(set)
	}
	ref := corev1.ObjectReference{Kind: "Pod", Name: "web", Namespace: "a"}
	old := ByKind(corev1.SchemeGroupVersion.WithKind("Event")).Fields(&corev1.Event{InvolvedObject: ref, Reason: "Started", ReportingController: "c"})
	if old["involvedObject.name"] != "web" || old["reason"] != "Started" || old["source"] != "c" {
		t.Error(old)
	}
	now := ByKind(eventsv1.SchemeGroupVersion.WithKind("Event")).Fields(&eventsv1.Event{Regarding: ref})
	if now["regarding.kind"] != "Pod" {
		t.Error(now)
	}
}

func TestObjectsAreOrderedByNamespaceAndName(t *testing.T) {
	of := func(text string) Object {
		namespace, name, _ := strings.Cut(text, "/")
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	all := []Object{of("b/a"), of("a/b"), of("a/a")}
	slices.SortFunc(all, Compare)
	var got []string
	for _, o := range all {
		got = append(got, o.GetNamespace()+"/"+o.GetName())
	}
	if strings.Join(got, " ") != "a/a a/b b/a" {
		t.Error(got)
	}
}

func TestTheTableIsSorted(t *testing.T) {
	if !slices.IsSortedFunc(All(), func(a, b *Kind) int { return strings.Compare(a.Group+"/"+a.Plural, b.Group+"/"+b.Plural) }) {
		t.Error("clients list the kinds in another order than those of Kubernetes")
	}
}

func TestInertKindsAreServedOnlyIfTheyAreNamed(t *testing.T) {
	some := Serve([]string{"Role", "LimitRange", "None"})
	for _, k := range All() {
		named := k.Kind == "Role" || k.Kind == "LimitRange"
		for _, tt := range []struct {
			served Served
			want   bool
		}{{Served{}, !k.Inert}, {some, !k.Inert || named}, {Serve(Inert()), true}} {
			if tt.served.Has(k) != tt.want || slices.Contains(tt.served.All(), k) != tt.want ||
				(tt.served.ByKind(k.GroupVersionKind) == k) != tt.want || (tt.served.ByResource(k.Resource()) == k) != tt.want {
				t.Errorf("%s is served: %v", k.Kind, !tt.want)
			}
		}
		if (k.Warning() != "") != k.Inert || !strings.HasPrefix(k.Warning(), k.Kind) && k.Inert {
			t.Errorf("%s: %q", k.Kind, k.Warning())
		}
		if k.Inert != known.Inert(k.Kind) {
			t.Errorf("%s is inert: %v; where it is stored it is not the same", k.Kind, k.Inert)
		}
	}
	rbac := rbacv1.SchemeGroupVersion
	if slices.Contains(Served{}.GroupVersions(), rbac) || !slices.Contains(some.GroupVersions(), rbac) || !some.AnyInert(rbac) || !some.AnyInert(corev1.SchemeGroupVersion) {
		t.Error("the group of roles is served with them")
	}
	if (Served{}).AnyInert(schema.GroupVersion{}) || !some.AnyInert(schema.GroupVersion{}) || some.AnyInert(schema.GroupVersion{Group: "apps", Version: "v1"}) {
		t.Error("inert kinds of other groups")
	}
	if len(Inert()) != 11 || !slices.IsSorted(Inert()) {
		t.Error(Inert())
	}
}
