package names

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/loopback"
	"monopod/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod returns a ready pod.
func pod(name string, edit func(*corev1.Pod), ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
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

func service(name string, edit func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.Selector = map[string]string{"app": name}
	if edit != nil {
		edit(&s.Spec)
	}
	return s
}

func app(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": name} }
}

func unready(p *corev1.Pod) {
	app("web")(p)
	p.Status.Conditions[0].Status = corev1.ConditionFalse
}

// world is what the tests below ask about.
func world() *Zone {
	pods := []*corev1.Pod{
		pod("one", nil, "10.0.0.1", "fd00::1"),
		pod("web-0", app("web"), "10.0.0.2"),
		pod("web-1", app("web"), "10.0.0.3"),
		pod("web-2", unready, "10.0.0.4"),
		pod("web", nil, "10.0.0.5"),
		pod("db-a", func(p *corev1.Pod) {
			app("db")(p)
			p.Spec.Hostname, p.Spec.Subdomain = "Primary", "db"
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}}}}
		}, "10.0.0.6"),
		pod("peer-0", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "same", "peers" }, "10.0.0.7"),
		pod("peer-1", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "same", "peers" }, "10.0.0.8"),
		pod("far", func(p *corev1.Pod) { p.Namespace = "other" }, "10.0.0.9"),
		pod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "192.0.2.1"),
		pod("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "10.0.0.10"),
		pod("starting", nil),
		pod("a.dotted", nil, "10.0.0.11"),
	}
	services := []*corev1.Service{
		service("web", func(s *corev1.ServiceSpec) {
			s.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}
		}),
		service("db", func(s *corev1.ServiceSpec) {
			s.ClusterIP = corev1.ClusterIPNone
			s.Ports = []corev1.ServicePort{{Name: "sql", Port: 1, TargetPort: intstr.FromString("sql")}, {Name: "none", TargetPort: intstr.FromString("none")}}
		}),
		service("empty", nil),
		service("manual", func(s *corev1.ServiceSpec) { s.Selector = nil }),
		service("early", func(s *corev1.ServiceSpec) {
			s.Selector, s.PublishNotReadyAddresses = map[string]string{"app": "web"}, true
		}),
		service("inside", func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "one.default.svc.cluster.local."
		}),
		service("addressed", func(s *corev1.ServiceSpec) {
			s.Selector, s.ClusterIP, s.ClusterIPs = map[string]string{"app": "web"}, "10.96.0.10", []string{"10.96.0.10", "fd10:96::a"}
			s.Ports = []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}
		}),
		service("unready", func(s *corev1.ServiceSpec) {
			s.Selector, s.ClusterIP, s.ClusterIPs = map[string]string{"app": "nothing"}, "10.96.0.11", []string{"10.96.0.11"}
			s.Ports = []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns")}, {Port: 80}}
		}),
		service("outside", func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "www.example.com"
		}),
	}
	return NewZone("cluster.local", model.Endpoints{Pods: pods, Services: services})
}

// question packs a query.
func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// show writes what an answer says, sorted.
func show(t testing.TB, msg []byte) string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		t.Fatal(err)
	}
	out := []string{strings.TrimPrefix(m.RCode.String(), "RCode")}
	for _, a := range m.Answers {
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(b.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(b.AAAA).String())
		case *dnsmessage.PTRResource:
			out = append(out, b.PTR.String())
		case *dnsmessage.CNAMEResource:
			out = append(out, "="+b.CNAME.String())
		case *dnsmessage.SRVResource:
			out = append(out, strings.TrimSuffix(b.Target.String(), ".cluster.local.")+":"+strconv.Itoa(int(b.Port)))
		}
	}
	slices.Sort(out[1:])
	return strings.Join(out, " ")
}

func TestNamesStandForThePodsOfTheMoment(t *testing.T) {
	const d = ".default.svc.cluster.local."
	tests := []struct {
		what, name string
		kind       dnsmessage.Type
		want       string
	}{
		{"a pod", "one" + d, dnsmessage.TypeA, "Success 10.0.0.1"},
		{"a pod's IPv6 address", "one" + d, dnsmessage.TypeAAAA, "Success fd00::1"},
		{"a pod without an IPv6 address", "web-0" + d, dnsmessage.TypeAAAA, "Success"},
		{"case does not matter", "ONE.Default.svc.CLUSTER.local.", dnsmessage.TypeA, "Success 10.0.0.1"},
		{"a pod of another namespace", "far.other.svc.cluster.local.", dnsmessage.TypeA, "Success 10.0.0.9"},
		{"a pod of no such namespace", "one.other.svc.cluster.local.", dnsmessage.TypeA, "NameError"},
		{"a host-network pod", "host" + d, dnsmessage.TypeA, "Success 192.0.2.1"},
		{"a pod that has ended", "done" + d, dnsmessage.TypeA, "NameError"},
		{"a pod without an address yet", "starting" + d, dnsmessage.TypeA, "NameError"},
		{"a service, not the pod of that name, by its ready pods", "web" + d, dnsmessage.TypeA, "Success 10.0.0.2 10.0.0.3"},
		{"a service that takes unready pods", "early" + d, dnsmessage.TypeA, "Success 10.0.0.2 10.0.0.3 10.0.0.4"},
		{"a service with an address", "addressed" + d, dnsmessage.TypeA, "Success 10.96.0.10"},
		{"a service with an IPv6 address", "addressed" + d, dnsmessage.TypeAAAA, "Success fd10:96::a"},
		{"ports of a service with an address", "_http._tcp.addressed" + d, dnsmessage.TypeSRV, "Success addressed.default.svc:80"},
		{"its ports do not depend on pods", "_dns._udp.unready" + d, dnsmessage.TypeSRV, "Success unready.default.svc:53"},
		{"a port without a name", "_._tcp.unready" + d, dnsmessage.TypeSRV, "NameError"},
		{"a pod of a service with an address", "10-0-0-2.addressed" + d, dnsmessage.TypeA, "Success 10.0.0.2"},
		{"the way back to a service", "10.0.96.10.in-addr.arpa.", dnsmessage.TypePTR, "Success addressed" + d},
		{"a service without pods", "empty" + d, dnsmessage.TypeA, "Success"},
		{"a service without selector", "manual" + d, dnsmessage.TypeA, "Success"},
		{"a host name in a subdomain", "primary.db" + d, dnsmessage.TypeA, "Success 10.0.0.6"},
		{"a host name that two pods have", "same.peers" + d, dnsmessage.TypeA, "Success 10.0.0.7 10.0.0.8"},
		{"a name with others below it", "peers" + d, dnsmessage.TypeA, "Success"},
		{"ports of a service", "_http._tcp.web" + d, dnsmessage.TypeSRV, "Success 10-0-0-2.web.default.svc:8080 10-0-0-3.web.default.svc:8080"},
		{"the target of a port", "10-0-0-2.web" + d, dnsmessage.TypeA, "Success 10.0.0.2"},
		{"a named port of a pod with a host name", "_sql._tcp.db" + d, dnsmessage.TypeSRV, "Success primary.db.default.svc:5432"},
		{"a port that the pod does not have", "_none._tcp.db" + d, dnsmessage.TypeSRV, "NameError"},
		{"a pod by its address", "10-0-0-1.default.pod.cluster.local.", dnsmessage.TypeA, "Success 10.0.0.1"},
		{"another name for a pod", "inside" + d, dnsmessage.TypeA, "Success 10.0.0.1 =one" + d},
		{"the way back", "1.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, "Success one" + d},
		{"the way back prefers the host name", "6.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, "Success primary.db" + d},
		{"the way back by IPv6", "1." + strings.Repeat("0.", 27) + "0.0.d.f.ip6.arpa.", dnsmessage.TypePTR, "Success one" + d},
		{"no way back from nobody", "99.0.0.10.in-addr.arpa.", dnsmessage.TypePTR, "NameError"},
		{"another type", "one" + d, dnsmessage.TypeTXT, "Success"},
		{"the domain", "cluster.local.", dnsmessage.TypeA, "Success"},
		{"all that is in the domain", "svc.cluster.local.", dnsmessage.TypeA, "Success"},
		{"the addresses of a namespace", "default.pod.cluster.local.", dnsmessage.TypeA, "Success"},
		{"a namespace of nobody", "nobody.svc.cluster.local.", dnsmessage.TypeA, "NameError"},
		{"the ports of a service", "_tcp.web" + d, dnsmessage.TypeA, "Success"},
		{"the ports of a protocol that it does not have", "_udp.web" + d, dnsmessage.TypeA, "NameError"},
		{"a pod that the service does not select, below it", "10-0-0-1.web" + d, dnsmessage.TypeA, "NameError"},
		{"a pod that has a host name below the service", "10-0-0-6.db" + d, dnsmessage.TypeA, "NameError"},
		{"a pod whose name has dots", "a.dotted" + d, dnsmessage.TypeA, "Success 10.0.0.11"},
		{"the end of that name", "dotted" + d, dnsmessage.TypeA, "Success"},
	}
	s := NewServer(Config{Domain: "Cluster.Local.", Gateways: []netip.Prefix{netip.MustParsePrefix("10.0.0.254/24"), netip.MustParsePrefix("fd00::fe/64")}})
	s.SetZone(world())
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			if got := show(t, s.Answer(t.Context(), "udp", question(t, tt.name, tt.kind))); got != tt.want {
				t.Errorf("%s %v is %q, want %q", tt.name, tt.kind, got, tt.want)
			}
		})
	}
}

func TestAnswersOfAServiceBeginWithAnotherPodEachTime(t *testing.T) {
	s := NewServer(Config{Domain: "cluster.local"})
	s.SetZone(world())
	first := map[[4]byte]bool{}
	for range 4 {
		var m dnsmessage.Message
		if err := m.Unpack(s.Answer(t.Context(), "udp", question(t, "web.default.svc.cluster.local.", dnsmessage.TypeA))); err != nil {
			t.Fatal(err)
		}
		first[m.Answers[0].Body.(*dnsmessage.AResource).A] = true
	}
	if len(first) != 2 {
		t.Errorf("answers began with %v only", first)
	}
}

func TestAnAnswerTooLargeForUDPIsCutAndWholeByTCP(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 100 {
		pods = append(pods, pod("w"+strconv.Itoa(i), app("many"), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String()))
	}
	s := NewServer(Config{Domain: "cluster.local"})
	s.SetZone(NewZone("cluster.local", model.Endpoints{Pods: pods, Services: []*corev1.Service{service("many", nil)}}))
	q := question(t, "many.default.svc.cluster.local.", dnsmessage.TypeA)
	udp, tcp := s.Answer(t.Context(), "udp", q), s.Answer(t.Context(), "tcp", q)
	var m, whole dnsmessage.Message
	if err := m.Unpack(udp); err != nil || !m.Truncated || len(udp) > 512 {
		t.Errorf("by UDP: %d bytes, truncated %v, %v", len(udp), m.Truncated, err)
	}
	if err := whole.Unpack(tcp); err != nil || whole.Truncated || len(whole.Answers) != 100 {
		t.Errorf("by TCP: %d answers, %v", len(whole.Answers), err)
	}
}

func TestAQueryWaitsForThePodsToBeKnownButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{Domain: "cluster.local"})
		q := question(t, "one.default.svc.cluster.local.", dnsmessage.TypeA)
		if got := show(t, s.Answer(t.Context(), "udp", q)); got != "ServerFailure" {
			t.Errorf("an unknown world was taken for an empty one: %s", got)
		}
		time.AfterFunc(time.Second, func() { s.SetZone(world()) })
		start := time.Now()
		if got := show(t, s.Answer(t.Context(), "udp", q)); got != "Success 10.0.0.1" || time.Since(start) != time.Second {
			t.Errorf("answered %s after %v", got, time.Since(start))
		}
	})
}

func TestNonsenseGetsAnErrorOrNothing(t *testing.T) {
	s := NewServer(Config{Domain: "cluster.local"})
	s.SetZone(world())
	good := question(t, "one.default.svc.cluster.local.", dnsmessage.TypeA)
	answer := slices.Clone(good)
	answer[2] |= 0x80
	update := slices.Clone(good)
	update[2] |= 5 << 3
	for what, msg := range map[string][]byte{"nothing": nil, "half a header": good[:5], "an answer": answer} {
		if got := s.Answer(t.Context(), "udp", msg); got != nil {
			t.Errorf("%s was answered with %s", what, show(t, got))
		}
	}
	if got := show(t, s.Answer(t.Context(), "udp", update)); got != "NotImplemented" {
		t.Errorf("an update was answered with %s", got)
	}
	if got := show(t, s.Answer(t.Context(), "udp", good[:20])); got != "FormatError" {
		t.Errorf("half a question was answered with %s", got)
	}
}

func FuzzAnswer(f *testing.F) {
	s := NewServer(Config{Domain: "cluster.local"})
	s.SetZone(world())
	f.Add(question(f, "web.default.svc.cluster.local.", dnsmessage.TypeALL))
	f.Add(question(f, "1.0.0.10.in-addr.arpa.", dnsmessage.TypePTR))
	f.Fuzz(func(t *testing.T, msg []byte) {
		if a := s.Answer(t.Context(), "udp", msg); a != nil && len(a) < 12 {
			t.Errorf("an answer of %d bytes", len(a))
		}
	})
}

// resolver is one of the host, with as many answers to a query as the function returns.
func resolver(t *testing.T, addr string, answer func(query) []*reply) (port uint16) {
	t.Helper()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = c.Close(); <-done })
	go func() {
		defer close(done)
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			q, _, _ := parseQuery(b[:n])
			for _, r := range answer(q) {
				_, _ = c.WriteTo(r.pack(512), from)
			}
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String()).Port()
}

// example answers about www.example.com.
func example(q query) *reply {
	r := newReply(q, dnsmessage.RCodeSuccess)
	r.addresses(q.question.Name.String(), q.question.Type, []netip.Addr{netip.MustParseAddr("192.0.2.80")})
	return r
}

// upstream knows www.example.com and nothing else. A forged answer comes before each of its own.
func upstream(t *testing.T, addr string) uint16 {
	t.Helper()
	return resolver(t, addr, func(q query) []*reply {
		forged, r := newReply(q, dnsmessage.RCodeSuccess), newReply(q, dnsmessage.RCodeNameError)
		forged.ID++
		if q.name == "www.example.com" {
			r = example(q)
		}
		return []*reply{forged, r}
	})
}

func resolvConf(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serving runs a server on an address of its own whose host asks there too, at another port.
func serving(t *testing.T, at netip.AddrPort, resolvConf string, port uint16) {
	t.Helper()
	s := NewServer(Config{Domain: "cluster.local", Gateways: []netip.Prefix{netip.PrefixFrom(at.Addr(), 8)}, Port: at.Port(), ResolvConf: resolvConf})
	s.forward.port = port
	ctx, stop := context.WithCancel(context.Background())
	l := s.Listen(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if got := s.Addresses(); !slices.Equal(got, []string{at.Addr().String()}) {
		t.Fatalf("listens on %v", got)
	}
	s.SetZone(world())
}

// over sends a query to a server.
func over(t *testing.T, network, addr string, msg []byte) []byte {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answer, err := exchange(c, network, msg)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestTheServerAnswersAndPassesOn(t *testing.T) {
	we, nobody, other := loopback.Address(), loopback.Address(), loopback.Address()
	port, at := upstream(t, other+":0"), netip.AddrPortFrom(netip.MustParseAddr(we), 10053)
	serving(t, at, resolvConf(t, "nameserver "+we+"\nnameserver "+nobody+"\nnameserver "+other+"\n"), port)
	tests := []struct{ network, name, want string }{
		{"udp", "one.default.svc.cluster.local.", "Success 10.0.0.1"},
		{"tcp", "one.default.svc.cluster.local.", "Success 10.0.0.1"},
		{"udp", "www.example.com.", "Success 192.0.2.80"}, // from the third server: the first is ours, the second is down
		{"udp", "nowhere.example.com.", "NameError"},
		{"udp", "outside.default.svc.cluster.local.", "Success 192.0.2.80 =www.example.com."},
	}
	for _, tt := range tests {
		if got := show(t, over(t, tt.network, at.String(), question(t, tt.name, dnsmessage.TypeA))); got != tt.want {
			t.Errorf("%s by %s is %q, want %q", tt.name, tt.network, got, tt.want)
		}
	}
}

func TestAHostWithoutResolversFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{Domain: "cluster.local", ResolvConf: resolvConf(t, "# none\n")})
		s.SetZone(world())
		start := time.Now()
		if got := show(t, s.Answer(t.Context(), "udp", question(t, "www.example.com.", dnsmessage.TypeA))); got != "ServerFailure" || time.Since(start) != 0 {
			t.Errorf("answered %s after %v", got, time.Since(start))
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	s := NewServer(Config{Domain: "cluster.local"})
	s.SetZone(world())
	q := question(b, "web.default.svc.cluster.local.", dnsmessage.TypeA)
	b.ReportAllocs()
	for b.Loop() {
		s.Answer(b.Context(), "udp", q)
	}
}

func BenchmarkNewZone(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 110 {
		pods = append(pods, pod("w"+strconv.Itoa(i), app("web"), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String()))
	}
	b.ReportAllocs()
	for b.Loop() {
		NewZone("cluster.local", model.Endpoints{Pods: pods, Services: []*corev1.Service{service("web", nil)}})
	}
}
