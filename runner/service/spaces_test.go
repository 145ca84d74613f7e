package service

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/spaces"
)

func TestAServiceLeadsOnlyToPodsOfItsSpace(t *testing.T) {
	s := svc("web", ip("10.96.0.10"))
	s.Spec.Ports[0].TargetPort = intstr.FromInt32(80)
	given, _, _ := Assign([]*corev1.Service{s}, Memory{}, dual())
	e := model.Endpoints{Services: given, Pods: []*corev1.Pod{pod("a", nil, "10.87.0.2"), pod("b", nil, "10.87.0.3"), pod("c", nil, "10.87.0.4")}}
	of := func(name, source string) map[manifests.Key]string {
		return map[manifests.Key]string{{Namespace: s.Namespace, Name: name}: source}
	}
	for _, c := range []struct {
		service string
		sharing map[string][]string
		want    string
	}{
		{"applied", nil, "tcp/10.96.0.10:80 -> 10.87.0.2:80"},
		{"fleet", nil, "tcp/10.96.0.10:80 -> 10.87.0.3:80"},
		{"other", nil, "tcp/10.96.0.10:80 ->"},
		{"applied", map[string][]string{"file": {"fleet"}}, "tcp/10.96.0.10:80 -> 10.87.0.2:80 10.87.0.3:80"},
	} {
		e.Origins = &model.Origins{Spaces: &manifests.Spaces{Local: []string{"file", "applied"}, Sharing: c.sharing}, Services: of("web", c.service), Pods: of("a", "file")}
		e.Origins.Pods[manifests.Key{Namespace: s.Namespace, Name: "b"}] = "fleet"
		if got := show(Plan(e, Memory{})); got != c.want {
			t.Errorf("%s: %s, want %s", c.service, got, c.want)
		}
	}
}

// from returns the sources of Services in the namespace default, each as "source: name name". file and applied are the local space.
func from(lists ...string) *model.Origins {
	o := &model.Origins{Spaces: &manifests.Spaces{Local: []string{"file", "applied"}}, Services: map[manifests.Key]string{}}
	for _, list := range lists {
		source, names, _ := strings.Cut(list, ": ")
		for name := range strings.FieldsSeq(names) {
			o.Services[manifests.Key{Namespace: "default", Name: name}] = source
		}
	}
	return o
}

// has returns the cluster IP and the node port of a Service, and what was noted about it.
func has(all []*corev1.Service, notes []Note, name string) (ip string, port int32, text string) {
	for _, n := range notes {
		if n.Service == "default/"+name {
			text += n.Text
		}
	}
	i := slices.IndexFunc(all, func(s *corev1.Service) bool { return s.Name == name })
	return all[i].Spec.ClusterIP, all[i].Spec.Ports[0].NodePort, text
}

// TestTheLocalSpaceTakesWhatItAsksFor: whatever came first, also from an API server.
func TestTheLocalSpaceTakesWhatItAsksFor(t *testing.T) {
	asks := func(s *corev1.ServiceSpec) { ip("10.96.0.10")(s); nodePort(30080)(s) }
	given := func(s *corev1.ServiceSpec) { asks(s); s.ClusterIPs = []string{s.ClusterIP} }
	const used, first = " is already used by Service default/", " of the local space, which comes first; a different "
	for name, c := range map[string]struct {
		source   string
		edit     func(*corev1.ServiceSpec)
		existing []string // Services that there are before both
		want     string   // what is noted about the other Service
	}{
		"at the same time":          {"fleet", asks, nil, "spec.clusterIP 10.96.0.10" + used + "web" + first + "address is used: write a free one or none" + "spec.ports[0].nodePort 30080" + used + "web" + first + "port is used: write a free one or none"},
		"the other has it":          {"fleet", asks, []string{"a"}, "spec.clusterIP 10.96.0.10" + used + "web" + first + "address is used: write a free one or none" + "spec.ports[0].nodePort 30080" + used + "web" + first + "port is used: write a free one or none"},
		"the local one has it":      {"fleet", asks, []string{"web"}, "spec.clusterIP 10.96.0.10" + used + "web" + first + "address is used: write a free one or none" + "spec.ports[0].nodePort 30080" + used + "web" + first + "port is used: write a free one or none"},
		"an API server has it":      {"apiserver", given, []string{"a"}, "spec.clusterIP 10.96.0.10 is used by Service default/web of the local space, which comes first: it does not lead to this Service here; change that onespec.ports[0].nodePort 30080 is used by Service default/web of the local space, which comes first: it does not lead to this Service here; change that one"},
		"an API server has it, too": {"apiserver", given, []string{"web"}, "spec.clusterIP 10.96.0.10 is used by Service default/web of the local space, which comes first: it does not lead to this Service here; change that onespec.ports[0].nodePort 30080 is used by Service default/web of the local space, which comes first: it does not lead to this Service here; change that one"},
	} {
		conf := dual()
		conf.Origins = from("applied: web", c.source+": a")
		all := []*corev1.Service{svc("a", c.edit), svc("web", asks)}
		_, m, _ := Assign(slices.DeleteFunc(slices.Clone(all), func(s *corev1.Service) bool { return !slices.Contains(c.existing, s.Name) }), Memory{}, conf)
		for range 2 {
			var notes []Note
			var out []*corev1.Service
			out, m, notes = Assign(all, m, conf)
			if at, port, text := has(out, notes, "web"); at != "10.96.0.10" || port != 30080 || text != "" {
				t.Errorf("%s: %s, %d, %s", name, at, port, text)
			}
			at, port, text := has(out, notes, "a")
			if at == "10.96.0.10" || port == 30080 || (at == "") != (c.source == "apiserver") || (port == 0) != (c.source == "apiserver") || text != c.want {
				t.Errorf("%s: %s, %d, %s\nwant %s", name, at, port, text, c.want)
			}
			for _, p := range Plan(model.Endpoints{Services: out, Origins: conf.Origins}, m).Ports {
				if (p.Addr.String() == "10.96.0.10" || p.Port == 30080) && p.Service != "default/web" {
					t.Errorf("%s: %+v", name, p)
				}
			}
		}
	}
}

// TestTheLocalSpaceIsServedFirst: the frontends of others do not keep it from its own, and it gets what is needed if nothing is free.
func TestTheLocalSpaceIsServedFirst(t *testing.T) {
	for name, c := range map[string]struct{ other, local func(*corev1.ServiceSpec) }{
		"an external IP":                  {external("203.0.113.1"), external("203.0.113.1")},
		"a load balancer":                 {typed(corev1.ServiceTypeLoadBalancer), typed(corev1.ServiceTypeLoadBalancer)},
		"a load balancer at an address":   {external("192.0.2.7"), typed(corev1.ServiceTypeLoadBalancer)},
		"a node port of a load balancer":  {func(s *corev1.ServiceSpec) { typed(corev1.ServiceTypeLoadBalancer)(s); onPort(30080)(s) }, nodePort(30080)},
		"an external IP and a node port":  {func(s *corev1.ServiceSpec) { external("192.0.2.7")(s); onPort(30080)(s) }, nodePort(30080)},
		"a node port and an external IP":  {nodePort(30080), func(s *corev1.ServiceSpec) { external("192.0.2.7")(s); onPort(30080)(s) }},
		"more external ports than fit in": {external(strings.Fields(strings.Repeat("203.0.113.1 ", MaxElements))...), external("203.0.113.2")},
	} {
		conf := dual()
		conf.Origins = from("file: web", "fleet: a")
		_, m, _ := Assign([]*corev1.Service{svc("a", c.other)}, Memory{}, conf)
		all, m, notes := Assign([]*corev1.Service{svc("a", c.other), svc("web", c.local)}, m, conf)
		if _, _, text := has(all, notes, "web"); text != "" {
			t.Errorf("%s: %s", name, text)
		}
		alone, memory, _ := Assign([]*corev1.Service{svc("web", c.local)}, Memory{}, conf)
		count := func(all []*corev1.Service, m Memory) (n int) {
			for _, p := range Plan(model.Endpoints{Services: all, Origins: conf.Origins}, m).Ports {
				if p.Service == "default/web" {
					n++
				}
			}
			return n
		}
		if got, want := count(all, m), count(alone, memory); got != want {
			t.Errorf("%s: %d frontends, want %d", name, got, want)
		}
	}
	conf := config("10.96.0.0/29") // six addresses
	conf.Origins = from("fleet: s0 s1 s2 s3 s4 s5", "file: web")
	var others []*corev1.Service
	for i := range 6 {
		others = append(others, svc(fmt.Sprint("s", i)))
	}
	before, m, _ := Assign(others, Memory{}, conf)
	all, _, notes := Assign(append(others, svc("web")), m, conf)
	moved := 0
	for i, s := range before {
		if all[i].Spec.ClusterIP != s.Spec.ClusterIP {
			moved++
		}
	}
	if at, _, _ := has(all, notes, "web"); at == "" || moved != 1 || len(notes) != 2 || !strings.Contains(fmt.Sprint(notes), "its cluster IP "+at+" is now used by Service default/web of the local space, which comes first") {
		t.Errorf("%s, %d, %v", at, moved, notes)
	}
}

// TestOtherSpacesAreServedInTheOrderInWhichTheyCame: also after a restart, whatever they are called.
func TestOtherSpacesAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	asks := func(s *corev1.ServiceSpec) { ip("10.96.0.10")(s); nodePort(30080)(s) }
	for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
		conf := dual()
		conf.Origins = from("fleet: "+names[0], "site: "+names[1])
		_, m, _ := Assign([]*corev1.Service{svc(names[0], asks)}, Memory{}, conf)
		for range 2 {
			stored, err := json.Marshal(m)
			m = Memory{}
			if err == nil {
				err = json.Unmarshal(stored, &m)
			}
			if err != nil {
				t.Fatal(err)
			}
			var all []*corev1.Service
			var notes []Note
			all, m, notes = Assign([]*corev1.Service{svc("a", asks), svc("b", asks)}, m, conf)
			if at, port, text := has(all, notes, names[0]); at != "10.96.0.10" || port != 30080 || text != "" {
				t.Errorf("%s, %d, %s", at, port, text)
			}
			at, port, text := has(all, notes, names[1])
			if at == "" || at == "10.96.0.10" || port == 0 || port == 30080 || strings.Count(text, "Service default/"+names[0]) != 2 || strings.Contains(text, "local") {
				t.Errorf("%s, %d, %s", at, port, text)
			}
		}
	}
}

// TestConnectionsOfTheMachineAreOfTheLocalSpace: other sources take no port of the machine, such as that of its ssh, and no other address.
func TestConnectionsOfTheMachineAreOfTheLocalSpace(t *testing.T) {
	both := func(s *corev1.ServiceSpec) { typed(corev1.ServiceTypeLoadBalancer)(s); external("203.0.113.1")(s) }
	for source, want := range map[string]bool{"file": true, "applied": true, "fleet": false, spaces.APIServer: true} {
		conf := dual()
		conf.Origins = from(source + ": web")
		all, m, notes := Assign([]*corev1.Service{svc("web", ip("10.96.0.10"), both)}, Memory{}, conf)
		_, _, text := has(all, notes, "web")
		var at []string
		for _, p := range Plan(model.Endpoints{Services: all, Origins: conf.Origins}, m).Ports {
			at = append(at, p.Addr.String())
		}
		if got := slices.Contains(at, "203.0.113.1"); got != want || source == "fleet" && !slices.Equal(at, []string{"0.0.0.0", "10.96.0.10"}) {
			t.Errorf("%s: open at %v", source, at)
		}
		if got := text == ""; got != want || !want && len(all[0].Status.LoadBalancer.Ingress) != 0 {
			t.Errorf("%s: %s, %v", source, text, all[0].Status)
		}
	}
}
