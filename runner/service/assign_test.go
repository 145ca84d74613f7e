package service

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func config(ranges ...string) Config {
	c := Config{Instance: "one", Node: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}}
	for _, r := range ranges {
		c.Ranges = append(c.Ranges, netip.MustParsePrefix(r))
	}
	return c
}

func dual() Config { return config("10.96.0.0/16", "fd10:96::/112") }

func svc(name string, edit ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.Selector = map[string]string{"app": name}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}
	for _, e := range edit {
		e(&s.Spec)
	}
	return s
}

func typed(t corev1.ServiceType) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.Type = t }
}

func ip(text string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.ClusterIP = text }
}

func nodePort(n int32) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, n }
}

func families(policy corev1.IPFamilyPolicy, all ...corev1.IPFamily) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) { s.IPFamilyPolicy, s.IPFamilies = &policy, all }
}

// kinds writes an address as the family that it has; others as they are.
func kinds(ips []string) string {
	var out []string
	for _, text := range ips {
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			out = append(out, text)
		case dual().Ranges[0].Contains(a):
			out = append(out, "4")
		case dual().Ranges[1].Contains(a):
			out = append(out, "6")
		default:
			out = append(out, text)
		}
	}
	return strings.Join(out, ",")
}

func TestWhichServicesHaveWhichAddresses(t *testing.T) {
	tests := []struct {
		name   string
		edit   func(*corev1.ServiceSpec)
		config Config
		ips    string
		note   string
	}{
		{"a usual one", nil, dual(), "4", ""},
		{"the first range is the usual one", nil, config("fd10:96::/112", "10.96.0.0/16"), "6", ""},
		{"headless", ip("None"), dual(), "", ""},
		{"another name", func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "example.com" }, dual(), "", ""},
		{"without ports", func(s *corev1.ServiceSpec) { s.Ports = nil }, dual(), "", ""},
		{"IPv6", families(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol), dual(), "6", ""},
		{"both", families(corev1.IPFamilyPolicyPreferDualStack), dual(), "4,6", ""},
		{"both, IPv6 first", families(corev1.IPFamilyPolicyRequireDualStack, corev1.IPv6Protocol, corev1.IPv4Protocol), dual(), "6,4", ""},
		{"both of one", families(corev1.IPFamilyPolicyPreferDualStack), config("10.96.0.0/16"), "4", ""},
		{"a family that does not exist", families(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol), config("10.96.0.0/16"), "4", ""},
		{"outside of the range", ip("192.168.0.1"), dual(), "4", "spec.clusterIP 192.168.0.1 is not in serviceSubnet; a different address is used: write a free one or none"},
		{"the first of the range", ip("10.96.0.0"), dual(), "4", "spec.clusterIP 10.96.0.0 is not in serviceSubnet; a different address is used: write a free one or none"},
		{"no address", ip("many"), dual(), "4", "spec.clusterIP many is not in serviceSubnet; a different address is used: write a free one or none"},
		{"no range", nil, config(), "", ""},
		{"too small", nil, config("10.97.0.0/31"), "", "serviceSubnet 10.97.0.0/31 has no free address: the name resolves to the pods"},
	}
	for _, tt := range tests {
		s := svc("web")
		if tt.edit != nil {
			tt.edit(&s.Spec)
		}
		before := s.DeepCopy()
		got, _, notes := Assign([]*corev1.Service{s}, Memory{}, tt.config)
		if k := kinds(got[0].Spec.ClusterIPs); k != tt.ips {
			t.Errorf("%s: %v", tt.name, got[0].Spec.ClusterIPs)
		}
		note := ""
		if len(notes) > 0 {
			note = notes[0].Text
		}
		if note != tt.note || len(notes) > 1 {
			t.Errorf("%s: %v", tt.name, notes)
		}
		if !slices.Equal(s.Spec.ClusterIPs, before.Spec.ClusterIPs) || s.Spec.ClusterIP != before.Spec.ClusterIP {
			t.Errorf("%s: the argument was modified", tt.name)
		}
	}
}

func TestAddressesThatAreAskedForAreGiven(t *testing.T) {
	got, m, notes := Assign([]*corev1.Service{
		svc("b", ip("10.96.0.10")), svc("a", ip("10.96.0.10")), svc("c", func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{"fd10:96::a", "10.96.0.11"} },
			families(corev1.IPFamilyPolicyRequireDualStack, corev1.IPv6Protocol, corev1.IPv4Protocol)),
	}, Memory{Services: map[string]Allocation{"default/d": {IPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}}}}, dual())
	if got[0].Spec.ClusterIP != "10.96.0.10" || got[1].Spec.ClusterIP == "10.96.0.10" || !slices.Equal(got[2].Spec.ClusterIPs, []string{"fd10:96::a", "10.96.0.11"}) {
		t.Errorf("%v, %v, %v", got[0].Spec.ClusterIPs, got[1].Spec.ClusterIPs, got[2].Spec.ClusterIPs)
	}
	if len(notes) != 1 || notes[0] != (Note{"default/b", "spec.clusterIP 10.96.0.10 is already used by Service default/a; a different address is used: write a free one or none"}) {
		t.Errorf("%v", notes)
	}
	if len(m.Services["default/d"].IPs) != 0 {
		t.Errorf("what was taken over is remembered: %v", m)
	}
}

// TestAddressesStay is about random edits: a Service that stays has what it had, and no two have the same.
func TestAddressesStay(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	c := config("10.97.0.0/25")
	var m Memory
	had := map[string]string{}
	for range 200 {
		var all []*corev1.Service
		for i := range 60 {
			if r.Intn(3) > 0 {
				all = append(all, svc(fmt.Sprint("s", i), typed(corev1.ServiceTypeNodePort)))
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		given, next, notes := Assign(all, m, c)
		if len(notes) > 0 {
			t.Fatal(notes)
		}
		owner := map[string]string{}
		for _, s := range given {
			for _, what := range []string{s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].NodePort)} {
				if owner[what] != "" || what == "" || what == "0" {
					t.Fatalf("%s and %s have %q", owner[what], s.Name, what)
				}
				owner[what] = s.Name
			}
			if before := had[s.Name]; before != "" && before != s.Spec.ClusterIP {
				t.Fatalf("%s had %s and has %s", s.Name, before, s.Spec.ClusterIP)
			}
			had[s.Name] = s.Spec.ClusterIP
		}
		if again, same, _ := Assign(all, next, c); !same.Equal(next) || again[0].Spec.ClusterIP != given[0].Spec.ClusterIP {
			t.Fatal("the same again differs")
		}
		m = next
	}
	if fresh, _, _ := Assign([]*corev1.Service{svc("s1")}, Memory{}, c); fresh[0].Spec.ClusterIP == "" {
		t.Error("no address")
	}
}

// TestAddressesOfAnAPIServerAreKept: also those outside of the ranges, and no other Service gets them.
func TestAddressesOfAnAPIServerAreKept(t *testing.T) {
	c := dual()
	c.Origins = from("apiserver: there z", "fleet: here asks")
	there := svc("there", nodePort(30080), ip("172.20.0.9"))
	there.Spec.ClusterIPs = []string{"172.20.0.9", "fd20::9"}
	inside := svc("z", ip("10.96.7.7"))
	inside.Spec.ClusterIPs = []string{"10.96.7.7"}
	before := Memory{Services: map[string]Allocation{"default/here": {IPs: []netip.Addr{netip.MustParseAddr("10.96.7.7")}, NodePorts: map[string]uint16{"tcp/80": 30080}}}}
	all, after, notes := Assign([]*corev1.Service{there, svc("here", typed(corev1.ServiceTypeNodePort)), svc("asks", ip("10.96.7.7")), inside}, before, c)
	for _, s := range all {
		switch s.Name {
		case "there":
			if s.Spec.ClusterIP != "172.20.0.9" || !slices.Equal(s.Spec.ClusterIPs, there.Spec.ClusterIPs) || s.Spec.Ports[0].NodePort != 30080 {
				t.Errorf("%+v", s.Spec)
			}
		case "z":
			if s.Spec.ClusterIP != "10.96.7.7" {
				t.Errorf("%+v", s.Spec)
			}
		default:
			if s.Spec.ClusterIP == "10.96.7.7" || s.Spec.ClusterIP == "" || s.Spec.Ports[0].NodePort == 30080 {
				t.Errorf("%s: %+v", s.Name, s.Spec)
			}
		}
	}
	if _, remembered := after.Services["default/there"]; remembered || len(notes) != 1 || notes[0].Service != "default/asks" {
		t.Errorf("%+v %+v", after, notes)
	}
}

func TestAFullRangeIsUsedToItsEnd(t *testing.T) {
	c := config("10.97.0.0/28")
	var all []*corev1.Service
	for i := range 15 {
		all = append(all, svc(fmt.Sprintf("s%02d", i)))
	}
	given, m, notes := Assign(all, Memory{}, c)
	if len(notes) != 1 || notes[0].Service != "default/s14" || given[14].Spec.ClusterIP != "" {
		t.Errorf("%v", notes)
	}
	// Addresses of Services that are gone are used when there are no others.
	others := []*corev1.Service{svc("x"), svc("y")}
	if given, m, notes = Assign(others, m, c); len(notes) > 0 || given[0].Spec.ClusterIP == given[1].Spec.ClusterIP {
		t.Errorf("%v", notes)
	}
	if _, m, _ = Assign(others, m, c); len(m.Services) == 0 {
		t.Error("nothing is remembered")
	}
}

func TestInstancesChooseDifferentAddresses(t *testing.T) {
	c := dual()
	one, _, _ := Assign([]*corev1.Service{svc("web", nodePort(0))}, Memory{}, c)
	c.Instance = "two"
	two, _, _ := Assign([]*corev1.Service{svc("web", nodePort(0))}, Memory{}, c)
	if one[0].Spec.ClusterIP == two[0].Spec.ClusterIP || one[0].Spec.Ports[0].NodePort == two[0].Spec.Ports[0].NodePort {
		t.Errorf("%v", one[0].Spec)
	}
}

func TestNodePorts(t *testing.T) {
	off := false
	got, m, notes := Assign([]*corev1.Service{
		svc("a", nodePort(30080)), svc("b", nodePort(30080)), svc("c", nodePort(80)), svc("d", nodePort(0)), svc("e"),
		svc("f", nodePort(30080), func(s *corev1.ServiceSpec) { s.Ports[0].Protocol = corev1.ProtocolUDP }),
		svc("g", typed(corev1.ServiceTypeLoadBalancer)),
		svc("h", typed(corev1.ServiceTypeLoadBalancer), func(s *corev1.ServiceSpec) { s.AllocateLoadBalancerNodePorts, s.Ports[0].Port = &off, 81 }),
		svc("i", nodePort(30081), typed(corev1.ServiceTypeClusterIP)),
	}, Memory{}, dual())
	for i, s := range got {
		n := s.Spec.Ports[0].NodePort
		asked, none := s.Name == "a" || s.Name == "f", s.Name == "e" || s.Name == "h" || s.Name == "i"
		if asked && n != 30080 || none && n != 0 || !asked && !none && (n < FirstNodePort || n > LastNodePort || n == 30080) {
			t.Errorf("%d %s has %d", i, s.Name, n)
		}
	}
	want := []Note{
		{"default/b", "spec.ports[0].nodePort 30080 is already used by Service default/a; a different port is used: write a free one or none"},
		{"default/c", "spec.ports[0].nodePort 80 is not between 30000 and 32767; a different port is used: write a free one or none"},
	}
	if !slices.Equal(notes, want) {
		t.Errorf("%v", notes)
	}
	// An edit of a Service leaves its ports.
	edited := svc("d", nodePort(0), func(s *corev1.ServiceSpec) { s.Ports = append(s.Ports, corev1.ServicePort{Name: "x", Port: 81}) })
	again, _, _ := Assign([]*corev1.Service{edited}, m, dual())
	if p := again[0].Spec.Ports; p[0].NodePort != got[3].Spec.Ports[0].NodePort || p[1].NodePort == 0 || p[1].NodePort == p[0].NodePort {
		t.Errorf("%v", p)
	}
}

func TestLoadBalancersHaveTheAddressOfTheNode(t *testing.T) {
	class := "other"
	for name, tt := range map[string]struct {
		edit func(*corev1.ServiceSpec)
		want string
	}{
		"usual":     {nil, "192.0.2.7"},
		"both":      {families(corev1.IPFamilyPolicyPreferDualStack), "192.0.2.7 2001:db8::7"},
		"of others": {func(s *corev1.ServiceSpec) { s.LoadBalancerClass = &class }, ""},
	} {
		s := svc("web", typed(corev1.ServiceTypeLoadBalancer))
		if tt.edit != nil {
			tt.edit(&s.Spec)
		}
		got, _, _ := Assign([]*corev1.Service{s}, Memory{}, dual())
		var ips []string
		for _, in := range got[0].Status.LoadBalancer.Ingress {
			ips = append(ips, in.IP)
		}
		if strings.Join(ips, " ") != tt.want {
			t.Errorf("%s: %v", name, ips)
		}
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	got, _, notes := Assign([]*corev1.Service{
		svc("a", typed(corev1.ServiceTypeLoadBalancer), func(s *corev1.ServiceSpec) {
			s.Ports[0].TargetPort, s.SessionAffinity = intstr.IntOrString{}, corev1.ServiceAffinityClientIP
			s.Ports = append(s.Ports, corev1.ServicePort{Name: "sctp", Port: 3868, Protocol: corev1.ProtocolSCTP})
		}), svc("a"),
	}, Memory{}, dual())
	if len(got) != 1 {
		t.Fatalf("a Service that exists twice: %v", got)
	}
	s := got[0].Spec
	if s.Ports[0].Protocol != corev1.ProtocolTCP || s.Ports[0].TargetPort.IntVal != 80 || *s.SessionAffinityConfig.ClientIP.TimeoutSeconds != 10800 ||
		*s.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster || s.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyCluster || !*s.AllocateLoadBalancerNodePorts {
		t.Errorf("%+v", s)
	}
	if len(notes) != 1 || !strings.Contains(notes[0].Text, "spec.ports[1]: SCTP is not supported") {
		t.Errorf("%v", notes)
	}
}
