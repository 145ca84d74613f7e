package service

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/model"
)

// pod returns a ready pod of the app web.
func pod(name string, edit func(*corev1.Pod), ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web", "tier": "front"}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if edit != nil {
		edit(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func ending(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func http(number int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: number}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}}}
	}
}

// show writes a table, one line per port.
func show(t Table) string {
	var out []string
	for _, p := range t.Ports {
		line := fmt.Sprintf("%s/%s:%d", p.Protocol, p.Addr, p.Port)
		if p.Sticky > 0 {
			line += " for " + p.Sticky.String()
		}
		line += " ->"
		for _, to := range p.To {
			line += " " + to.String()
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestWhereServicesLead(t *testing.T) {
	const at = "10.96.0.10"
	byName := func(s *corev1.ServiceSpec) { s.Ports[0].TargetPort = intstr.FromString("http") }
	always := corev1.ContainerRestartPolicyAlways
	ready := []*corev1.Pod{pod("a", nil, "10.87.0.2", "fd00::2"), pod("b", nil, "10.87.0.3")}
	tests := []struct {
		name string
		edit func(*corev1.ServiceSpec)
		pods []*corev1.Pod
		want string
	}{
		{"ready pods", nil, ready, "tcp/10.96.0.10:80 -> 10.87.0.2:8080 10.87.0.3:8080\ntcp/10.96.0.10:8080 -> 10.87.0.2:8080 10.87.0.3:8080"},
		{"no pods", nil, nil, "tcp/10.96.0.10:80 ->\ntcp/10.96.0.10:8080 ->"},
		{"unready, ended, without address, elsewhere, others", nil, []*corev1.Pod{
			pod("a", unready, "10.87.0.2"), pod("b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "10.87.0.3"), pod("c", nil),
			pod("d", func(p *corev1.Pod) { p.Namespace = "other" }, "10.87.0.4"), pod("e", func(p *corev1.Pod) { p.Labels["app"] = "db" }, "10.87.0.5"),
		}, "tcp/10.96.0.10:80 ->"},
		{
			"published before they are ready", func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true },
			[]*corev1.Pod{pod("a", unready, "10.87.0.2"), pod("b", ending, "10.87.0.3")},
			"tcp/10.96.0.10:80 -> 10.87.0.2:8080 10.87.0.3:8080\ntcp/10.96.0.10:8080 -> 10.87.0.2:8080 10.87.0.3:8080",
		},
		{
			"a pod that ends, and another one", nil,
			[]*corev1.Pod{pod("a", ending, "10.87.0.2"), pod("b", nil, "10.87.0.3")},
			"tcp/10.96.0.10:80 -> 10.87.0.3:8080\ntcp/10.96.0.10:8080 -> 10.87.0.3:8080",
		},
		{"only a pod that ends", nil, []*corev1.Pod{pod("a", ending, "10.87.0.2")}, "tcp/10.96.0.10:80 -> 10.87.0.2:8080\ntcp/10.96.0.10:8080 -> 10.87.0.2:8080"},
		{
			"named ports differ", byName,
			[]*corev1.Pod{pod("a", http(8080), "10.87.0.2"), pod("b", http(9090), "10.87.0.3"), pod("c", nil, "10.87.0.4")},
			"tcp/10.96.0.10:80 -> 10.87.0.2:8080 10.87.0.3:9090",
		},
		{"a named port of a sidecar", byName, []*corev1.Pod{pod("a", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 1}}},
				{RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 2}}},
			}
		}, "10.87.0.2")}, "tcp/10.96.0.10:2 -> 10.87.0.2:2\ntcp/10.96.0.10:80 -> 10.87.0.2:2"},
		{"UDP", func(s *corev1.ServiceSpec) {
			s.Ports = []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}}
		}, []*corev1.Pod{pod("a", http(1), "10.87.0.2")}, "udp/10.96.0.10:53 -> 10.87.0.2:53"},
		{"SCTP", func(s *corev1.ServiceSpec) { s.Ports[0].Protocol = corev1.ProtocolSCTP }, ready, ""},
		{"the port of the pods is another one's", func(s *corev1.ServiceSpec) {
			s.Ports = append(s.Ports, corev1.ServicePort{Name: "x", Port: 8080, TargetPort: intstr.FromInt32(7)})
		}, ready[1:], "tcp/10.96.0.10:7 -> 10.87.0.3:7\ntcp/10.96.0.10:80 -> 10.87.0.3:8080\ntcp/10.96.0.10:8080 -> 10.87.0.3:7"},
		{"a client stays", func(s *corev1.ServiceSpec) {
			seconds := int32(60)
			s.SessionAffinity, s.SessionAffinityConfig = corev1.ServiceAffinityClientIP, &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
			s.Ports[0].TargetPort = intstr.FromInt32(80)
		}, ready[1:], "tcp/10.96.0.10:80 for 1m0s -> 10.87.0.3:80"},
		{
			"a node port", func(s *corev1.ServiceSpec) { nodePort(30080)(s); s.Ports[0].TargetPort = intstr.FromInt32(80) }, ready[1:],
			"tcp/0.0.0.0:30080 -> 10.87.0.3:80\ntcp/10.96.0.10:80 -> 10.87.0.3:80",
		},
		{"addresses outside", func(s *corev1.ServiceSpec) {
			s.ExternalIPs, s.Ports[0].TargetPort = []string{"203.0.113.1", "bad"}, intstr.FromInt32(80)
		}, ready[1:], "tcp/10.96.0.10:80 -> 10.87.0.3:80\ntcp/203.0.113.1:80 -> 10.87.0.3:80"},
		{"a load balancer", func(s *corev1.ServiceSpec) {
			nodePort(30080)(s)
			s.Type, s.Ports[0].TargetPort = corev1.ServiceTypeLoadBalancer, intstr.FromInt32(80)
		}, ready[1:], "tcp/0.0.0.0:30080 -> 10.87.0.3:80\ntcp/10.96.0.10:80 -> 10.87.0.3:80\ntcp/192.0.2.7:80 -> 10.87.0.3:80"},
		{"both families", func(s *corev1.ServiceSpec) {
			families(corev1.IPFamilyPolicyPreferDualStack)(s)
			s.ClusterIPs, s.Ports[0].TargetPort = []string{at, "fd10:96::a"}, intstr.FromInt32(80)
		}, ready, "tcp/10.96.0.10:80 -> 10.87.0.2:80 10.87.0.3:80\ntcp/fd10:96::a:80 -> [fd00::2]:80"},
		{"more labels", func(s *corev1.ServiceSpec) { s.Selector["tier"], s.Ports[0].TargetPort = "back", intstr.FromInt32(80) }, ready, "tcp/10.96.0.10:80 ->"},
		{"no selector", func(s *corev1.ServiceSpec) { s.Selector = nil; s.Ports[0].TargetPort = intstr.FromInt32(80) }, ready, "tcp/10.96.0.10:80 ->"},
		{"headless", ip("None"), ready, ""},
	}
	for _, tt := range tests {
		s := svc("web", ip(at))
		if tt.edit != nil {
			tt.edit(&s.Spec)
		}
		given, _, _ := Assign([]*corev1.Service{s}, Memory{}, dual())
		want := tt.want
		if tt.name == "no pods" || strings.HasPrefix(tt.name, "unready") {
			want = "tcp/10.96.0.10:80 ->" // the ports of pods are known from pods
		}
		if got := show(Plan(model.Endpoints{Services: given, Pods: tt.pods}, Memory{})); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, want)
		}
	}
}

// TestLoadBalancerSourceRangesAreThoseOfKubeProxy: external IPs, node ports and cluster IPs have none, and the machine connects from its own address.
func TestLoadBalancerSourceRangesAreThoseOfKubeProxy(t *testing.T) {
	class := "example.com/other"
	for name, c := range map[string]struct {
		ranges []string
		edit   func(*corev1.ServiceSpec)
		want   string
	}{
		"one":                    {[]string{"198.51.100.9/24"}, nil, "192.0.2.7 198.51.100.0/24"},
		"padded, of both":        {[]string{" 198.51.100.0/24 ", "2001:db8:1::/64"}, nil, "192.0.2.7 198.51.100.0/24, 2001:db8::7 2001:db8:1::/64"},
		"as kube-apiserver may":  {[]string{"198.051.100.0/24", "::ffff:203.0.113.0/120"}, nil, "192.0.2.7 198.51.100.0/24 203.0.113.0/24"},
		"with the machine":       {[]string{"192.0.2.0/24"}, nil, "192.0.2.7 192.0.2.0/24 192.0.2.7/32"},
		"all":                    {[]string{"10.0.0.0/8", "0.0.0.0/0"}, nil, ""},
		"none":                   {nil, nil, ""},
		"bad":                    {[]string{"bad"}, nil, ""},
		"no load balancer":       {[]string{"198.51.100.0/24"}, typed(corev1.ServiceTypeNodePort), ""},
		"of another controller":  {[]string{"198.51.100.0/24"}, func(s *corev1.ServiceSpec) { s.LoadBalancerClass = &class }, ""},
		"an external IP as well": {[]string{"198.51.100.0/24"}, func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"203.0.113.1", "192.0.2.7"} }, "192.0.2.7 198.51.100.0/24"},
	} {
		s := svc("web", families(corev1.IPFamilyPolicyPreferDualStack), typed(corev1.ServiceTypeLoadBalancer))
		s.Spec.LoadBalancerSourceRanges = c.ranges
		if c.edit != nil {
			c.edit(&s.Spec)
		}
		given, _, notes := Assign([]*corev1.Service{s}, Memory{}, dual())
		if open := strings.Contains(fmt.Sprint(notes), "spec.loadBalancerSourceRanges has no IPv6 range: any client can connect to its IPv6 address"); open == slices.Contains([]string{"padded, of both", "none", "no load balancer", "of another controller"}, name) {
			t.Errorf("%s: %v", name, notes)
		}
		var got []string
		for _, p := range Plan(model.Endpoints{Services: given}, Memory{}).Ports {
			if len(p.From) > 0 {
				got = append(got, p.Addr.String()+" "+strings.Trim(fmt.Sprint(p.From), "[]"))
			}
		}
		if all := strings.Join(got, ", "); all != c.want {
			t.Errorf("%s: %s\nwant %s", name, all, c.want)
		}
	}
}

func TestTheFirstServiceHasAPort(t *testing.T) {
	external := func(s *corev1.ServiceSpec) {
		s.ExternalIPs, s.Ports[0].TargetPort = []string{"203.0.113.1"}, intstr.FromInt32(80)
	}
	given, _, _ := Assign([]*corev1.Service{svc("b", external, ip("10.96.0.11")), svc("a", external, ip("10.96.0.10"))}, Memory{}, dual())
	got := Plan(model.Endpoints{Services: given}, Memory{})
	if len(got.Ports) != 3 || got.Ports[2].Service != "default/a" || fmt.Sprint(got.IPs) != "[10.96.0.10 10.96.0.11]" {
		t.Errorf("%v", got)
	}
}

// TestServicesThatNeedTooMuchAreLeftOut: their pairs with pods, and of addresses with ports, are counted; those that came first stay.
func TestServicesThatNeedTooMuchAreLeftOut(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 100 {
		pods = append(pods, pod(fmt.Sprint("p", i), nil, fmt.Sprintf("10.87.0.%d", 1+i), fmt.Sprintf("fd00::%x", 1+i)))
	}
	many := func(n int, edit ...func(*corev1.ServiceSpec)) (all []*corev1.Service) {
		for i := range n {
			all = append(all, svc(fmt.Sprintf("s%04d", i), append(edit, func(s *corev1.ServiceSpec) {
				s.Selector, s.Ports[0].TargetPort = map[string]string{"app": "web"}, intstr.FromInt32(80)
			})...))
		}
		return all
	}
	sticky := func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }
	external := func(s *corev1.ServiceSpec) {
		s.ExternalIPs, s.Ports = nil, nil
		for i := range 100 {
			s.ExternalIPs = append(s.ExternalIPs, fmt.Sprintf("203.0.113.%d", 1+i))
			s.Ports = append(s.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1 + i), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)})
		}
	}
	for name, c := range map[string]struct {
		services []*corev1.Service
		pods     []*corev1.Pod
		ports    int
		over     int
		notes    bool
	}{
		"with room":             {many(390), pods, 390, 0, false},
		"pairs":                 {many(2000), pods, 396, 1604, false},
		"pairs of both":         {many(2000, families(corev1.IPFamilyPolicyPreferDualStack)), pods, 792, 1604, false},
		"sticky pairs":          {many(2000, sticky), pods, 28, 1972, false},
		"frontends":             {many(10), nil, 10, 0, false},
		"external IPs":          {many(1, external), nil, 100 + 100*100, 0, false},
		"too many external IPs": {append(many(1, external), svc("z", func(s *corev1.ServiceSpec) { external(s); s.ExternalIPs = slices.Repeat(s.ExternalIPs, 4) })), nil, 200 + 100*100, 0, true},
	} {
		given, memory, notes := Assign(c.services, Memory{}, dual())
		got := Plan(model.Endpoints{Services: given, Pods: c.pods}, memory)
		if len(got.Ports) != c.ports || len(got.Over) != c.over || (len(notes) > 0) != c.notes || len(notes) > len(c.services) {
			t.Errorf("%s: %d ports, %d Services without room, %d notes", name, len(got.Ports), len(got.Over), len(notes))
		}
		if slices.Contains(got.Over, "default/s0000") {
			t.Errorf("%s: the first Service has no room", name)
		}
	}
}

// TestServicesWithoutRoomTakeNoMemoryForTheirPods counts allocations: those of a Service without room do not depend on its pods.
func TestServicesWithoutRoomTakeNoMemoryForTheirPods(t *testing.T) {
	const services, most = 2000, 10
	var all []*corev1.Service
	for i := range services {
		all = append(all, svc(fmt.Sprintf("s%04d", i), func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} }))
	}
	given, memory, _ := Assign(all, Memory{}, dual())
	var pods []*corev1.Pod
	for i := range 200 {
		pods = append(pods, pod(fmt.Sprint("p", i), http(80), fmt.Sprintf("10.87.0.%d", 1+i)))
	}
	n := testing.AllocsPerRun(1, func() {
		if table := Plan(model.Endpoints{Services: given, Pods: pods}, memory); len(table.Over) < services/2 {
			t.Errorf("there is room for all but %d Services", len(table.Over))
		}
	})
	if n > services*most {
		t.Errorf("%.0f allocations for %d Services", n, services)
	}
}

func TestVariablesOfServices(t *testing.T) {
	given, _, _ := Assign([]*corev1.Service{
		svc("my-db", ip("10.96.0.10"), func(s *corev1.ServiceSpec) {
			s.Ports = append(s.Ports, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP})
		}),
		svc("headless", ip("None")), svc("six", ip("fd10:96::6"), families(corev1.IPFamilyPolicySingleStack, corev1.IPv6Protocol)),
	}, Memory{}, dual())
	want := map[string]string{
		"MY_DB_SERVICE_HOST": "10.96.0.10", "MY_DB_SERVICE_PORT": "80", "MY_DB_SERVICE_PORT_HTTP": "80", "MY_DB_PORT": "tcp://10.96.0.10:80",
		"MY_DB_PORT_80_TCP": "tcp://10.96.0.10:80", "MY_DB_PORT_80_TCP_PROTO": "tcp", "MY_DB_PORT_80_TCP_PORT": "80", "MY_DB_PORT_80_TCP_ADDR": "10.96.0.10",
		"MY_DB_PORT_53_UDP": "udp://10.96.0.10:53", "MY_DB_PORT_53_UDP_PROTO": "udp", "MY_DB_PORT_53_UDP_PORT": "53", "MY_DB_PORT_53_UDP_ADDR": "10.96.0.10",
		"SIX_SERVICE_HOST": "fd10:96::6", "SIX_SERVICE_PORT": "80", "SIX_SERVICE_PORT_HTTP": "80", "SIX_PORT": "tcp://[fd10:96::6]:80",
		"SIX_PORT_80_TCP": "tcp://[fd10:96::6]:80", "SIX_PORT_80_TCP_PROTO": "tcp", "SIX_PORT_80_TCP_PORT": "80", "SIX_PORT_80_TCP_ADDR": "fd10:96::6",
	}
	if got := Env(given, "default"); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := Env(given, "other"); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// TestVariablesOfTooManyServicesAreNotMade: no process can be started with them, so they would only take memory.
func TestVariablesOfTooManyServicesAreNotMade(t *testing.T) {
	var all []*corev1.Service
	for i := range 20_000 {
		all = append(all, svc(fmt.Sprint("s", i), ip(fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250))))
	}
	size := 0
	for name, value := range Env(all, "default") {
		size += len(name) + 1 + len(value)
	}
	if size < maxEnv || size > maxEnv+1000 {
		t.Errorf("%d bytes", size)
	}
}

func TestAThousandServicesArePlannedAtOnce(t *testing.T) {
	var all []*corev1.Service
	var pods []*corev1.Pod
	for i := range 1000 {
		name := fmt.Sprint("s", i)
		all = append(all, svc(name, typed(corev1.ServiceTypeNodePort)))
		pods = append(pods, pod(name, func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }, fmt.Sprintf("10.87.%d.%d", i/250, 1+i%250)))
	}
	given, _, notes := Assign(all, Memory{}, dual())
	table := Plan(model.Endpoints{Services: given, Pods: pods}, Memory{})
	if len(notes) > 0 || len(table.Ports) != 3000 || len(table.IPs) != 1000 {
		t.Errorf("%d ports, %d addresses, %v", len(table.Ports), len(table.IPs), notes)
	}
	if !slices.IsSortedFunc(table.IPs, compareAddrs) {
		t.Error("the addresses are not sorted")
	}
}
