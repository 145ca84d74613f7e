package apiaccess

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/manifests"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/tokens"
	"monopod/runner/podstatus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has pods, service accounts and a clock.
type machine struct {
	now      time.Time
	since    time.Duration
	pods     []podstatus.Status
	blind    bool
	accounts []*corev1.ServiceAccount
	gateways []netip.Prefix
	service  netip.AddrPort
	wanted   int
	access   *Access
}

func newMachine(t *testing.T, address string) *machine {
	m := &machine{now: time.Now(), gateways: []netip.Prefix{netip.MustParsePrefix("10.88.0.1/16")}}
	issuer := tokens.New(tokens.Config{Dir: t.TempDir(), Now: func() boottime.Moment {
		return boottime.Moment{Boot: "b", Since: time.Hour + m.since, Wall: m.now}
	}})
	m.access = New(Config{
		Address: address, Issuer: issuer, Gateways: func() ([]netip.Prefix, error) { return m.gateways, nil },
		Service: func() netip.AddrPort { return m.service }, Wanted: func() { m.wanted++ }, RootCA: func() string { return "ca" },
		Pods:    func() ([]podstatus.Status, bool) { return m.pods, !m.blind },
		Account: m.account, Now: func() time.Time { return m.now }, Log: slog.New(slog.DiscardHandler),
	})
	return m
}

func (m *machine) account(namespace, name string) *corev1.ServiceAccount {
	for _, o := range m.accounts {
		if o.Namespace == namespace && o.Name == name {
			return o
		}
	}
	return nil
}

func (m *machine) pass(d time.Duration) { m.now, m.since = m.now.Add(d), m.since+d }

const loopback = "127.0.0.1:6443"

// pod is one that uses the API with a role.
func pod(role string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p1"}}
	if role != "" {
		p.Annotations = map[string]string{manifests.AnnotationAPIAccess: role}
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		manifests.AddTokenVolume(&p.Spec)
	}
	return p
}

func (m *machine) run(p *corev1.Pod) *corev1.Pod {
	m.pods = []podstatus.Status{{Pod: p}}
	return p
}

func projection() *corev1.ServiceAccountTokenProjection {
	return &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3600)), Path: "token"}
}

func (m *machine) token(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	token, err := m.access.Token(p, projection())
	if err != nil {
		t.Fatal(err)
	}
	return string(token)
}

func TestWherePodsReachTheAPI(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		address       string
		host, nothing bool
		service       string
		want, fails   string
	}{
		"loopback":                      {address: loopback, want: "10.88.0.1 6443"},
		"localhost":                     {address: "localhost:6443", want: "10.88.0.1 6443"},
		"all addresses":                 {address: ":7000", want: "10.88.0.1 7000"},
		"an address":                    {address: "192.0.2.7:6443", want: "192.0.2.7 6443"},
		"a name":                        {address: "edge:6443", want: "edge 6443"},
		"a Service":                     {address: loopback, service: "10.96.0.1:443", want: "10.96.0.1 443"},
		"network of the host":           {address: loopback, host: true, service: "10.96.0.1:443", want: "127.0.0.1 6443"},
		"network of the host, all":      {address: "0.0.0.0:6443", host: true, want: "127.0.0.1 6443"},
		"another network":               {address: loopback, nothing: true, fails: "127.0.0.1:6443, which is unreachable for pods"},
		"another network, of the host":  {address: loopback, nothing: true, host: true, want: "127.0.0.1 6443"},
		"another network, with address": {address: "192.0.2.7:6443", nothing: true, want: "192.0.2.7 6443"},
		"off":                           {fails: "set apiServer.address"},
	} {
		m := newMachine(t, c.address)
		if c.nothing {
			m.gateways = nil
		}
		if c.service != "" {
			m.service = netip.MustParseAddrPort(c.service)
		}
		p := pod("view")
		p.Spec.HostNetwork = c.host
		_, err := m.access.Token(p, projection())
		vars := m.access.Variables(p)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || vars != nil || m.wanted != 0 {
				t.Errorf("%s: %v, %v", name, err, vars)
			}
			continue
		}
		if got := vars["KUBERNETES_SERVICE_HOST"] + " " + vars["KUBERNETES_SERVICE_PORT"]; err != nil || got != c.want || m.wanted != 1 {
			t.Errorf("%s: %s, %v, wanted %d times", name, got, err, m.wanted)
		}
	}
}

func TestOnlyPodsThatAskGetAnything(t *testing.T) {
	t.Parallel()
	m := newMachine(t, loopback)
	if _, err := m.access.Token(pod(""), projection()); err == nil || !strings.Contains(err.Error(), manifests.AnnotationAPIAccess) {
		t.Error(err)
	}
	if v := m.access.Variables(pod("")); v != nil || m.wanted != 0 || m.access.Behind() != nil {
		t.Errorf("%v, %d", v, m.wanted)
	}
	p := pod("view")
	p.UID = ""
	if token, err := m.access.Token(p, projection()); err != nil || len(token) != 0 {
		t.Errorf("a pod that does not exist yet: %q, %v", token, err)
	}
	if b := m.access.Behind(); len(b) != 1 || b[0].String() != "10.88.0.1:6443" {
		t.Error(b)
	}
	if n := m.access.Names(); len(n) != 1 || n[0].String() != "10.88.0.1" || m.access.RootCA() != "ca" {
		t.Error(n)
	}
	if s, b := m.access.Addresses(); s != b || b != "10.88.0.1:6443" {
		t.Error(s, b)
	}
}

func TestATokenIsNeverOlderThanFourFifthsOfItsLife(t *testing.T) {
	t.Parallel()
	m := newMachine(t, loopback)
	p := m.run(pod("view"))
	first := m.token(t, p)
	m.pass(23 * time.Minute)
	if m.token(t, p) != first {
		t.Error("it is replaced after 23 minutes")
	}
	m.pass(2 * time.Minute)
	second := m.token(t, p)
	if second == first {
		t.Error("it is not replaced after two fifths")
	}
	if _, ok, err := m.access.AuthenticateToken(t.Context(), first); !ok {
		t.Errorf("the old one has ended: %v", err)
	}
	m.pass(36 * time.Minute)
	if _, ok, err := m.access.AuthenticateToken(t.Context(), first); ok || !errors.Is(err, tokens.ErrExpired) {
		t.Errorf("the old one has not ended: %v", err)
	}
}

func TestATokenHasTheRoleOfItsPod(t *testing.T) {
	t.Parallel()
	for role, group := range map[string]string{"view": access.GroupView, "edit": access.GroupEdit, "admin": access.GroupAdmin, "rules": ""} {
		m := newMachine(t, loopback)
		u, ok, err := m.access.AuthenticateToken(t.Context(), m.token(t, m.run(pod(role))))
		want := []string{"system:serviceaccounts", "system:serviceaccounts:ns"}
		if group != "" {
			want = append(want, group)
		}
		if err != nil || !ok || u.Name != "system:serviceaccount:ns:default" || !slices.Equal(u.Groups, want) || u.Extra["authentication.kubernetes.io/pod-uid"][0] != "p1" {
			t.Errorf("%s: %+v, %t, %v", role, u, ok, err)
		}
	}
	m := newMachine(t, loopback)
	token := m.token(t, m.run(pod("admin")))
	m.pods[0].Origin.Source = config.SourceAPIServer
	if u, ok, _ := m.access.AuthenticateToken(t.Context(), token); !ok || len(u.Groups) != 2 {
		t.Errorf("a pod of another API server has a role: %+v", u)
	}
}

func TestATokenEndsWithItsPodAndItsAccount(t *testing.T) {
	t.Parallel()
	m := newMachine(t, loopback)
	p := pod("view")
	p.Spec.ServiceAccountName = "robot"
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "a1"}}
	m.accounts = []*corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}, robot}
	token := m.token(t, m.run(p))
	check := func(when, want string) {
		t.Helper()
		_, ok, err := m.access.AuthenticateToken(context.Background(), token)
		if want == "" && (!ok || err != nil) || want != "" && (ok || err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %t, %v", when, ok, err)
		}
	}
	check("at once", "")
	m.accounts = nil
	check("the account is deleted", "service account ns/robot of the token no longer exists")
	m.accounts = []*corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "a2"}}}
	check("the account is made anew", "no longer exists")
	m.accounts = []*corev1.ServiceAccount{robot}
	m.blind = true
	check("not all pods are known", "")
	m.pods = nil
	check("the pod is not known", "not been observed yet")
	m.blind = false
	check("the pod is gone", "pod ns/p of the token no longer exists")
	again := p.DeepCopy()
	again.UID = "p2"
	m.run(again)
	check("the pod is made anew", "no longer exists")
}

func TestATokenIsForItsAudiences(t *testing.T) {
	t.Parallel()
	m := newMachine(t, loopback)
	other := projection()
	other.Audience = "vault"
	token, err := m.access.Token(m.run(pod("view")), other)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := m.access.AuthenticateToken(t.Context(), string(token)); ok || err == nil {
		t.Error("it is good for the API")
	}
	if _, common, ok, err := m.access.AuthenticateFor(t.Context(), string(token), []string{"a", "vault"}); !ok || err != nil || !slices.Equal(common, []string{"vault"}) {
		t.Errorf("%v, %t, %v", common, ok, err)
	}
	if _, ok, err := m.access.AuthenticateToken(t.Context(), "of a file"); ok || err != nil {
		t.Errorf("an unknown token: %t, %v", ok, err)
	}
}

func TestTheAPIListensForPodsOnceOneUsesIt(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{loopback: "10.88.0.1:6443", ":6443": "", "192.0.2.7:6443": "", "": ""} {
		m := newMachine(t, address)
		ctx, cancel := context.WithCancel(t.Context())
		serving := make(chan string, 1)
		var all sync.WaitGroup
		all.Go(func() {
			if err := m.access.Run(ctx, func(ctx context.Context, at string) error { serving <- at; <-ctx.Done(); return nil }); err != nil {
				t.Error(err)
			}
		})
		if want != "" {
			select {
			case at := <-serving:
				t.Errorf("%s is served before a pod uses it", at)
			default:
			}
			m.token(t, pod("view"))
			if at := <-serving; at != want {
				t.Errorf("%s: %s", address, at)
			}
		}
		cancel()
		all.Wait()
	}
}
