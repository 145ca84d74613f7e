package service

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

func in(namespace string, s *corev1.Service) *corev1.Service {
	s.Namespace = namespace
	return s
}

func external(ips ...string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.ExternalIPs = ips }
}

func onPort(n int32) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.Ports[0].Port = n }
}

// TestALaterServiceTakesNothing: an earlier one keeps its addresses, node ports and frontends, whatever the later one asks for and is called.
func TestALaterServiceTakesNothing(t *testing.T) {
	first := in("zzz", svc("db", typed(corev1.ServiceTypeLoadBalancer), external("203.0.113.1")))
	had, m, _ := Assign([]*corev1.Service{first}, Memory{}, dual())
	at, node := had[0].Spec.ClusterIP, had[0].Spec.Ports[0].NodePort
	frontends := func(given []*corev1.Service, m Memory) (all []string) {
		for _, p := range Plan(model.Endpoints{Services: given}, m).Ports {
			if p.Service == "zzz/db" {
				all = append(all, fmt.Sprint(p.Frontend))
			}
		}
		return all
	}
	before := frontends(had, m)
	for name, c := range map[string]struct {
		edit func(*corev1.ServiceSpec)
		note string
	}{
		"its address":                         {ip(at), "spec.clusterIP " + at + " is already used by Service zzz/db; a different address is used: write a free one or none"},
		"its node port":                       {nodePort(node), fmt.Sprintf("spec.ports[0].nodePort %d is already used by Service zzz/db; a different port is used: write a free one or none", node)},
		"its external IP":                     {external("203.0.113.1"), "port 80/tcp of the external IP 203.0.113.1 is not opened: it is that of Service zzz/db"},
		"another port of its external IP":     {func(s *corev1.ServiceSpec) { external("203.0.113.1")(s); onPort(81)(s) }, ""},
		"its cluster IP as an external one":   {external(at), "port 80/tcp of the external IP " + at + " is not opened: " + at + " is the cluster IP of Service zzz/db"},
		"another port of it":                  {func(s *corev1.ServiceSpec) { external(at)(s); onPort(8443)(s) }, "port 8443/tcp of the external IP " + at + " is not opened: " + at + " is the cluster IP of Service zzz/db"},
		"its load balancer":                   {typed(corev1.ServiceTypeLoadBalancer), "the load balancer does not have the address 192.0.2.7: port 80/tcp is not opened there; it is that of Service zzz/db"},
		"its load balancer by an external IP": {external("192.0.2.7"), "port 80/tcp of the external IP 192.0.2.7 is not opened: it is that of Service zzz/db"},
		"its node port by a load balancer": {
			func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer; onPort(node)(s) },
			fmt.Sprintf("the load balancer does not have the address 192.0.2.7: port %d/tcp is not opened there; it is a node port of Service zzz/db", node),
		},
		"its node port by an external IP": {
			func(s *corev1.ServiceSpec) { external("192.0.2.7")(s); onPort(node)(s) },
			fmt.Sprintf("port %d/tcp of the external IP 192.0.2.7 is not opened: it is a node port of Service zzz/db", node),
		},
	} {
		later := in("aaa", svc("x", c.edit))
		given, after, notes := Assign([]*corev1.Service{first, later}, m, dual())
		if got := given[1].Spec; got.ClusterIP != at || got.Ports[0].NodePort != node || len(given[1].Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		if got := frontends(given, after); !slices.Equal(got, before) {
			t.Errorf("%s: %v, was %v", name, got, before)
		}
		if text := strings.Trim(fmt.Sprint(notes), "[]"); (c.note == "") != (len(notes) == 0) || c.note != "" && (len(notes) != 1 || notes[0] != Note{"aaa/x", c.note}) {
			t.Errorf("%s: %s", name, text)
		}
		if given[0].Spec.ClusterIP == "" || given[0].Spec.ClusterIP == at || later.Spec.Type == corev1.ServiceTypeLoadBalancer && len(given[0].Status.LoadBalancer.Ingress) > 0 {
			t.Errorf("%s: %+v", name, given[0])
		}
	}
}

// TestAMemoryWithoutOrder: an older version has written it. Its Services are the earlier ones.
func TestAMemoryWithoutOrder(t *testing.T) {
	m := Memory{Services: map[string]Allocation{"zzz/db": {IPs: []netip.Addr{netip.MustParseAddr("10.96.9.9")}}}}
	given, after, notes := Assign([]*corev1.Service{in("zzz", svc("db")), in("aaa", svc("x", ip("10.96.9.9")))}, m, dual())
	if given[1].Spec.ClusterIP != "10.96.9.9" || len(notes) != 1 || after.Services["zzz/db"].Order != 1 || after.Services["aaa/x"].Order != 2 {
		t.Errorf("%v %+v", notes, after)
	}
}

// TestAServiceThatComesBackIsALaterOne: meanwhile others may have taken what it had.
func TestAServiceThatComesBackIsALaterOne(t *testing.T) {
	db, x := svc("db", external("203.0.113.1")), svc("x", external("203.0.113.1"))
	var m Memory
	for _, all := range [][]*corev1.Service{{db}, {x}, {x, db}} {
		_, m, _ = Assign(all, m, dual())
	}
	given, m, notes := Assign([]*corev1.Service{x, db}, m, dual())
	if len(notes) != 1 || notes[0].Service != "default/db" {
		t.Error(notes)
	}
	for _, p := range Plan(model.Endpoints{Services: given}, m).Ports {
		if p.Addr.String() == "203.0.113.1" && p.Service != "default/x" {
			t.Error(p)
		}
	}
}

func TestServicesMoveToAddressesThatBecomeFree(t *testing.T) {
	a, b, c := svc("a", ip("10.96.0.10")), svc("b", ip("10.96.0.11")), svc("c", ip("10.96.0.12"))
	_, m, _ := Assign([]*corev1.Service{a, b, c}, Memory{}, dual())
	a.Spec.ClusterIP, b.Spec.ClusterIP, c.Spec.ClusterIP = "10.96.0.11", "10.96.0.12", "10.96.0.13"
	given, m, notes := Assign([]*corev1.Service{a, b, c, svc("d", ip("10.96.0.10"))}, m, dual())
	for i, want := range []string{"10.96.0.11", "10.96.0.12", "10.96.0.13", "10.96.0.10"} {
		if given[i].Spec.ClusterIP != want {
			t.Errorf("%d: %s, want %s", i, given[i].Spec.ClusterIP, want)
		}
	}
	// Two that want each other's stay.
	a.Spec.ClusterIP, b.Spec.ClusterIP = "10.96.0.12", "10.96.0.11"
	given, _, more := Assign([]*corev1.Service{a, b}, m, dual())
	if given[0].Spec.ClusterIP != "10.96.0.11" || given[1].Spec.ClusterIP != "10.96.0.12" || len(notes) > 0 || len(more) != 2 {
		t.Errorf("%v %v", notes, more)
	}
}

// TestNodePortsStayOverAnEmptyStart: as after a start that has read no source yet.
func TestNodePortsStayOverAnEmptyStart(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	var m Memory
	had := map[string]int32{}
	for range 100 {
		var all []*corev1.Service
		for i := range 300 {
			if r.Intn(3) > 0 {
				all = append(all, svc(fmt.Sprint("s", i), typed(corev1.ServiceTypeNodePort)))
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		given, next, _ := Assign(all, m, dual())
		for _, s := range given {
			if before := had[s.Name]; before != 0 && before != s.Spec.Ports[0].NodePort {
				t.Fatalf("%s had %d and has %d", s.Name, before, s.Spec.Ports[0].NodePort)
			}
			had[s.Name] = s.Spec.Ports[0].NodePort
		}
		if m = next; r.Intn(4) == 0 {
			_, m, _ = Assign(nil, m, dual())
		}
	}
}

func TestLoadBalancersRespectExplicitNodePorts(t *testing.T) {
	off := false
	without := func(n int32) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) {
			s.Type, s.AllocateLoadBalancerNodePorts, s.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, &off, n
		}
	}
	given, m, notes := Assign([]*corev1.Service{svc("a", without(30080)), svc("b", without(0), onPort(81)), svc("c", without(30080), onPort(82)), svc("d", without(80), onPort(83))}, Memory{}, dual())
	for i, want := range []int32{30080, 0, 0, 0} {
		if got := given[i].Spec.Ports[0].NodePort; got != want {
			t.Errorf("%s: %d, want %d", given[i].Name, got, want)
		}
	}
	if len(notes) != 2 || !strings.HasSuffix(notes[0].Text, "is already used by Service default/a; it is not opened: write a free one") || !strings.HasSuffix(notes[1].Text, "is not between 30000 and 32767; it is not opened: write a free one") {
		t.Error(notes)
	}
	if given, _, _ = Assign([]*corev1.Service{svc("a", without(0))}, m, dual()); given[0].Spec.Ports[0].NodePort != 0 {
		t.Errorf("%+v", given[0].Spec)
	}
}

func TestFamiliesFollowTheWrittenAddresses(t *testing.T) {
	two := func(policy corev1.IPFamilyPolicy) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) {
			s.ClusterIPs, s.IPFamilyPolicy = []string{"fd10:96::7", "10.96.0.7"}, &policy
		}
	}
	for name, c := range map[string]struct {
		edit func(*corev1.ServiceSpec)
		want string
		note string
	}{
		"IPv6":             {ip("fd10:96::7"), "fd10:96::7", ""},
		"both, IPv6 first": {two(corev1.IPFamilyPolicyRequireDualStack), "fd10:96::7,10.96.0.7", ""},
		"one of two":       {two(corev1.IPFamilyPolicySingleStack), "fd10:96::7", "spec.clusterIP 10.96.0.7 is of an address family that the Service does not have: it is not used; see spec.ipFamilyPolicy"},
	} {
		given, m, notes := Assign([]*corev1.Service{svc("web", c.edit)}, Memory{}, dual())
		text := ""
		for _, n := range notes {
			text += n.Text
		}
		if got := strings.Join(given[0].Spec.ClusterIPs, ","); got != c.want || text != c.note || len(m.Services["default/web"].IPs) != 1+strings.Count(c.want, ",") {
			t.Errorf("%s: %s, %v", name, got, notes)
		}
	}
}
