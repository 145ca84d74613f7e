package endpoints_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/daemon/kubeview/endpoints"
	"monopod/internal/model"
)

// pod returns a pod of app web with addresses; it is ready unless it is changed.
func pod(name string, change func(*corev1.Pod), ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}}}
	p.Spec.NodeName = "node"
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		p.Status.PodIP = ips[0]
	}
	if change != nil {
		change(p)
	}
	return p
}

func unready(p *corev1.Pod)     { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid"}}
	s.Spec.Selector = map[string]string{"app": "web"}
	s.Spec.ClusterIP = "10.0.0.1"
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}
	if change != nil {
		change(s)
	}
	return s
}

// lines writes Endpoints and EndpointSlices as text.
func lines(s *corev1.Service, pods []endpoints.Backend) []string {
	var out []string
	for _, subset := range endpoints.Endpoints(s, pods).Subsets {
		var ready, others, ports []string
		for _, a := range subset.Addresses {
			ready = append(ready, a.IP)
		}
		for _, a := range subset.NotReadyAddresses {
			others = append(others, a.IP)
		}
		for _, p := range subset.Ports {
			ports = append(ports, fmt.Sprintf("%s:%d/%s", p.Name, p.Port, p.Protocol))
		}
		out = append(out, fmt.Sprintf("ready %v, not %v, %v", ready, others, ports))
	}
	for _, slice := range endpoints.Slices(s, pods) {
		var all []string
		for _, e := range slice.Endpoints {
			text := strings.Join(e.Addresses, "+")
			for name, is := range map[string]bool{" ready": *e.Conditions.Ready} {
				if is {
					text += name
				}
			}
			if *e.Conditions.Serving {
				text += " serving"
			}
			if *e.Conditions.Terminating {
				text += " terminating"
			}
			all = append(all, text)
		}
		for _, p := range slice.Ports {
			all = append(all, fmt.Sprintf("%s:%d/%s", *p.Name, *p.Port, *p.Protocol))
		}
		out = append(out, string(slice.AddressType)+": "+strings.Join(all, ", "))
	}
	return out
}

func TestEndpointsOfServices(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Service)
		pods   []*corev1.Pod
		want   []string
	}{
		"no pods": {nil, nil, []string{"IPv4: "}},
		"ready and not": {
			nil,
			[]*corev1.Pod{pod("b", nil, "10.1.0.2"), pod("a", unready, "10.1.0.1")},
			[]string{"ready [10.1.0.2], not [10.1.0.1], [http:8080/TCP]", "IPv4: 10.1.0.1, 10.1.0.2 ready serving, http:8080/TCP"},
		},
		"terminating": {
			nil,
			[]*corev1.Pod{pod("a", terminating, "10.1.0.1"), pod("b", nil, "10.1.0.2")},
			[]string{"ready [10.1.0.2], not [], [http:8080/TCP]", "IPv4: 10.1.0.1 serving terminating, 10.1.0.2 ready serving, http:8080/TCP"},
		},
		"without waiting for ready": {
			func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
			[]*corev1.Pod{pod("a", unready, "10.1.0.1")},
			[]string{"ready [10.1.0.1], not [], [http:8080/TCP]", "IPv4: 10.1.0.1 ready serving, http:8080/TCP"},
		},
		"other pods": {
			nil,
			[]*corev1.Pod{
				pod("other app", func(p *corev1.Pod) { p.Labels["app"] = "x" }, "10.1.0.1"), pod("other namespace", func(p *corev1.Pod) { p.Namespace = "x" }, "10.1.0.1"),
				pod("no address", nil), pod("ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "10.1.0.1"),
				pod("no such port", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }, "10.1.0.1"),
			},
			[]string{"IPv4: "},
		},
		"UDP": {
			func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}}
			},
			[]*corev1.Pod{pod("a", nil, "10.1.0.1")},
			[]string{"ready [10.1.0.1], not [], [dns:53/UDP]", "IPv4: 10.1.0.1 ready serving, dns:53/UDP"},
		},
		"a port without a target": {
			func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 81}} },
			[]*corev1.Pod{pod("a", nil, "10.1.0.1")},
			[]string{"ready [10.1.0.1], not [], [:81/TCP]", "IPv4: 10.1.0.1 ready serving, :81/TCP"},
		},
		"headless without ports": {
			func(s *corev1.Service) { s.Spec.Ports, s.Spec.ClusterIP = nil, corev1.ClusterIPNone },
			[]*corev1.Pod{pod("a", nil, "10.1.0.1")},
			[]string{"ready [10.1.0.1], not [], []", "IPv4: 10.1.0.1 ready serving"},
		},
		"names of different ports": {
			nil,
			[]*corev1.Pod{pod("a", nil, "10.1.0.1"), pod("b", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 }, "10.1.0.2")},
			[]string{
				"ready [10.1.0.1], not [], [http:8080/TCP]", "ready [10.1.0.2], not [], [http:9090/TCP]",
				"IPv4: 10.1.0.1 ready serving, http:8080/TCP", "IPv4: 10.1.0.2 ready serving, http:9090/TCP",
			},
		},
		"both families": {
			nil,
			[]*corev1.Pod{pod("a", nil, "10.1.0.1", "fd00::1")},
			[]string{"ready [10.1.0.1], not [], [http:8080/TCP]", "IPv4: 10.1.0.1 ready serving, http:8080/TCP", "IPv6: fd00::1 ready serving, http:8080/TCP"},
		},
		"the second family": {
			func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			[]*corev1.Pod{pod("a", nil, "10.1.0.1", "fd00::1"), pod("b", nil, "10.1.0.2")},
			[]string{"ready [fd00::1], not [], [http:8080/TCP]", "IPv6: fd00::1 ready serving, http:8080/TCP"},
		},
	} {
		s := service(c.change)
		if got := lines(s, endpoints.NewIndex(c.pods).Behind(s, nil)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s, want\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestEndpointsInWords(t *testing.T) {
	pods := []*corev1.Pod{pod("a", nil, "10.1.0.1"), pod("b", unready, "10.1.0.2"), pod("c", nil, "fd00::3")}
	var many []*corev1.Pod
	for i := range 10 {
		many = append(many, pod(fmt.Sprint("m", i), nil, fmt.Sprintf("10.1.1.%d", i)))
	}
	for _, c := range []struct {
		s    *corev1.Service
		pods []*corev1.Pod
		want string
	}{
		{service(nil), pods, "80/TCP -> 10.1.0.1:8080, [fd00::3]:8080"},
		{service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }), pods[:2], "80/TCP -> 10.1.0.1:8080, 10.1.0.2:8080"},
		{service(nil), pods[1:2], "80/TCP -> <none>"},
		{service(nil), []*corev1.Pod{pod("d", terminating, "10.1.0.4")}, "80/TCP -> <none>"},
		{service(func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")})
		}), pods[:1], "80/TCP -> 10.1.0.1:8080\n53/UDP -> 10.1.0.1:53"},
		{service(func(s *corev1.Service) { s.Spec.Ports = nil }), pods[:1], "10.1.0.1"},
		{service(nil), many[:9], "80/TCP -> 10.1.1.0:8080, 10.1.1.1:8080, 10.1.1.2:8080, 10.1.1.3:8080, 10.1.1.4:8080, 10.1.1.5:8080, 10.1.1.6:8080, 10.1.1.7:8080, and 1 more"},
		{service(func(s *corev1.Service) { s.Spec.Selector = nil }), pods, ""},
	} {
		if got := endpoints.Words(model.Endpoints{Pods: c.pods})(c.s); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

func TestServicesWithoutEndpoints(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"no selector":  func(s *corev1.Service) { s.Spec.Selector = nil },
		"another name": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
	} {
		s := service(change)
		if endpoints.Computed(s) || endpoints.NewIndex([]*corev1.Pod{pod("a", nil, "10.1.0.1")}).Behind(s, nil) != nil {
			t.Errorf("%s: it has endpoints", name)
		}
	}
}

func TestMetadataOfSlices(t *testing.T) {
	s := service(func(s *corev1.Service) {
		s.Labels, s.Spec.ClusterIP = map[string]string{"a": "b"}, corev1.ClusterIPNone
	})
	named := pod("a", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain, p.UID = "one", "web", "pod-uid" }, "10.1.0.1")
	pods := endpoints.NewIndex([]*corev1.Pod{named}).Behind(s, nil)
	all := endpoints.Slices(s, pods)
	if len(all) != 1 {
		t.Fatalf("%d slices", len(all))
	}
	slice := all[0]
	if !strings.HasPrefix(slice.Name, "web-") || slice.Namespace != "shop" || slice.OwnerReferences[0].UID != "uid" {
		t.Errorf("%+v", slice.ObjectMeta)
	}
	for key, want := range map[string]string{"a": "b", discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: endpoints.ManagedBy, corev1.IsHeadlessService: ""} {
		if got, ok := slice.Labels[key]; !ok || got != want {
			t.Errorf("label %s: %q", key, got)
		}
	}
	if e := slice.Endpoints[0]; *e.Hostname != "one" || *e.NodeName != "node" || e.TargetRef.UID != "pod-uid" || e.TargetRef.Name != "a" {
		t.Errorf("%+v", e)
	}
	if e := endpoints.Endpoints(s, pods); e.Subsets[0].Addresses[0].Hostname != "one" || e.Labels["a"] != "b" || len(s.Labels) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestLargeServicesHaveSeveralSlices(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 250 {
		pods = append(pods, pod(fmt.Sprintf("p%03d", i), nil, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	s := service(nil)
	all := endpoints.Slices(s, endpoints.NewIndex(pods).Behind(s, nil))
	names, count := map[string]bool{}, 0
	for _, slice := range all {
		names[slice.Name] = true
		count += len(slice.Endpoints)
	}
	if len(names) != 3 || count != 250 {
		t.Errorf("%d slices, %d endpoints", len(names), count)
	}
}
