package derived

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
)

var (
	configMaps = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	namespaces = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	pods       = kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
)

func uid(kind, namespace, name string) types.UID {
	return types.UID(kind + "/" + namespace + "/" + name)
}

func TestUIDsAreNeverUsedTwice(t *testing.T) {
	key, used := ID{configMaps, "ns", "c"}, map[types.UID]bool{}
	for start := range 2 {
		d := New(time.Unix(int64(start), 0), uid)
		used[d.UID(key)] = true // that of the name
		for range 3 {
			next := d.Succeed(key)
			if used[next] || d.UID(key) != next {
				t.Errorf("uid %s again, or not that: %s", next, d.UID(key))
			}
			used[next] = true
			d.Prune(func(ID) bool { return true }, nil)
		}
		d.Prune(func(ID) bool { return false }, nil)
		if d.UID(key) != "ConfigMap/ns/c" || len(d.uids) > 0 {
			t.Errorf("of an object that is gone %v is remembered", d.uids)
		}
	}
}

func TestMakersAreThoseOfTheLastBuild(t *testing.T) {
	d, key := New(time.Time{}, uid), ID{configMaps, "ns", "c"}
	d.Made(key, Own, true)
	if by, deletable := d.Maker(key); by != Own || !deletable {
		t.Errorf("made by %q, %t", by, deletable)
	}
	d.Begin()
	if by, deletable := d.Maker(key); by != "" || deletable {
		t.Errorf("made by %q, %t", by, deletable)
	}
}

func TestANamespaceEnds(t *testing.T) {
	doc := func(source string) *model.Desired {
		o := &manifests.Object{Kind: "ConfigMap", Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "c"}}}
		o.Origin.Source = source
		return &model.Desired{Objects: []*manifests.Object{o}}
	}
	none, applied, file := &model.Desired{}, doc("applied"), doc("file")
	for name, c := range map[string]struct {
		then  []*model.Desired
		again bool
	}{
		"its objects are not removed yet": {[]*model.Desired{applied, applied}, false},
		"its pods are left":               {[]*model.Desired{applied, none, none}, false},
		"it is made again":                {[]*model.Desired{applied, none, applied}, true},
		"a file has objects in it":        {[]*model.Desired{file}, true},
	} {
		d := New(time.Time{}, uid)
		d.End(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ci", UID: "u"}}, time.Unix(7, 5))
		d.End(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ci", UID: "later"}}, time.Unix(9, 0))
		var n *corev1.Namespace
		for _, desired := range c.then {
			n = d.Ending(namespaces, "ci", desired)
		}
		if (n == nil) != c.again || (d.UID(ID{namespaces, "", "ci"}) != "Namespace//ci") != c.again {
			t.Errorf("%s: %v", name, n)
		}
		if n != nil && (n.UID != "u" || n.DeletionTimestamp.Unix() != 7 || n.Status.Phase != corev1.NamespaceTerminating) {
			t.Errorf("%s: %v", name, n)
		}
		if d.Prune(func(ID) bool { return true }, map[string]bool{"other": true}); d.Ending(namespaces, "ci", none) != nil {
			t.Errorf("%s: it is remembered", name)
		}
	}
}

func TestWhatIsLeftOfANamespace(t *testing.T) {
	pod := func(namespace string, ends bool) kinds.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		if ends {
			p.DeletionTimestamp = new(metav1.Now())
		}
		return p
	}
	with := func(all ...kinds.Object) map[*kinds.Kind][]kinds.Object {
		return map[*kinds.Kind][]kinds.Object{pods: all}
	}
	for name, c := range map[string]struct {
		objects   map[*kinds.Kind][]kinds.Object
		namespace string
		want      bool
	}{
		"nothing":            {with(), "ci", false},
		"pods that end":      {with(pod("ci", true), pod("other", false)), "ci", true},
		"one that does not":  {with(pod("ci", true), pod("ci", false)), "ci", false},
		"another object":     {map[*kinds.Kind][]kinds.Object{pods: {pod("ci", true)}, configMaps: {pod("ci", true)}}, "ci", false},
		"one that stays too": {with(pod("default", true)), "default", false},
	} {
		if got := Leaving(c.objects, c.namespace); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
