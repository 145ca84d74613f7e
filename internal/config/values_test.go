package config

import (
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/policy"
	"monopod/node/budget"
	"monopod/node/capacity"
	"monopod/node/shutdown"
	"monopod/runner"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/spec/limits"
	"monopod/watcher/fetch"
)

func TestBudgetsAreInBytesAndThousandthsOfAProcessor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		memory, cpu string
		want        budget.Limits
	}{
		{"", "", budget.Limits{}},
		{"96Mi", "", budget.Limits{Memory: 96 << 20}},
		{"", "1.5", budget.Limits{MilliCPU: 1500}},
		{"100M", "500m", budget.Limits{Memory: 100_000_000, MilliCPU: 500}},
	} {
		cfg := &Config{AgentMemoryBudget: c.memory, AgentCPUBudget: c.cpu}
		if got := cfg.Budgets(); got != c.want {
			t.Errorf("%q, %q: %+v, want %+v", c.memory, c.cpu, got, c.want)
		}
	}
}

func TestPodsStopInTheOrderOfTheirPriority(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		want []shutdown.Group
	}{
		"nothing is waited for": {Config{}, nil},
		"critical ones are last": {
			Config{ShutdownGracePeriod: 30 * time.Second, ShutdownGracePeriodCriticalPods: 10 * time.Second},
			[]shutdown.Group{{Grace: 20 * time.Second}, {Priority: runner.CriticalPriority, Grace: 10 * time.Second}},
		},
		"each priority as it says": {
			Config{ShutdownGraces: []ShutdownGrace{{1000, 10}, {-5, 1}, {0, 20}}},
			[]shutdown.Group{{Priority: -5, Grace: time.Second}, {Grace: 20 * time.Second}, {Priority: 1000, Grace: 10 * time.Second}},
		},
	} {
		if diff := cmp.Diff(c.want, c.cfg.ShutdownGroups()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestSourcesStandInTheOrderThatIsWantedThenInTheirOwn(t *testing.T) {
	t.Parallel()
	remote := []RemoteSource{{Name: "fleet"}, {Name: "site"}}
	limited := []RemoteSource{{Name: "fleet", PodSecurity: "baseline"}, {Name: "site", PodSecurity: "privileged"}}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "file http applied"},
		{Config{RemoteSources: remote}, "file http fleet site applied"},
		{Config{RemoteSources: remote, SourceOrder: []string{"applied", "site"}}, "applied site file http fleet"},
		{Config{APIServerPods: true, SourceOrder: []string{"http"}}, "http file applied " + SourceAPIServer},
		// Local sources come first, whatever is configured.
		{Config{RemoteSources: limited}, "file http site applied fleet"},
		{Config{RemoteSources: limited, SourceOrder: []string{"fleet", "applied", "file"}}, "applied file http site fleet"},
		{
			Config{APIServerPods: true, RemoteSources: limited, StaticPodPathSecurity: "restricted", SourceOrder: []string{SourceAPIServer, "fleet"}},
			"http site applied " + SourceAPIServer + " fleet file",
		},
	} {
		order := slices.Clone(c.cfg.SourceOrder)
		if got := strings.Join(c.cfg.SourceNames(), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.cfg.SourceOrder, got, c.want)
		}
		if !slices.Equal(order, c.cfg.SourceOrder) {
			t.Errorf("the configuration was changed: %v", c.cfg.SourceOrder)
		}
	}
}

func TestOnlyRemoteSourcesMayNotBeCritical(t *testing.T) {
	t.Parallel()
	cfg := &Config{
		AllowedUnsafeSysctls: []string{"net.*"}, HelmHooks: true, StaticPodPathSecurity: "privileged", StaticPodURL: "https://h/", StaticPodURLSecurity: "baseline",
		AppliedSecurity: "restricted", RemoteSources: []RemoteSource{{Name: "fleet", URL: "https://f/", PodSecurity: "baseline"}, {Name: "site", CriticalPods: true}},
		Namespaces: map[string][]string{"fleet": {"shop"}, SourceAPIServer: {"edge"}},
	}
	for source, want := range map[string]policy.Policy{
		SourceFile:      {PodSecurity: "privileged"},
		SourceHTTP:      {PodSecurity: "baseline", RefuseCritical: true},
		SourceApplied:   {PodSecurity: "restricted"},
		SourceAPIServer: {Namespaces: []string{"edge"}},
		"fleet":         {PodSecurity: "baseline", RefuseCritical: true, Namespaces: []string{"shop"}},
		"site":          {},
	} {
		want.AllowedUnsafeSysctls, want.HelmHooks = []string{"net.*"}, true
		if diff := cmp.Diff(want, cfg.Policy(source)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", source, diff)
		}
	}
	cfg.StaticPodURLCriticalPods, cfg.RemoteSources = true, cfg.RemoteSources[:1]
	if cfg.Policy(SourceHTTP).RefuseCritical {
		t.Error("staticPodURLCriticalPods has no effect")
	}
	all := cfg.Remotes()
	want := []RemoteSource{cfg.RemoteSources[0], {Name: SourceHTTP, URL: "https://h/", PodSecurity: "baseline", CriticalPods: true}}
	if diff := cmp.Diff(want, all); diff != "" || len(cfg.RemoteSources) != 1 {
		t.Errorf("-want +got:\n%s", diff)
	}
	if cfg.StaticPodURL = ""; len(cfg.Remotes()) != 1 {
		t.Errorf("without staticPodURL: %+v", cfg.Remotes())
	}
}

func TestPullsAreLimitedAsIsWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want registry.Limits
	}{
		{Config{RegistryPullQPS: 5, RegistryBurst: 10}, registry.Limits{QPS: 5, Burst: 10}},
		{Config{MaxParallelImagePulls: 3, ImagePullBandwidth: "2Mi"}, registry.Limits{Parallel: 3, Bandwidth: 2 << 20}},
		{Config{SerializeImagePulls: true}, registry.Limits{Parallel: 1}},
	} {
		if got := c.cfg.PullLimits(); got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
	cfg := &Config{ImageGCHighThresholdPercent: 85, ImageGCLowThresholdPercent: 80, ImageMinimumGCAge: time.Minute, ImageMaximumGCAge: time.Hour}
	if got, want := cfg.GarbagePolicy(), (gc.Policy{High: 85, Low: 80, MinAge: time.Minute, MaxAge: time.Hour}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	cfg = &Config{RegistryConfig: "/auth.json", RegistryHostsDirs: []string{"/certs.d"}}
	if got := cfg.RegistryAccess(slog.New(slog.DiscardHandler)); got.AuthFile != "/auth.json" || !slices.Equal(got.HostsDirs, cfg.RegistryHostsDirs) {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsReservedIsKeptFromPods(t *testing.T) {
	t.Parallel()
	machine := capacity.Machine{MilliCPU: 4000, Memory: 8 << 30, PIDs: 32768}
	cfg := &Config{
		SystemReserved: map[string]string{"cpu": "500m", "memory": "1Gi"}, KubeReserved: map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "768"},
		EnforceNodeAllocatable: []string{enforcePods},
	}
	r, err := cfg.Reserved()
	if memory := r.System[corev1.ResourceMemory]; err != nil || memory.Value() != 1<<30 || len(r.Kube) != 3 {
		t.Errorf("%v: %+v", err, r)
	}
	if got, want := cfg.Enforced(machine), (limits.AllPods{Memory: 6 << 30, MilliCPU: 3000, Pids: 32000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	cfg.EnforceNodeAllocatable = []string{enforceNone}
	if got := cfg.Enforced(machine); got != (limits.AllPods{}) {
		t.Errorf("none is enforced: %+v", got)
	}
	cfg.SystemReserved["cpu"], cfg.KubeReserved["cpu"] = "x", "y"
	if _, err := cfg.Reserved(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("both mistakes: %v", err)
	}
}

func TestThresholdsHaveDefaultsThatAValueReplaces(t *testing.T) {
	t.Parallel()
	signals := func(cfg *Config) string {
		p, err := cfg.Pressure(false)
		if err != nil {
			t.Error(err)
		}
		var all []string
		for _, th := range p.Thresholds {
			all = append(all, string(th.Signal)+"<"+th.Amount.String())
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	usual := "imagefs.available<15% imagefs.inodesFree<5% memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%"
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, usual},
		{Config{EvictionHard: map[string]string{"memory.available": "1Gi"}}, "memory.available<1Gi"},
		{Config{EvictionHard: map[string]string{"memory.available": "0"}}, ""},
		{Config{EvictionHard: map[string]string{"memory.available": "1Gi"}, MergeDefaultEvictionSettings: true}, strings.Replace(usual, "100Mi", "1Gi", 1)},
	} {
		if got := signals(&c.cfg); got != c.want {
			t.Errorf("%v: %s, want %s", c.cfg.EvictionHard, got, c.want)
		}
	}
	cfg := &Config{EvictionMaxPodGracePeriod: 30, EvictionPressureTransitionPeriod: time.Minute, EvictionCheckFrequency: time.Second, EvictCriticalPods: true}
	p, err := cfg.Pressure(false)
	if err != nil || p.MaxPodGrace != 30*time.Second || p.Transition != time.Minute || p.Period != time.Second || !p.EvictCritical {
		t.Errorf("%v: %+v", err, p)
	}
}

func TestTaints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]corev1.Taint{
		"a=b:NoSchedule":           {Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule},
		"a:PreferNoSchedule":       {Key: "a", Effect: corev1.TaintEffectPreferNoSchedule},
		"example.com/a=:NoExecute": {Key: "example.com/a", Effect: corev1.TaintEffectNoExecute},
	} {
		if got, err := ParseTaint(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "not a taint", "a": "not a taint", "=b:NoSchedule": "not a taint", "a=b c:NoSchedule": "not a taint", "a=b:Noschedule": `"Noschedule" is not an effect`, "a=b:": `"" is not an effect`,
	} {
		if _, err := ParseTaint(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	cfg := &Config{RegisterWithTaints: []string{"a:NoSchedule", ownPodsOnly}, APIServerPods: true}
	if cfg.deriveAPIServer(); !slices.Equal(cfg.RegisterWithTaints, []string{"a:NoSchedule"}) {
		t.Errorf("pods of the API server are kept away: %v", cfg.RegisterWithTaints)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	if got := HostPort("::1", 10250); got != "[::1]:10250" {
		t.Error(got)
	}
	want := []net.IP{net.ParseIP("192.0.2.1"), net.ParseIP("2001:db8::1")}
	if got := IpsOf([]string{"192.0.2.1", "no address", "2001:db8::1", "2001:db8:0::1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAVariableThatIsEmptyIsNotSet(t *testing.T) {
	t.Parallel()
	env := Environment{Environ: []string{"A=", "AB=no", "A=1", "A=2"}}
	if got := env.Lookup("A"); got != "1" {
		t.Errorf("A is %q", got)
	}
	if got := env.Lookup("B"); got != "" {
		t.Errorf("B is %q", got)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if env = OSEnvironment(); env.WorkDir != here || env.Lookup("PATH") != os.Getenv("PATH") {
		t.Errorf("%+v", env)
	}
}

// TestPodsOfASourceAreReadFromItsCopy: `monopod status` and `monopod why` read it when the daemon does not run.
func TestPodsOfASourceAreReadFromItsCopy(t *testing.T) {
	t.Parallel()
	cfg := &Loaded{Config: Config{RootDirectory: t.TempDir()}}
	s := &RemoteSource{Name: "fleet", PodSecurity: "privileged"}
	if content, err := cfg.Stored(t.Context(), s, "input"); content != nil || err == nil {
		t.Errorf("without a copy: %v, %v", content, err)
	}
	names := func() string {
		content, err := cfg.Stored(t.Context(), s, "input")
		if err != nil {
			return err.Error()
		}
		var all []string
		for _, p := range content.Pods {
			all = append(all, p.Key().String())
		}
		return strings.Join(all, " ")
	}
	pod := func(name string) []byte {
		return []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: a, image: i}]}\n")
	}
	kept := &fetch.Kept{Body: pod("new")}
	if err := cfg.CopyOf("fleet").Save(kept); err != nil {
		t.Fatal(err)
	}
	if got := names(); got != "default/new" {
		t.Errorf("the answer: %s", got)
	}
	s.Signature = SourceSignature{Kind: "minisign", Keys: []string{"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"}}
	if got := names(); !strings.Contains(got, "the cached answer is not used: ") {
		t.Errorf("a copy that nobody has signed: %s", got)
	}
	kept.Counts = pod("old") // it was verified before it was kept
	if err := cfg.CopyOf("fleet").Save(kept); err != nil {
		t.Fatal(err)
	}
	if got := names(); got != "default/old" {
		t.Errorf("what counts of the answer: %s", got)
	}
}

func TestAnswersAreVerifiedAsTheSourceSays(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]struct{ verified, apart bool }{"": {}, "minisign": {true, true}, "dsse": {true, false}} {
		s := &SourceSignature{Kind: kind}
		if verify, apart := s.Verification(); (verify != nil) != want.verified || apart != want.apart {
			t.Errorf("%q: verified %v, apart %v", kind, verify != nil, apart)
		}
	}
}
