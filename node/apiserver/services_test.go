package apiserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/decode"
	"monopod/node/apiserver/mirror"
)

func serviceOf(namespace, name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "u", ResourceVersion: "1", Labels: map[string]string{"app": name}, Annotations: map[string]string{"a": "b"},
			Finalizers: []string{"x/y"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip, ClusterIPs: []string{ip}, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}
}

// TestServicesOfTheAPIServerAreTold: with the pods, in one list, so that they count without the API server, too.
func TestServicesOfTheAPIServerAreTold(t *testing.T) {
	g := newGathering(t, bound("a", "yes"))
	g.cfg.Services = true
	told := func() string {
		t.Helper()
		if err := g.once(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, body, _, _ := g.bindings.get()
		c, err := decode.Parts("api", body, decode.Options{Source: mirror.SourceName, Author: decode.AuthorAPIServer})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, o := range c.Objects {
			s := o.Object.(*corev1.Service)
			all = append(all, fmt.Sprintf("%s/%s %s %v", s.Namespace, s.Name, s.Spec.ClusterIP, s.Labels))
			if len(s.Finalizers)+len(s.Annotations)+len(s.Status.LoadBalancer.Ingress) > 0 || s.ResourceVersion != "" {
				t.Errorf("%+v", s)
			}
		}
		return fmt.Sprintf("%d pods, %s", len(c.Pods), strings.Join(all, ", "))
	}
	if err := g.once(t.Context()); !errors.Is(err, errBindingsUnknown) {
		t.Fatalf("pods start before the Services are known, without their variables: %v", err)
	}
	s := g.services
	s.begin()
	for _, o := range []*corev1.Service{serviceOf("shop", "web", "10.0.0.2"), serviceOf("default", "kubernetes", "10.0.0.1"), serviceOf("shop", "db", "10.0.0.3")} {
		s.add(o)
	}
	if _, known := s.documents(); known {
		t.Error("half a list counts")
	}
	s.done()
	if got := told(); got != "1 pods, shop/db 10.0.0.3 map[app:db], shop/web 10.0.0.2 map[app:web]" {
		t.Error(got)
	}
	pokes := func(want bool) {
		t.Helper()
		select {
		case <-g.store.bound:
			if !want {
				t.Error("it looks again for nothing")
			}
		default:
			if want {
				t.Error("nobody looks")
			}
		}
	}
	pokes(true)
	status := serviceOf("shop", "web", "10.0.0.2")
	status.ResourceVersion, status.Status = "2", corev1.ServiceStatus{}
	s.update(status, false)
	pokes(false)
	s.update(serviceOf("shop", "cache", "10.0.0.4"), false)
	s.update(serviceOf("shop", "db", "10.0.0.3"), true)
	pokes(true)
	if got := told(); got != "1 pods, shop/cache 10.0.0.4 map[app:cache], shop/web 10.0.0.2 map[app:web]" {
		t.Error(got)
	}
	s.lost()
	pokes(true)
	if err := g.once(t.Context()); !errors.Is(err, errBindingsUnknown) {
		t.Errorf("what was known counts for another server: %v", err)
	}
	s.update(serviceOf("shop", "late", "10.0.0.5"), false)
	if _, known := s.documents(); known {
		t.Error("one change is taken for all")
	}
}
