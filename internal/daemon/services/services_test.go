package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/runner/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a State, and Rules.
type fake struct {
	mu       sync.Mutex
	pods     []*corev1.Pod
	services []*corev1.Service
	origins  *model.Origins
	known    bool
	// unread: no source has been read yet.
	unread  bool
	changed chan struct{}

	unsupported, failing error
	table                service.Table
	applied, removed     int
	isDamaged            bool
	repaired             int
	report               func()
	subnets              []netip.Prefix
}

// seen records the calls of a fake.
type seen struct {
	table             service.Table
	applied, repaired int
}

func (f *fake) state() seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return seen{f.table, f.applied, f.repaired}
}

// damage damages the rules, and returns the function to report it.
func (f *fake) damage() (report func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isDamaged = true
	return f.report
}

func newFake() *fake { return &fake{changed: make(chan struct{}, 1), known: true} }

func (f *fake) set(edit func()) {
	f.mu.Lock()
	edit()
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *fake) Subscribe() (<-chan struct{}, func()) { return f.changed, func() {} }

func (f *fake) Endpoints() (model.Endpoints, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return model.Endpoints{Pods: f.pods, Services: f.services}, f.known
}

func (f *fake) Services() ([]*corev1.Service, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.services, !f.unread
}

func (f *fake) ServiceOrigins() *model.Origins {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.origins
}

func (f *fake) Supported() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unsupported
}

func (f *fake) Apply(_ context.Context, t service.Table) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied++
	if f.failing == nil {
		f.table = t
	}
	return f.failing
}

func (f *fake) Repair(context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.isDamaged
	if f.isDamaged = false; was {
		f.repaired++
	}
	return was, nil
}

func (f *fake) Watch(ctx context.Context, damaged func()) error {
	f.mu.Lock()
	f.report = damaged
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (f *fake) Remove() error { f.removed++; return nil }

// network returns a Network of a fake with a directory, not prepared yet.
func network(dir, pods, subnet string, f *fake) *Manager {
	cfg := &config.Loaded{}
	cfg.RootDirectory, cfg.PodCIDR, cfg.ServiceSubnet = dir, pods, subnet
	return New(Config{
		Agent: cfg, State: f, Log: slog.New(slog.DiscardHandler),
		Rules: func(_ *config.Config, pods []netip.Prefix, _ *slog.Logger) containers.Rules {
			f.subnets = pods
			return f
		},
		Gateways: func(*config.Config) ([]netip.Prefix, error) {
			return []netip.Prefix{netip.MustParsePrefix("10.87.0.1/16")}, nil
		},
		Addresses: func() ([]string, error) { return []string{"192.0.2.7"}, nil },
	})
}

const both = "10.96.0.0/16,fd10:96::/112"

func front(edit ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "front"}}
	s.Spec.Selector, s.Spec.Ports = map[string]string{"app": "web"}, []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
	for _, e := range edit {
		e(&s.Spec)
	}
	return s
}

func web(ip string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	return p
}

func TestServicesHaveAddressesOfTheConfiguredRanges(t *testing.T) {
	tests := []struct {
		name         string
		pods, subnet string
		edit         func(*Manager, *fake)
		want         string // the beginning of the address
	}{
		{"IPv4", "10.87.0.0/16", both, nil, "10.96."},
		{"IPv6", "fd00::/64", both, nil, "fd10:96::"},
		{"IPv6 first", "fd00::/64,10.87.0.0/16", both, nil, "fd10:96::"},
		{"pods have another family", "fd00::/64", "10.96.0.0/16", nil, ""},
		{"off", "10.87.0.0/16", "off", nil, ""},
		{"overlap", "10.96.0.0/12", both, nil, ""},
		{"another network of the machine", "10.87.0.0/16", both, func(n *Manager, _ *fake) { n.cfg.Free = func(string) error { return errors.New("used") } }, ""},
		{"free", "10.87.0.0/16", both, func(n *Manager, _ *fake) { n.cfg.Free = func(string) error { return nil } }, "10.96."},
		{"a kernel without nftables", "10.87.0.0/16", both, func(_ *Manager, f *fake) { f.unsupported = errors.New("no") }, ""},
		{"nobody translates", "10.87.0.0/16", both, func(n *Manager, _ *fake) { n.cfg.Rules = nil }, ""},
		{"another CNI configuration", "10.87.0.0/16", both, func(n *Manager, _ *fake) { n.cfg.Gateways = nil }, "10.96."},
	}
	for _, tt := range tests {
		f := newFake()
		f.services = []*corev1.Service{front(func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "192.0.2.9", []string{"192.0.2.9"} })}
		n := network(t.TempDir(), tt.pods, tt.subnet, f)
		if tt.edit != nil {
			tt.edit(n, f)
		}
		n.Prepare(t.Context())
		got := n.Allocated("default", "front").Spec.ClusterIP
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
		if vars := n.Variables("file", "default"); (vars["FRONT_SERVICE_HOST"] != got) || tt.want == "" && len(vars) > 0 {
			t.Errorf("%s: %v", tt.name, vars)
		}
		if switched := tt.want == "" && n.cfg.Rules != nil; switched != (f.removed == 1) {
			t.Errorf("%s: rules of an earlier run were removed %d times", tt.name, f.removed)
		}
		if (len(f.subnets) > 0) != (n.cfg.Gateways != nil && n.cfg.Rules != nil) {
			t.Errorf("%s: the rules are for pods of %v", tt.name, f.subnets)
		}
		if f.services[0].Spec.ClusterIP != "192.0.2.9" {
			t.Errorf("%s: the document was modified", tt.name)
		}
	}
}

func TestAddressesAreRememberedInAFile(t *testing.T) {
	dir := t.TempDir()
	given := func(instance string) string {
		f := newFake()
		f.services = []*corev1.Service{front()}
		n := network(dir, "10.87.0.0/16", both, f)
		n.cfg.Agent.RootDirectory = instance // it chooses other addresses
		n.Prepare(t.Context())
		return n.Allocated("default", "front").Spec.ClusterIP
	}
	first := given(dir)
	if again := given("/elsewhere"); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if err := os.WriteFile(filepath.Join(dir, "services.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := given(dir); again != first {
		t.Errorf("with a damaged file: %s, then %s", first, again)
	}
}

// TestNothingIsForgottenBeforeTheSourcesAreRead: a client of the API may connect before that, and its certificate has the address of a Service.
func TestNothingIsForgottenBeforeTheSourcesAreRead(t *testing.T) {
	dir := t.TempDir()
	start := func() (*Manager, *fake) {
		f := newFake()
		f.services, f.unread = nil, true
		n := network(dir, "10.87.0.0/16", both, f)
		n.Prepare(t.Context())
		return n, f
	}
	read := func(n *Manager, f *fake) corev1.ServiceSpec {
		f.set(func() {
			f.services, f.unread = []*corev1.Service{front(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })}, false
		})
		return n.Allocated("default", "front").Spec
	}
	n, f := start()
	first := read(n, f)
	before, err := os.ReadFile(filepath.Join(dir, "services.json"))
	if err != nil {
		t.Fatal(err)
	}
	n, f = start()
	if n.Allocated("default", "front") != nil || n.APIAddress().IsValid() {
		t.Error("Services exist before they are read")
	}
	if after, err := os.ReadFile(filepath.Join(dir, "services.json")); err != nil || string(after) != string(before) {
		t.Errorf("%s, was %s, %v", after, before, err)
	}
	again := read(n, f)
	if again.ClusterIP != first.ClusterIP || again.Ports[0].NodePort != first.Ports[0].NodePort {
		t.Errorf("%+v, was %+v", again, first)
	}
}

// TestWhatAnotherServiceHasIsRefused: also the address of the API.
func TestWhatAnotherServiceHasIsRefused(t *testing.T) {
	f := newFake()
	f.pods, f.services = []*corev1.Pod{web("10.87.0.2")}, []*corev1.Service{front()}
	n := network(t.TempDir(), "10.87.0.0/16", both, f)
	n.cfg.API = func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("10.87.0.1:6443")} }
	n.Prepare(t.Context())
	for _, at := range []string{n.Allocated("default", "front").Spec.ClusterIP, n.APIAddress().Addr().String()} {
		other := front(func(s *corev1.ServiceSpec) { s.ClusterIP = at })
		other.Name = "other"
		if errs := n.Refused(other); len(errs) != 1 || !strings.HasSuffix(errs[0].Detail, "provided IP is already allocated") {
			t.Errorf("%s: %v", at, errs)
		}
	}
	if errs := n.Refused(front()); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestRulesAndNamesFollowThePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.known = false
		f.services = []*corev1.Service{front()}
		n := network(t.TempDir(), "10.87.0.0/16", both, f)
		n.Prepare(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		var named []string
		checks := 0
		n.cfg.Checked = func() { checks++ }
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.Run(ctx, func(e model.Endpoints) { named = append(named, e.Services[0].Spec.ClusterIP) })
		}()
		step := func(what string, edit func(), ports, ends int) {
			t.Helper()
			f.set(edit)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			got, table := 0, f.state().table
			for _, p := range table.Ports {
				got += len(p.To)
			}
			if len(table.Ports) != ports || got != ends {
				t.Errorf("%s: %+v", what, table)
			}
		}
		step("pods are not known", func() {}, 0, 0)
		if f.state().applied > 0 || len(named) > 0 {
			t.Error("what is not known is taken for nothing")
		}
		step("a pod", func() { f.known, f.pods = true, []*corev1.Pod{web("10.87.0.2")} }, 2, 2)
		if len(named) == 0 || !strings.HasPrefix(named[0], "10.96.") {
			t.Errorf("names stand for %v", named)
		}
		step("an unready pod", func() { p := web("10.87.0.2"); p.Status.Conditions = nil; f.pods = []*corev1.Pod{p} }, 1, 0)
		step("no pods: no rules", func() { f.pods = nil }, 0, 0)
		step("an error", func() { f.failing, f.pods = errors.New("busy"), []*corev1.Pod{web("10.87.0.3")} }, 0, 0)
		tries := f.state().applied
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := f.state().applied - tries; n < 3 {
			t.Errorf("%d tries in 5 s", n)
		}
		step("no error", func() { f.failing = nil }, 2, 2)
		f.damage()()
		time.Sleep(time.Second)
		if n := f.state().repaired; n != 1 {
			t.Errorf("repaired %d times", n)
		}
		f.damage()
		time.Sleep(checkServices + time.Second)
		synctest.Wait()
		if n := f.state().repaired; n != 2 || checks != 1 {
			t.Errorf("without an event, repaired %d times in %d checks", n, checks)
		}
		cancel()
		<-done
	})
}

// TestARestartKeepsAddressesInUse: what is wrong with the range or the kernel may pass, and running pods know the addresses.
func TestARestartKeepsAddressesInUse(t *testing.T) {
	taken := func(string) error { return errors.New("a VPN has 10.0.0.0/8") }
	for name, c := range map[string]struct {
		used          bool
		edit          func(*Manager, *fake)
		removed       int
		at, addressed bool // whether the Service has its address at once, and after a while
	}{
		"a VPN, in use":             {true, func(n *Manager, _ *fake) { n.cfg.Free = taken }, 0, true, true},
		"a VPN, new":                {false, func(n *Manager, _ *fake) { n.cfg.Free = taken }, 1, false, true},
		"nftables is busy":          {true, func(_ *Manager, f *fake) { f.unsupported = errors.New("busy") }, 0, false, true},
		"nftables is busy at first": {false, func(_ *Manager, f *fake) { f.unsupported = errors.New("busy") }, 1, false, true},
		"switched off":              {true, func(n *Manager, _ *fake) { n.cfg.Agent.ServiceSubnet = "off" }, 1, false, false},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			had := ""
			if c.used {
				f := newFake()
				f.services = []*corev1.Service{front()}
				n := network(dir, "10.87.0.0/16", both, f)
				n.Prepare(t.Context())
				had = n.Allocated("default", "front").Spec.ClusterIP
			}
			f := newFake()
			f.pods, f.services = []*corev1.Pod{web("10.87.0.2")}, []*corev1.Service{front()}
			n := network(dir, "10.87.0.0/16", both, f)
			c.edit(n, f)
			n.Prepare(t.Context())
			if got := n.Allocated("default", "front").Spec.ClusterIP; (got != "") != c.at || c.at && got != had || f.removed != c.removed {
				t.Errorf("%s: %q, had %q, removed %d times", name, got, had, f.removed)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); n.Run(ctx, func(model.Endpoints) {}) }()
			time.Sleep(time.Second)
			synctest.Wait()
			f.set(func() { f.unsupported = nil })
			n.mu.Lock()
			n.cfg.Free = func(string) error { return nil }
			n.mu.Unlock()
			time.Sleep(2 * checkServices)
			synctest.Wait()
			if got := n.Allocated("default", "front").Spec.ClusterIP; (got != "") != c.addressed || had != "" && c.addressed && got != had || (len(f.state().table.Ports) > 0) != c.addressed {
				t.Errorf("%s: %q, had %q, and %+v", name, got, had, f.state().table)
			}
			report := f.damage()
			if (report != nil) != c.addressed {
				t.Errorf("%s: watched: %t", name, report != nil)
			}
			if report != nil {
				report()
				time.Sleep(time.Second)
				synctest.Wait()
				if f.state().repaired == 0 {
					t.Errorf("%s: not repaired", name)
				}
			}
			cancel()
			<-done
		})
	}
}

// TestAddressesWithoutAServiceAreRefused: unless they are those of another network of the machine, which may come and go.
func TestAddressesWithoutAServiceAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		n := network(t.TempDir(), "10.87.0.0/16,fd00::/64", both, f)
		var mu sync.Mutex
		overlapped := ""
		n.cfg.Free = func(subnet string) error {
			mu.Lock()
			defer mu.Unlock()
			if subnet == overlapped {
				return errors.New("a VPN has 10.0.0.0/8")
			}
			return nil
		}
		n.Prepare(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.Run(ctx, nil)
		}()
		step := func(what, vpn, want string, pods ...*corev1.Pod) {
			t.Helper()
			mu.Lock()
			overlapped = vpn
			mu.Unlock()
			f.set(func() { f.pods = pods })
			time.Sleep(checkServices + time.Second)
			synctest.Wait()
			if got := fmt.Sprint(f.state().table.Ranges); got != want {
				t.Errorf("%s: %s", what, got)
			}
		}
		step("no pods: no rules", "", "[]")
		step("a pod and no Services", "", "[10.96.0.0/16 fd10:96::/112]", web("10.87.0.2"))
		step("a VPN", "10.96.0.0/16", "[fd10:96::/112]", web("10.87.0.2"))
		step("it is gone", "", "[10.96.0.0/16 fd10:96::/112]", web("10.87.0.2"))
		cancel()
		<-done
	})
}

func TestNothingRunsForNobody(t *testing.T) {
	n := network(t.TempDir(), "10.87.0.0/16", "off", newFake())
	n.Prepare(t.Context())
	n.Run(t.Context(), nil) // returns
}

func TestLoadBalancersFollowTheAddressOfTheMachine(t *testing.T) {
	f := newFake()
	f.services = []*corev1.Service{front(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer })}
	n := network(t.TempDir(), "10.87.0.0/16", both, f)
	n.Prepare(t.Context())
	for _, ip := range []string{"192.0.2.7", "192.0.2.8"} {
		n.cfg.Addresses = func() ([]string, error) { return []string{ip, "none"}, nil }
		if _, err := n.update(t.Context(), model.Endpoints{Pods: []*corev1.Pod{web("10.87.0.2")}, Services: f.services}); err != nil {
			t.Fatal(err)
		}
		if in := n.Allocated("default", "front").Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != ip {
			t.Errorf("%v", in)
		}
	}
	n.cfg.Addresses = func() ([]string, error) { return nil, errors.New("no") }
	if given, err := n.update(t.Context(), model.Endpoints{Services: f.services}); err != nil || len(given[0].Status.LoadBalancer.Ingress) != 1 {
		t.Errorf("%v, %v", given, err)
	}
	if n.Allocated("default", "other") != nil {
		t.Error("there is no such Service")
	}
	// All containers of a namespace that start share the variables.
	vars := n.Variables("file", "default")
	if a := testing.AllocsPerRun(10, func() { n.Variables("file", "default") }); a > 10 {
		t.Errorf("%.0f allocations for the variables of a namespace that are known", a)
	}
	if other := n.Variables("file", "other"); len(other) > 0 || !maps.Equal(n.Variables("file", "default"), vars) {
		t.Errorf("%v in another namespace", other)
	}
}

// TestServicesOfAnAPIServerKeepTheirAddresses: clients know them from there.
func TestServicesOfAnAPIServerKeepTheirAddresses(t *testing.T) {
	f := newFake()
	f.services = []*corev1.Service{front(func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "192.0.2.9", []string{"192.0.2.9"} })}
	f.origins = &model.Origins{Services: map[manifests.Key]string{{Namespace: "default", Name: "front"}: config.SourceAPIServer}}
	n := network(t.TempDir(), "10.87.0.0/16", both, f)
	n.Prepare(t.Context())
	if got := n.Allocated("default", "front").Spec.ClusterIP; got != "192.0.2.9" {
		t.Error(got)
	}
	if vars := n.Variables("file", "default"); vars["FRONT_SERVICE_HOST"] != "192.0.2.9" {
		t.Error(vars)
	}
}

// TestVariablesAreOfServicesThatThePodSees: a pod would connect to what another source names like what it expects.
func TestVariablesAreOfServicesThatThePodSees(t *testing.T) {
	f := newFake()
	f.services = []*corev1.Service{front()}
	f.origins = &model.Origins{
		Spaces:   &manifests.Spaces{Local: []string{"file", "applied"}, Sharing: map[string][]string{"shop": {"fleet/default"}}},
		Services: map[manifests.Key]string{{Namespace: "default", Name: "front"}: "fleet"},
	}
	n := network(t.TempDir(), "10.87.0.0/16", both, f)
	n.Prepare(t.Context())
	for source, want := range map[string]bool{"fleet": true, "shop": true, "file": false, "other": false, config.SourceAPIServer: false} {
		if _, got := n.Variables(source, "default")["FRONT_SERVICE_HOST"]; got != want {
			t.Errorf("variables for a pod of %s: %t", source, got)
		}
	}
}

// TestTheLocalSpaceIsNotRefusedWhatOthersHave: they give it up.
func TestTheLocalSpaceIsNotRefusedWhatOthersHave(t *testing.T) {
	f := newFake()
	asks := func(name string) *corev1.Service {
		s := front(func(s *corev1.ServiceSpec) {
			s.ClusterIP, s.Type, s.Ports[0].NodePort = "10.96.0.10", corev1.ServiceTypeNodePort, 30080
		})
		s.Name = name
		return s
	}
	f.origins = &model.Origins{Spaces: &manifests.Spaces{Local: []string{"applied"}}, Services: map[manifests.Key]string{{Namespace: "default", Name: "x"}: "fleet"}}
	n := network(t.TempDir(), "10.87.0.0/16", both, f)
	n.Prepare(t.Context())
	for source, refused := range map[string]int{"fleet": 0, "applied": 2} {
		f.origins.Services[manifests.Key{Namespace: "default", Name: "x"}], f.services = source, []*corev1.Service{asks("x")}
		if errs := n.Refused(asks("new")); len(errs) != refused {
			t.Errorf("%s has them: %v", source, errs)
		}
	}
	f.origins.Spaces.Local, f.origins.Services[manifests.Key{Namespace: "default", Name: "x"}] = nil, "fleet"
	if errs := n.Refused(asks("new")); len(errs) != 2 {
		t.Errorf("applied is a space among others: %v", errs)
	}
}

// TestWhatAServiceDoesNotGetIsInItsStatus: with the time since when it is so.
func TestWhatAServiceDoesNotGetIsInItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		asks := func(name string) *corev1.Service {
			s := front(func(s *corev1.ServiceSpec) {
				s.ClusterIP, s.Type, s.Ports[0].NodePort = "10.96.0.10", corev1.ServiceTypeNodePort, 30080
			})
			s.Name = name
			return s
		}
		f.services = []*corev1.Service{asks("fleet"), asks("local")}
		f.origins = &model.Origins{Spaces: &manifests.Spaces{Local: []string{"applied"}}, Services: map[manifests.Key]string{
			{Namespace: "default", Name: "fleet"}: "fleet", {Namespace: "default", Name: "local"}: "applied",
		}}
		n := network(t.TempDir(), "10.87.0.0/16", both, f)
		n.Prepare(t.Context())
		since := time.Now()
		for range 2 {
			if got := n.Allocated("default", "local"); model.Refusal(got) != "" || got.Spec.ClusterIP != "10.96.0.10" {
				t.Errorf("%+v", got)
			}
			got := n.Allocated("default", "fleet")
			reasons := strings.Split(model.Refusal(got), "\n")
			if len(reasons) != 2 || !strings.Contains(reasons[0], "10.96.0.10 is already used by Service default/local of the local space") || !strings.Contains(reasons[1], "nodePort 30080") {
				t.Errorf("%q", reasons)
			}
			if c := got.Status.Conditions; len(c) != 1 || c[0].Status != metav1.ConditionFalse || !c[0].LastTransitionTime.Time.Equal(since) {
				t.Errorf("%+v", c)
			}
			time.Sleep(time.Hour)
			f.services = []*corev1.Service{asks("fleet"), asks("local")} // read again
		}
	})
}

func TestServicesSayWhyTheyHaveNoAddresses(t *testing.T) {
	f := newFake()
	f.unsupported = errors.New("no nftables")
	headless := front(func(s *corev1.ServiceSpec) { s.ClusterIP = "None" })
	headless.Name = "headless"
	f.services = []*corev1.Service{front(), headless}
	n := network(t.TempDir(), "10.87.0.0/16", both, f)
	n.Prepare(t.Context())
	if got := model.Refusal(n.Allocated("default", "front")); got != "no cluster IP, its name resolves to its pods: no nftables" {
		t.Errorf("%q", got)
	}
	if got := model.Refusal(n.Allocated("default", "headless")); got != "" {
		t.Errorf("%q", got)
	}
}
