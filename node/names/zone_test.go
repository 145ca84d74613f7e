package names

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
)

// asked answers questions of type A from a zone.
func asked(t *testing.T, z *Zone, name string) string {
	t.Helper()
	s := NewServer(Config{Domain: "cluster.local"})
	s.SetZone(z)
	return show(t, s.Answer(t.Context(), "udp", question(t, name, dnsmessage.TypeA)))
}

func TestAPodThatStopsIsNoLongerBehindItsService(t *testing.T) {
	stopping := pod("web-1", app("web"), "10.0.0.3")
	stopping.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	z := NewZone("cluster.local", model.Endpoints{Pods: []*corev1.Pod{pod("web-0", app("web"), "10.0.0.2"), stopping}, Services: []*corev1.Service{service("web", nil)}})
	if got := asked(t, z, "web.default.svc.cluster.local."); got != "Success 10.0.0.2" {
		t.Error(got)
	}
	if got := asked(t, z, "web-1.default.svc.cluster.local."); got != "Success 10.0.0.3" { // it may still be asked by its own name
		t.Error(got)
	}
}

func TestAServiceSelectsPodsOfItsNamespace(t *testing.T) {
	far := pod("web-1", app("web"), "10.0.0.3")
	far.Namespace = "other"
	z := NewZone("cluster.local", model.Endpoints{Pods: []*corev1.Pod{pod("web-0", app("web"), "10.0.0.2"), far}, Services: []*corev1.Service{service("web", nil)}})
	if got := asked(t, z, "web.default.svc.cluster.local."); got != "Success 10.0.0.2" {
		t.Error(got)
	}
}

// TestPairsOfServicesAndPodsTakeNoMemory: a source may have thousands of Services that select each of its pods.
func TestPairsOfServicesAndPodsTakeNoMemory(t *testing.T) {
	var pods []*corev1.Pod
	var services []*corev1.Service
	for i := range 40 {
		pods = append(pods, pod("p"+strconv.Itoa(i), app("web"), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}).String()))
	}
	for i := range 2000 {
		services = append(services, service("s"+strconv.Itoa(i), func(s *corev1.ServiceSpec) {
			s.Selector, s.Ports = map[string]string{"app": "web"}, []corev1.ServicePort{{Name: "http", Port: 80}}
		}))
	}
	if n := testing.AllocsPerRun(1, func() { NewZone("cluster.local", model.Endpoints{Pods: pods, Services: services}) }); n > float64(10*(len(pods)+len(services))) {
		t.Errorf("%.0f allocations for %d pods and %d Services", n, len(pods), len(services))
	}
	z := NewZone("cluster.local", model.Endpoints{Pods: pods, Services: services})
	if got := asked(t, z, "10-0-1-39.s1999.default.svc.cluster.local."); got != "Success 10.0.1.39" {
		t.Error(got)
	}
}

func TestAddressesThatAreNoneAreLeftOut(t *testing.T) {
	z := NewZone("Cluster.Local.", model.Endpoints{Pods: []*corev1.Pod{pod("a", nil, "x", "", "::ffff:10.0.0.1"), pod("b", nil, "x")}})
	for name, want := range map[string]string{"a.default.svc.cluster.local.": "Success 10.0.0.1", "b.default.svc.cluster.local.": "NameError"} {
		if got := asked(t, z, name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAddressesOfReverseNames(t *testing.T) {
	const zeros = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0."
	for name, want := range map[string]string{
		"1.0.0.10.in-addr.arpa":                       "10.0.0.1",
		"0.0.10.in-addr.arpa":                         "",
		"256.0.0.10.in-addr.arpa":                     "",
		"x.in-addr.arpa":                              "",
		"in-addr.arpa":                                "",
		"f." + zeros + "8.b.d.0.1.0.0.2.ip6.arpa":     "2001:db8::f",
		"f." + zeros + "8.b.d.0.1.0.0.ip6.arpa":       "",
		"g." + zeros + "8.b.d.0.1.0.0.2.ip6.arpa":     "",
		"+1." + zeros + "8.b.d.0.1.0.0.2.ip6.arpa":    "",
		"1.0.0.10.in-addr.arpa.default.cluster.local": "",
	} {
		got, ok := reverseAddr(name)
		if ok != (want != "") || ok && got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
}

func TestTheBufferOfAClientLimitsItsAnswers(t *testing.T) {
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	for size, want := range map[int]int{-1: plainUDP, 100: plainUDP, 1232: 1232, 65535: 65535} {
		q.Additionals = nil
		if size >= 0 {
			q.Additionals = []dnsmessage.Resource{
				{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("b."), Type: dnsmessage.TypeA}, Body: &dnsmessage.AResource{}},
				{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: dnsmessage.Class(size)}, Body: &dnsmessage.OPTResource{}},
			}
		}
		msg, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		got, code, ok := parseQuery(msg)
		if !ok || code != dnsmessage.RCodeSuccess || got.size != want || got.edns != (size >= 0) {
			t.Errorf("%d: %+v, %v, %v", size, got, code, ok)
		}
		// A client that speaks EDNS is answered with it.
		if r := newReply(got, dnsmessage.RCodeSuccess); (len(r.Additionals) == 1) != (size >= 0) {
			t.Errorf("%d: additional records %+v", size, r.Additionals)
		}
	}
	q.Questions = append(q.Questions, q.Questions[0])
	msg, err := q.Pack()
	if _, code, ok := parseQuery(msg); err != nil || !ok || code != dnsmessage.RCodeFormatError {
		t.Errorf("two questions at once: %v, %v", code, err)
	}
}
