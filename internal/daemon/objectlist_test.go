package daemon

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/kubeview"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node/apiserver"
	"monopod/node/kubeapi/kinds"
)

// withServices returns a core with Services.
func withServices(tb testing.TB, count int) *core {
	tb.Helper()
	c := newTestCore(tb, nil)
	var d model.Desired
	for i := range count {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s-", i)}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		d.Objects = append(d.Objects, &manifests.Object{Kind: "Service", Object: s, Origin: manifests.Origin{Source: config.SourceFile, File: "/m/a.yaml", Line: 1}})
	}
	c.state.Publish(d)
	return c
}

// BenchmarkAThousandServices lists them for clients of both APIs.
func BenchmarkAThousandServices(b *testing.B) {
	c := withServices(b, 1000)
	b.Run("monopod.dev", func(b *testing.B) {
		l := listOf(c, c.services.Assigned)
		for b.Loop() {
			l.list()
		}
	})
	b.Run("Kubernetes", func(b *testing.B) {
		v := viewOf(c, c.services.Assigned)
		for b.Loop() {
			v.Objects(b.Context())
		}
	})
}

func listOf(c *core, services func() map[manifests.Key]*corev1.Service) *objectList {
	return &objectList{node: "node", state: c.state, services: services, gate: c.gate, pressure: func() []corev1.NodeCondition { return nil }}
}

func viewOf(c *core, services func() map[manifests.Key]*corev1.Service) *kubeview.View {
	return kubeview.New(kubeview.Config{Node: "node", State: c.state, Facts: func() apiserver.Facts { return apiserver.Facts{} }, Services: services})
}

// TestServicesAreAssignedOncePerList: an assignment compares all Services, so one for each of them would take quadratic time.
func TestServicesAreAssignedOncePerList(t *testing.T) {
	c, calls := withServices(t, 3), 0
	counted := func() map[manifests.Key]*corev1.Service {
		calls++
		given := map[manifests.Key]*corev1.Service{}
		for key, s := range c.services.Assigned() {
			s = s.DeepCopy()
			s.Spec.ClusterIP = "10.96.0.9"
			given[key] = s
		}
		return given
	}
	check := func(what string, clusterIPs int) {
		t.Helper()
		if calls != 1 || clusterIPs != 3 {
			t.Errorf("%s: %d assignments, %d Services with their address", what, calls, clusterIPs)
		}
		calls = 0
	}
	with := 0
	for _, o := range listOf(c, counted).list() {
		if s, ok := o.(*corev1.Service); ok && s.Spec.ClusterIP == "10.96.0.9" {
			with++
		}
	}
	check("monopod.dev", with)
	with = 0
	objects, _ := viewOf(c, counted).Objects(t.Context())
	for _, o := range objects[kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Service"))] {
		if o.(*corev1.Service).Spec.ClusterIP == "10.96.0.9" {
			with++
		}
	}
	check("Kubernetes", with)
}
