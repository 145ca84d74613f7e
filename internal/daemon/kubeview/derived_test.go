package kubeview

import (
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/daemon/kubeview/derived"
	"monopod/node/events"
	"monopod/node/kubeapi"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/runtimetest"
)

// TestOthersTakeThePlaceOfDeletedObjects that are made of others: with another uid, which they keep, and which their own objects have too.
func TestOthersTakeThePlaceOfDeletedObjects(t *testing.T) {
	bubble(t, func(c *Config) { c.APIAddress = func() (string, string) { return "192.0.2.1:6443", "192.0.2.1:6443" } }, func(t *testing.T, w *world) {
		w.publish(desired(t, files, deploymentYAML+"---\n{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}\n"))
		w.settle()
		set := w.all("apps/v1/ReplicaSet")[0].(*appsv1.ReplicaSet)
		for kind, c := range map[string]struct{ name, maker string }{
			"apps/v1/ReplicaSet":           {set.Name, "Deployment web"},
			"ConfigMap":                    {"default/" + rootCA, derived.Own},
			"Service":                      {"default/kubernetes", derived.Own},
			"ServiceAccount":               {"default/default", ""},
			"coordination.k8s.io/v1/Lease": {"kube-node-lease/node", ""},
			"Endpoints":                    {"default/web", ""},
		} {
			before := get[kinds.Object](w, kind, c.name)
			of := kubeapi.Ref{Kind: kindNamed(t, kind), Namespace: before.GetNamespace(), Name: before.GetName()}
			if maker, deletable := w.Maker(of); maker != c.maker || deletable != (maker != "") {
				t.Errorf("%s: made by %q, %t", kind, maker, deletable)
			}
			w.Deleted(of)
			after := get[kinds.Object](w, kind, c.name)
			w.settle()
			w.settle() // the Lease is renewed
			if now := get[kinds.Object](w, kind, c.name); after.GetUID() == before.GetUID() || now.GetUID() != after.GetUID() {
				t.Errorf("%s: uid %s, %s, then %s", kind, before.GetUID(), after.GetUID(), now.GetUID())
			}
			w.Deleted(of)
			if now := get[kinds.Object](w, kind, c.name); now.GetUID() == after.GetUID() || now.GetUID() == before.GetUID() {
				t.Errorf("%s: deleted twice, uid %s", kind, now.GetUID())
			}
		}
		set = w.all("apps/v1/ReplicaSet")[0].(*appsv1.ReplicaSet)
		for _, p := range w.all("Pod") {
			if !metav1.IsControlledBy(p, set) {
				t.Errorf("the pod has another ReplicaSet: %v", p.GetOwnerReferences())
			}
		}
		if get[*coordinationv1.Lease](w, "coordination.k8s.io/v1/Lease", "node").OwnerReferences[0].UID != get[*corev1.Node](w, "Node", "node").UID {
			t.Error("the Lease is not of the Node")
		}
		if maker, _ := w.Maker(kubeapi.Ref{Kind: w.kinds.deployment, Namespace: "default", Name: "web"}); maker != "" {
			t.Errorf("a Deployment is made by %s", maker)
		}
		w.publish(desired(t, files, "# nothing\n"))
		w.state.Rollouts.Update(desired(t, files, "# nothing\n"), w.pool.Update)
		w.settle()
		w.Objects(t.Context())
	})
}

func TestDeletedEventsAreGoneUntilTheyHappenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := events.New(events.Config{Dir: t.TempDir(), Node: "node"})
		w := newWorld(t, func(c *Config) { c.Events = recorder })
		recorder.Event(events.NodeRef("node"), corev1.EventTypeNormal, "A", "b")
		e := w.all("Event")[0]
		w.Deleted(kubeapi.Ref{Kind: w.kinds.event, Namespace: e.GetNamespace(), Name: e.GetName()})
		for range 2 {
			if left := append(w.all("Event"), w.all("events.k8s.io/v1/Event")...); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
		recorder.Event(events.NodeRef("node"), corev1.EventTypeNormal, "A", "b")
		again := w.all("Event")
		if len(again) != 1 || again[0].GetUID() == e.GetUID() {
			t.Errorf("what has happened again: %v", again)
		}
	})
}

// TestADeletedNamespaceEndsWithItsPods: until then it is the same, and Terminating.
func TestADeletedNamespaceEndsWithItsPods(t *testing.T) {
	own := &kept{objects: []kinds.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ci", UID: "uid-ci", Labels: map[string]string{"a": "b"}}}}}
	bubble(t, func(c *Config) { c.Kept = own }, func(t *testing.T, w *world) {
		pod := strings.Replace(podYAML("web", ", namespace: ci"), runtimetest.ScriptServe, runtimetest.ScriptStubborn, 1)
		d, none := desired(t, api, pod), desired(t, api, "# nothing\n")
		phase := func(want corev1.NamespacePhase, uid string) {
			t.Helper()
			n := get[*corev1.Namespace](w, "Namespace", "ci")
			if n.Status.Phase != want || (n.DeletionTimestamp != nil) != (want == corev1.NamespaceTerminating) || uid != "" && string(n.UID) != uid {
				t.Errorf("%s %s since %v, want %s %s", n.UID, n.Status.Phase, n.DeletionTimestamp, want, uid)
			}
		}
		w.publish(d)
		w.settle()
		phase(corev1.NamespaceActive, "uid-ci")
		w.Deleted(kubeapi.Ref{Kind: w.kinds.namespace, Name: "ci"})
		phase(corev1.NamespaceTerminating, "uid-ci")
		own.objects = nil
		phase(corev1.NamespaceTerminating, "uid-ci") // its pod is still desired
		w.publish(none)
		w.settle()
		phase(corev1.NamespaceTerminating, "uid-ci")
		if n := get[*corev1.Namespace](w, "Namespace", "ci"); n.Labels["a"] != "b" {
			t.Errorf("%v", n.Labels)
		}
		w.derived.Forget("ci") // as a restart does
		phase(corev1.NamespaceTerminating, "")
		more := desired(t, api, strings.Replace(pod, "name: web", "name: next", 1))
		terminating := get[*corev1.Namespace](w, "Namespace", "ci").UID
		w.publish(more)
		w.settle()
		phase(corev1.NamespaceActive, "")
		if n := get[*corev1.Namespace](w, "Namespace", "ci"); n.UID == terminating {
			t.Error("a Namespace that was deleted is Active again")
		}
		w.publish(none)
		for range 6 {
			w.settle()
		}
		for _, n := range w.all("Namespace") {
			if n.GetName() == "ci" {
				t.Errorf("without pods: %+v", n)
			}
		}
	})
}
