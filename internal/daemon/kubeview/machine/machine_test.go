package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServiceOfTheAPI(t *testing.T) {
	for address, want := range map[string]struct {
		host string
		kind discoveryv1.AddressType
	}{"": {}, "nonsense": {}, "10.2.0.1:6443": {"10.2.0.1", discoveryv1.AddressTypeIPv4}, "[fd00::1]:6443": {"fd00::1", discoveryv1.AddressTypeIPv6}} {
		api := NewAPI(address, address)
		if want.host == "" || api == nil {
			if want.host != "" || api != nil {
				t.Errorf("%q: %+v", address, api)
			}
			continue
		}
		s, e, slice := api.Service, api.Endpoints.Subsets[0], api.Slice
		if s.Spec.ClusterIP != want.host || s.Spec.Ports[0].Port != 6443 || e.Addresses[0].IP != want.host || slice.AddressType != want.kind || slice.Endpoints[0].Addresses[0] != want.host || *slice.Ports[0].Port != 6443 {
			t.Errorf("%q: %+v, %+v, %+v", address, s, e, slice)
		}
		if len(s.Labels) != 2 || len(api.Endpoints.Labels) != 1 || slice.Labels[discoveryv1.LabelServiceName] != APIService {
			t.Errorf("%q: %v, %v, %v", address, s.Labels, api.Endpoints.Labels, slice.Labels)
		}
	}
}

func TestHeartbeatsOfUnchangedConditionsAreKept(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(reason string, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Reason: reason, Status: status}}}}
	}
	before := node("A", corev1.ConditionTrue)
	Stamp(before, nil, metav1.NewTime(start))
	for name, c := range map[string]struct {
		n                *corev1.Node
		after            time.Duration
		beat, transition bool
	}{
		"unchanged":      {node("A", corev1.ConditionTrue), Heartbeat - time.Second, false, false},
		"due":            {node("A", corev1.ConditionTrue), Heartbeat, true, false},
		"another reason": {node("B", corev1.ConditionTrue), time.Second, true, false},
		"another status": {node("A", corev1.ConditionFalse), time.Second, true, true},
	} {
		now := start.Add(c.after)
		Stamp(c.n, before, metav1.NewTime(now))
		if got := c.n.Status.Conditions[0]; got.LastHeartbeatTime.Time.Equal(now) != c.beat || got.LastTransitionTime.Time.Equal(now) != c.transition {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestLeasesAreRenewed(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := Lease(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "uid"}}, 39500*time.Millisecond, now)
	if *l.Spec.LeaseDurationSeconds != 40 || *l.Spec.HolderIdentity != "node" || l.OwnerReferences[0].UID != "uid" {
		t.Errorf("%+v", l)
	}
	if !Due(nil, now) || Due(l, now.Add(RenewEvery)) || !Due(l, now.Add(RenewEvery+time.Second)) || !Due(l, now.Add(-time.Second)) {
		t.Error("it is renewed after RenewEvery, and if the clock was set back")
	}
}
