package kubeview

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/kubeview/machine"
	"monopod/node/kubeapi/kinds"
	"monopod/node/nodemeta"
)

// clock is a time that tests set.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) in(cfg *Config) { cfg.Now = func() time.Time { return c.now } }

func TestNodeAndItsHeartbeats(t *testing.T) {
	at := newClock()
	w := newWorld(t, func(c *Config) {
		at.in(c)
		c.Labels = map[string]string{"zone": "a"}
		c.Taints = []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}
	})
	n := get[*corev1.Node](w, "Node", "node")
	if n.Labels["zone"] != "a" || n.Labels[corev1.LabelHostname] != "node" || n.Labels["kubernetes.io/os"] != "linux" || n.Status.Addresses[0].Address != "192.0.2.1" || n.UID == "" {
		t.Errorf("%+v", n)
	}
	at.now = at.now.Add(machine.Heartbeat - time.Second)
	if again := get[*corev1.Node](w, "Node", "node"); again != n {
		t.Error("it is another object before its heartbeat is due")
	}
	at.now = at.now.Add(time.Second)
	beat := get[*corev1.Node](w, "Node", "node").Status.Conditions[0]
	if !beat.LastHeartbeatTime.Time.Equal(at.now) || !beat.LastTransitionTime.Equal(&n.Status.Conditions[0].LastTransitionTime) {
		t.Errorf("%+v", beat)
	}
	at.now = at.now.Add(time.Second)
	w.facts.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady"}}
	w.facts.Unschedulable = true
	n = get[*corev1.Node](w, "Node", "node")
	if c := n.Status.Conditions[0]; !c.LastTransitionTime.Time.Equal(at.now) {
		t.Errorf("%+v", c)
	}
	w.facts.Set = nodemeta.Metadata{
		Labels: map[string]string{"disk": "ssd", "zone": "client"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Annotations: map[string]string{"note": "a", "monopod.dev/cordoned": "no"},
	}
	labeled := get[*corev1.Node](w, "Node", "node")
	if labeled.Labels["disk"] != "ssd" || labeled.Labels["zone"] != "a" || labeled.Annotations["note"] != "a" || labeled.Annotations["monopod.dev/cordoned"] != "true" || len(labeled.ManagedFields) != 1 {
		t.Errorf("set by clients: %+v", labeled.ObjectMeta)
	}
	if again := get[*corev1.Node](w, "Node", "node"); again != labeled {
		t.Error("the same Node is another object")
	}
	if !n.Spec.Unschedulable || len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != corev1.TaintNodeUnschedulable {
		t.Errorf("cordoned: %+v", n.Spec)
	}
}

func TestLeaseOfTheNode(t *testing.T) {
	at, own := newClock(), &kept{}
	w := newWorld(t, func(c *Config) { at.in(c); c.Kept = own })
	const lease = "coordination.k8s.io/v1/Lease"
	l := get[*coordinationv1.Lease](w, lease, "kube-node-lease/node")
	if *l.Spec.HolderIdentity != "node" || *l.Spec.LeaseDurationSeconds != 40 || !l.Spec.RenewTime.Time.Equal(at.now) || l.OwnerReferences[0].Kind != "Node" {
		t.Errorf("%+v", l)
	}
	at.now = at.now.Add(machine.RenewEvery)
	if again := get[*coordinationv1.Lease](w, lease, "kube-node-lease/node"); again != l {
		t.Error("it is renewed too soon")
	}
	at.now = at.now.Add(time.Second)
	if again := get[*coordinationv1.Lease](w, lease, "kube-node-lease/node"); !again.Spec.RenewTime.Time.Equal(at.now) || again.UID != l.UID || !again.CreationTimestamp.Equal(&l.CreationTimestamp) {
		t.Errorf("%+v", again)
	}
	own.objects = []kinds.Object{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "node", UID: "mine"}}, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "leader", UID: "other"}}}
	if all := w.all(lease); len(all) != 2 || get[*coordinationv1.Lease](w, lease, "kube-node-lease/node").UID != "mine" {
		t.Errorf("with those of clients: %v", all)
	}
}

// kept are objects that clients have written.
type kept struct {
	objects []kinds.Object
	last    map[types.UID]*metav1.ObjectMeta
}

func (k *kept) Last(uid types.UID) *metav1.ObjectMeta { return k.last[uid] }

func (k *kept) Objects(of *kinds.Kind) []kinds.Object {
	var all []kinds.Object
	for _, o := range k.objects {
		if x, _, err := kinds.Scheme().ObjectKinds(o); err == nil && x[0] == of.GroupVersionKind {
			all = append(all, o)
		}
	}
	return all
}

func TestNamespacesAndWhatIsInEach(t *testing.T) {
	removed := metav1.Now()
	own := &kept{objects: []kinds.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made", UID: "uid-1", Labels: map[string]string{"a": "b"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going", UID: "uid-2", DeletionTimestamp: &removed}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "made", UID: "uid-3"}},
	}}
	w := newWorld(t, func(c *Config) { c.Kept, c.CA = own, func() string { return "PEM" } })
	w.state.Publish(desired(t, files, objectsYAML))
	var names []string
	for _, o := range w.all("Namespace") {
		n := o.(*corev1.Namespace)
		names = append(names, n.Name+" "+string(n.Status.Phase))
		if n.Labels[corev1.LabelMetadataName] != n.Name || n.UID == "" || n.CreationTimestamp.IsZero() {
			t.Errorf("%+v", n)
		}
		if c := get[*corev1.ConfigMap](w, "ConfigMap", n.Name+"/"+rootCA); c.Data["ca.crt"] != "PEM" {
			t.Errorf("%+v", c)
		}
		if a := get[*corev1.ServiceAccount](w, "ServiceAccount", n.Name+"/default"); (a.UID == "uid-3") != (n.Name == "made") {
			t.Errorf("%+v", a)
		}
	}
	slices.Sort(names)
	if want := []string{"default Active", "going Terminating", "kube-node-lease Active", "kube-public Active", "kube-system Active", "made Active", "shop Active"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	if n := get[*corev1.Namespace](w, "Namespace", "made"); n.UID != "uid-1" || n.Labels["a"] != "b" || len(own.objects[0].GetLabels()) != 1 {
		t.Errorf("%+v", n)
	}
}

func TestServiceOfTheAPI(t *testing.T) {
	address := "nonsense"
	w := newWorld(t, func(c *Config) { c.APIAddress = func() (string, string) { return address, address } })
	if all := w.all("Service"); len(all) > 0 {
		t.Errorf("%v", all)
	}
	address = "10.2.0.1:6443"
	s, e := get[*corev1.Service](w, "Service", "default/kubernetes"), get[*corev1.Endpoints](w, "Endpoints", "default/kubernetes")
	slice := get[*discoveryv1.EndpointSlice](w, "discovery.k8s.io/v1/EndpointSlice", "default/kubernetes")
	if s.UID == "" || e.UID == "" || slice.UID == "" || s.Spec.ClusterIP != "10.2.0.1" {
		t.Errorf("%+v, %+v, %+v", s, e, slice)
	}
	if again := get[*corev1.Service](w, "Service", "default/kubernetes"); again != s {
		t.Error("it has not changed and is another object")
	}
}

func TestServicesHaveEndpointsOfTheirPods(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		w.publish(desired(t, files, objectsYAML+podYAML("a", "")))
		w.settle()
		slices := w.all("discovery.k8s.io/v1/EndpointSlice")
		if len(slices) != 1 || !metav1.IsControlledBy(slices[0], get[*corev1.Service](w, "Service", "web")) {
			t.Fatalf("%+v", slices)
		}
		if e := get[*corev1.Endpoints](w, "Endpoints", "web"); e.UID == "" || e.Namespace != "default" {
			t.Errorf("%+v", e)
		}
	})
}
