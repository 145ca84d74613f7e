package streams

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestTargetsOfProxies(t *testing.T) {
	pod := web()
	bare := &corev1.Pod{}
	for _, c := range []struct {
		text string
		pod  *corev1.Pod
		want string
	}{
		{"web", pod, "false web 8080"},
		{"web", bare, "false web 80"},
		{"https:web:", bare, "true web 443"},
		{"web:9090", pod, "false web 9090"},
		{"http:web:http", pod, "false web 8080"},
		{"web:metrics", pod, `pod web has no port "metrics"`},
		{"web:0", pod, `has no port "0"`},
		{"web:65536", pod, `has no port "65536"`},
		{"ftp:web:21", pod, `"ftp:web:21" is invalid`},
		{"a:b:c:d", pod, "is invalid"},
		{":80", pod, "is invalid"},
	} {
		target, err := ParseTarget(c.text)
		port := 0
		if err == nil {
			port, err = target.PodPort(c.pod)
		}
		var got string
		if err != nil {
			if got = err.Error(); !apierrors.IsBadRequest(err) {
				t.Errorf("%s: %v is no 400", c.text, err)
			}
		} else {
			got = fmt.Sprintf("%t %s %d", target.Secure, target.Name, port)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestBackendsOfAService(t *testing.T) {
	address := func(kind, name string) corev1.EndpointAddress {
		return corev1.EndpointAddress{IP: "10.0.0.1", TargetRef: &corev1.ObjectReference{Kind: kind, Name: name}}
	}
	two := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}}}}
	one := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	unnamed := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	endpoints := func(name string) *corev1.Endpoints {
		return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{
			{
				Addresses: []corev1.EndpointAddress{address("Pod", "a"), address("Pod", "b"), {IP: "8.8.8.8"}, address("Node", "n")},
				Ports:     []corev1.EndpointPort{{Name: name, Port: 8080}, {Name: "metrics", Port: 9}},
			},
			{NotReadyAddresses: []corev1.EndpointAddress{address("Pod", "c")}, Ports: []corev1.EndpointPort{{Name: name, Port: 8080}}},
		}}
	}
	for _, c := range []struct {
		service   *corev1.Service
		endpoints *corev1.Endpoints
		port      string
		want      string
	}{
		{one, endpoints("http"), "", "[{a 8080} {b 8080}]"},
		{unnamed, endpoints(""), "", "[{a 8080} {b 8080}]"},
		{two, endpoints("http"), "80", "[{a 8080} {b 8080}]"},
		{two, endpoints("http"), "metrics", "[{a 9} {b 9}]"},
		{two, endpoints("http"), "", "no endpoints available"},
		{two, endpoints("http"), "81", "no service port 81 found"},
		{two, endpoints("http"), "nope", "no endpoints available"},
		{one, &corev1.Endpoints{}, "", "no endpoints available"},
	} {
		all, err := Target{Name: "s", Port: c.port}.Backends(c.service, c.endpoints)
		got := fmt.Sprint(all)
		if err != nil {
			if got = err.Error(); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("%v is no 503", err)
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("port %q: %s, want %s", c.port, got, c.want)
		}
	}
}
