package writes_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/kubetest"
)

// owned returns a ConfigMap with a uid that belongs to others of their names.
func owned(name string, owners ...string) *corev1.ConfigMap {
	m := configMap(name)
	m.UID = types.UID("uid-" + name)
	for _, owner := range owners {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID("uid-" + owner)})
	}
	return m
}

// left returns the names of the ConfigMaps; + marks those that wait for a finalizer.
func left(t *testing.T, c *kubernetes.Clientset) string {
	t.Helper()
	var names []string
	for _, m := range must[*corev1.ConfigMapList](t)(c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})).Items {
		name := m.Name
		if m.DeletionTimestamp != nil {
			name += "+"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// TestDependentsGoWithTheLastOfTheirOwners: owners that went earlier do not keep them.
func TestDependentsGoWithTheLastOfTheirOwners(t *testing.T) {
	t.Parallel()
	foreign := owned("foreign", "b")
	foreign.OwnerReferences = append(foreign.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Other", Name: "o", UID: "uid-o"})
	unserved := owned("unserved", "b") // an inert kind that is not served is one of another API server
	unserved.OwnerReferences = append(unserved.OwnerReferences, metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: "r", UID: "uid-r"})
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		maps := c.CoreV1().ConfigMaps("default")
		for _, step := range [][2]string{
			{"a", "b both child foreign gone-before kept unserved"},
			{"b", "foreign kept unserved"},
		} {
			if err := maps.Delete(t.Context(), step[0], metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := left(t, c); got != step[1] {
				t.Errorf("without %s: %s, want %s", step[0], got, step[1])
			}
		}
	}, owned("a"), owned("b"), owned("both", "a", "b"), owned("child", "both"), owned("gone-before", "b", "never"), foreign, unserved, owned("kept", "kept2"))
}

// TestACollectionHasADependentOnce: it was put twice if it has a finalizer, and nothing was deleted.
func TestACollectionHasADependentOnce(t *testing.T) {
	t.Parallel()
	held := owned("b-held", "a")
	held.Finalizers = []string{"example.com/hold"}
	first := owned("0-held", "a")
	first.Finalizers = held.Finalizers
	for name, delete := range map[string]func(t *testing.T, c *kubernetes.Clientset) error{
		"collection": func(t *testing.T, c *kubernetes.Clientset) error {
			t.Helper()
			return c.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"owner": func(t *testing.T, c *kubernetes.Clientset) error {
			t.Helper()
			return c.CoreV1().ConfigMaps("default").Delete(t.Context(), "a", metav1.DeleteOptions{})
		},
	} {
		each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
			puts := map[string]int{}
			store.Validate = func(o kinds.Object) error { puts[o.GetName()]++; return nil }
			if err := delete(t, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := left(t, c); got != "0-held+ b-held+" || puts["b-held"] != 1 || puts["0-held"] != 1 {
				t.Errorf("%s: %s, put %v", name, got, puts)
			}
		}, owned("a"), held, first, owned("plain", "a"))
	}
}

// TestNothingIsLeftBehindUnseen: what cannot be seen may belong to what is deleted.
func TestNothingIsLeftBehindUnseen(t *testing.T) {
	t.Parallel()
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "uid-team"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	store, podKind := kubetest.New(owned("a"), ownedPod(), heldMap(), team), kubetest.RefOf(pod("x")).Kind
	url := listen(t, store) + "/api/v1/namespaces"
	unseen := func(what, method, path, body string) {
		t.Helper()
		code, answer, header := do(t, method, url+path, merge, body)
		if text, _ := answer["message"].(string); code != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" || !strings.Contains(text, "pods cannot be seen") || store.Writes() > 0 {
			t.Errorf("%s: %d %v after %d writes", what, code, answer, store.Writes())
		}
	}
	store.Hide(podKind, errors.New("monopod is starting"))
	unseen("the last finalizer", "PATCH", "/default/configmaps/held", `{"metadata":{"finalizers":null}}`)
	unseen("an owner", "DELETE", "/default/configmaps/a", "")
	unseen("a collection", "DELETE", "/default/configmaps", "")
	unseen("a namespace", "DELETE", "/team", "")
	store.Hide(podKind, nil)
	do(t, "GET", url+"/default/pods", plain, "")
	store.Hide(podKind, errors.New("the runtime is gone"))
	unseen("a namespace, later", "DELETE", "/team", "")
	if code, answer, _ := do(t, "DELETE", url+"/default/configmaps/a", plain, ""); code != http.StatusOK || store.Writes() != 1 {
		t.Errorf("the pods that were seen last are known: %d %v", code, answer)
	}
	if o := store.Get(kubetest.RefOf(pod("of-a"))); o.GetDeletionTimestamp() == nil {
		t.Errorf("the pod of the owner: %v", o)
	}
}

func ownedPod() *corev1.Pod {
	p := pod("of-a")
	p.UID, p.OwnerReferences = "uid-of-a", owned("x", "a").OwnerReferences
	return p
}

func heldMap() *corev1.ConfigMap {
	m := owned("held")
	m.Finalizers, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = []string{"example.com/hold"}, new(metav1.Now()), new(int64(0))
	return m
}

// TestDerivedObjects can be deleted if others take their place, with what they have, and not be changed. They keep nothing from being deleted.
func TestDerivedObjects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, sets := t.Context(), c.AppsV1().ReplicaSets("default")
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "uid-web-1"}}
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web"}}
		set.Spec.Selector, set.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, map[string]string{"a": "b"}
		set.Spec.Template.Spec = pod("x").Spec
		mine, other := pod("web-0"), pod("else-0")
		mine.UID, other.UID = "uid-web-0", "uid-else-0"
		mine.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "uid-web-1"}}
		store.Elsewhere("Deployment default/web", true, set, mine, other)
		const says = `replicasets.apps "web-1" is forbidden: it is defined in Deployment default/web; change it there`
		_, err := sets.Patch(ctx, "web-1", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
		refuses(t, err, apierrors.IsForbidden, says)
		_, err = sets.Patch(ctx, "web-1", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
		refuses(t, err, apierrors.IsForbidden, says)
		now := must[*appsv1.ReplicaSet](t)(sets.Get(ctx, "web-1", metav1.GetOptions{}))
		now.Labels = map[string]string{"x": "y"}
		_, err = sets.Update(ctx, now, metav1.UpdateOptions{})
		refuses(t, err, apierrors.IsForbidden, says)
		if err := sets.Delete(ctx, "web-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pods := must[*corev1.PodList](t)(c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})).Items
		if store.Get(kubetest.RefOf(set)) != nil || len(pods) != 2 || pods[0].DeletionTimestamp != nil || pods[1].DeletionTimestamp == nil {
			t.Errorf("its pods: %v", pods)
		}
	})
}
