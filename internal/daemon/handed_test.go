package daemon

import (
	stdcmp "cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/config"
	"monopod/internal/daemon/containers"
	"monopod/internal/daemontest"
	"monopod/internal/testfiles"
	"monopod/node/capacity"
	"monopod/watcher"
)

// handedElsewhere are keys whose values no part is configured with: each with a test that shows what it does.
func handedElsewhere() map[string]string {
	return map[string]string{
		"socket":                   "TestASecondInstanceIsRefusedAndNamesTheFirst",
		"runPodCIDR":               "TestASubnetThatIsTakenIsNotChosen",
		"apiServer.rules":          "TestTheRulesOfTheConfigurationCount",
		"apiServer.inertKinds":     "TestInertKindsAreThoseOfTheConfiguration",
		"apiServer.names":          "TestTheAPIHasTheNamesOfTheMachineAndOfTheConfiguration",
		"serviceSubnet":            "TestServicesHaveAddressesOfTheConfiguredRanges",
		"namespaces":               "TestALimitOfNamespacesStopsNothing",
		"podSecurity":              "TestEachSourceAllowsWhatItsKeySays",
		"staticPodURLCriticalPods": "TestOnlySourcesWithPermissionHaveCriticalPods",
		"lockFile":                 "TestAnotherAgentGetsTheMachineWithoutPods",
		"exitOnLockContention":     "TestAnotherAgentGetsTheMachineWithoutPods",
		"lockContentionPods":       "TestAnotherAgentGetsTheMachineWithoutPods",
		"kubeletCgroups":           "TestTheAgentGoesIntoTheCgroupThatIsConfigured",
	}
}

// TestEachKeyIsHandedToThePartThatItIsAbout changes one key at a time and compares the configuration of the parts of the agent: a key that
// reaches no part changes nothing, and a key that replaces another one shows up in testdata/handed.golden.
func TestEachKeyIsHandedToThePartThatItIsAbout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, program := range []string{"shim", "runtime", "other"} {
		testfiles.Write(t, filepath.Join(dir, program), "")
		if err := os.Chmod(filepath.Join(dir, program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), `nodeName: node
kubeconfig: kubeconfig
shimPath: shim
ociRuntime: ./runtime
port: 1
readOnlyPort: 2
healthzPort: 3
staticPodPath: manifests
staticPodURL: http://files
shutdownGracePeriod: 1m
shutdownGracePeriodCriticalPods: 5s
sources: [{name: remote, url: 'http://remote'}]
nodeLabels: {a: b}
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m}
evictionHard: {memory.available: 200Mi}
imageCredentialProviderConfig: providers
authentication: {x509: {clientCAFile: ca}, tokenFile: tokens}
systemReserved: {memory: 1Gi}
podLogsMaxSize: 5Mi
cniBinDirs: [bin]
`)
	loaded := map[string]*config.Loaded{}
	load := func(more string) *config.Loaded {
		if loaded[more] == nil {
			testfiles.Write(t, filepath.Join(dir, "config.d", "more.yaml"), stdcmp.Or(more, "{}\n"))
			cfg, err := daemontest.LoadIn(dir)
			if err != nil {
				t.Fatal(err)
			}
			loaded[more] = cfg
		}
		cfg := *loaded[more]
		return &cfg
	}
	usual := partsOf(t, load(""))
	if diff := cmp.Diff(usual, partsOf(t, load(""))); diff != "" {
		t.Fatalf("the same configuration makes different parts:\n%s", diff)
	}
	// needs are keys that count only beside others.
	needs := map[string]string{
		"tlsPrivateKeyFile": "tlsCertFile: cert\ntlsPrivateKeyFile: key\n", "authorization.rules": "authorization: {mode: Rules}\n",
		"tracing.endpoint": "tracing: {endpoint: 'localhost:6', samplingRatePerMillion: 6}\n", "tracing.samplingRatePerMillion": "tracing: {endpoint: 'localhost:6', samplingRatePerMillion: 6}\n",
	}
	elsewhere := handedElsewhere()
	var got strings.Builder
	for _, key := range leavesOf(reflect.TypeFor[config.Config](), "") {
		base := usual
		if more := needs[key]; more != "" {
			base = partsOf(t, load(more))
		}
		cfg := load(needs[key])
		changeKey(t, &cfg.Config, key, dir)
		changed := partsOf(t, cfg)
		var lines []string
		for _, path := range slices.Sorted(maps.Keys(merged(base, changed))) {
			if base[path] != changed[path] && (isSet(base[path]) || isSet(changed[path])) {
				lines = append(lines, fmt.Sprintf("  %s: %s -> %s\n", path, stdcmp.Or(base[path], "-"), stdcmp.Or(changed[path], "-")))
			}
		}
		switch test := elsewhere[key]; {
		case len(lines) == 0 && test == "":
			t.Errorf("%s changes nothing: it is handed to no part. If it is to one that partsOf does not have, add it there, or a test of it to handedElsewhere.", key)
		case len(lines) > 0 && test != "":
			t.Errorf("%s is handed to a part: take it out of handedElsewhere", key)
		case len(lines) == 0:
			lines = []string{"  see " + test + "\n"}
		}
		delete(elsewhere, key)
		got.WriteString(key + "\n" + strings.ReplaceAll(strings.Join(lines, ""), dir, "$DIR"))
	}
	for key := range elsewhere {
		t.Errorf("%s is no key", key)
	}
	all := testsIn(t, "*_test.go", "kubeserver/*_test.go", "services/*_test.go", "../../cmd/monopod/*_test.go", "../../internal/*/*_test.go", "../../e2e/*_test.go")
	for key, test := range handedElsewhere() {
		if !strings.Contains(all, "func "+test+"(t *testing.T)") {
			t.Errorf("%s: there is no %s", key, test)
		}
	}
	testfiles.Compare(t, "testdata/handed.golden", got.String())
}

// testsIn is the text of files with tests.
func testsIn(t *testing.T, patterns ...string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
	}
	return all.String()
}

// isSet reports whether a value differs from the zero value.
func isSet(value string) bool {
	return !slices.Contains([]string{"", "0", "false", "func, nil: true", "func, nil: false"}, value)
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// partsOf makes what the agent is made of, without starting any of it, and returns all values in there by their paths.
func partsOf(t *testing.T, cfg *config.Loaded) map[string]string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	machine := Machine{
		Cgroups: daemontest.MountedCgroups, Addresses: func() ([]string, error) { return nil, nil },
		Gateways: func(*config.Config) ([]netip.Prefix, error) { return nil, nil },
		Capacity: func(string) (capacity.Machine, error) {
			return capacity.Machine{MilliCPU: 8000, Memory: 64 << 30, Storage: 1 << 40, PIDs: 10000}, nil
		},
	}
	c, err := newCore(cfg, Deps{Log: log, Machine: machine})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMachineParts(c)
	if err != nil {
		t.Fatal(err)
	}
	server, api, kube, err := newServer(c, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	loop := newRuntimeLoop(c, m)
	runtime, err := containers.CtrdConfig(cfg, loop.deps)
	if err != nil {
		t.Fatal(err)
	}
	handler, _ := runtime.Handlers("seven")
	evictions, err := cfg.Pressure(m.podsLimits.Memory > 0)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]watcher.Source{}
	for _, s := range m.sources {
		sources[s.Name()] = s
	}
	d := dumper{out: map[string]string{}}
	for name, part := range map[string]any{
		"containers": runtime, "apiserver": m.link.Agent, "endpoints": api.Socket, "ports": api.Ports(), "pool": loop.poolConfig(nil), "images": c.images, "rollouts": c.state.Rollouts,
		"stats": c.stats, "sources": sources, "handler": handler, "order": cfg.SourceNames(), "resources": m.resources, "limits": m.podsLimits, "shutdown": cfg.ShutdownGroups(),
		"pressure": evictions, "socket": server, "kubernetes": kube.api, "budget": cfg.Budgets(), "traces": c.traces,
		"log": fmt.Sprintf("%T", NewLogger(io.Discard, cfg.Logging).Handler()), "logs": NewLogger(io.Discard, cfg.Logging).Enabled(t.Context(), slog.LevelInfo),
	} {
		d.seen = map[uintptr]bool{}
		d.walk(name, reflect.ValueOf(part), 0)
	}
	return d.out
}

// dumper collects reachable values. It does not look into functions and closures.
type dumper struct {
	out  map[string]string
	seen map[uintptr]bool
}

// opaque are types that are the same for all, or have the whole configuration.
var opaque = regexp.MustCompile(`^\*?(config\.(Loaded|Config)|state\.Store|imagegc\.Pins|slog\.|sync\.|atomic\.|http\.(Client|Transport|ServeMux)|events\.|time\.(Time|Timer|Location)|json\.RawMessage|rest\.|metrics\.|trace\.)`)

func (d *dumper) walk(path string, v reflect.Value, depth int) {
	if !v.IsValid() || depth > 12 || strings.HasSuffix(path, ".Fetcher.agent") || opaque.MatchString(v.Type().String()) || strings.HasSuffix(path, ".Configuration") || strings.HasSuffix(path, ".configuration") {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || d.seen[v.Pointer()] {
			return
		}
		d.seen[v.Pointer()] = true
		d.walk(path, v.Elem(), depth)
	case reflect.Interface:
		if !v.IsNil() {
			d.out[path+" is"] = v.Elem().Type().String()
		}
		d.walk(path, v.Elem(), depth)
	case reflect.Struct:
		for f, value := range v.Fields() {
			if v.Type() == reflect.TypeFor[resource.Quantity]() && f.Name != "i" { // how it is written, if somebody has asked
				continue
			}
			d.walk(path+"."+f.Name, value, depth+1)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range min(v.Len(), 16) {
			d.walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i), depth+1)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, key := range keys {
			d.walk(fmt.Sprintf("%s[%v]", path, key), v.MapIndex(key), depth+1)
		}
	case reflect.Func:
		d.out[path] = fmt.Sprintf("func, nil: %t", v.IsNil())
	case reflect.Chan, reflect.UnsafePointer, reflect.Uintptr:
	default:
		d.out[path] = fmt.Sprintf("%v", v)
	}
}

// leavesOf are the keys of a configuration.
func leavesOf(typ reflect.Type, prefix string) (all []string) {
	for f := range typ.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("koanf"), ",")
		switch {
		case f.Anonymous:
			all = append(all, leavesOf(f.Type, prefix)...)
		case f.Type.Kind() == reflect.Struct:
			all = append(all, leavesOf(f.Type, prefix+key+".")...)
		default:
			all = append(all, prefix+key)
		}
	}
	return all
}

// fieldOf is the value of a key.
func fieldOf(v reflect.Value, key string) reflect.Value {
	first, rest, nested := strings.Cut(key, ".")
	for f, value := range v.Fields() {
		if f.Anonymous {
			if found := fieldOf(value, key); found.IsValid() {
				return found
			}
		}
		if name, _, _ := strings.Cut(f.Tag.Get("koanf"), ","); name != first || f.Anonymous {
			continue
		}
		if nested {
			return fieldOf(value, rest)
		}
		return value
	}
	return reflect.Value{}
}

// changeKey gives a key another value, which need not be one that a file may have.
func changeKey(t *testing.T, cfg *config.Config, key, dir string) {
	t.Helper()
	special := map[string]any{
		"containerLogMaxSize": "7Mi", "podLogsMaxSize": "7Mi", "objectFilesMemory": "7Mi", "imagePullBandwidth": "7Mi", "agentMemoryBudget": "70Mi", "agentCPUBudget": "700m",
		"tlsMinVersion": "VersionTLS13", "tlsCipherSuites": []string{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, "registerWithTaints": []string{"a=b:NoSchedule"},
		"evictionHard": map[string]string{"nodefs.available": "7Mi"}, "evictionSoft": map[string]string{"memory.available": "7Mi"}, "evictionSoftGracePeriod": map[string]string{"memory.available": "7m"},
		"evictionMinimumReclaim": map[string]string{"memory.available": "7Mi"}, "enforceNodeAllocatable": []string{"none"},
		"systemReserved": map[string]string{"memory": "7Gi"}, "kubeReserved": map[string]string{"memory": "7Gi"}, "nodeCapacity": map[string]string{"memory": "700Gi"},
		"memorySwap.swapBehavior": "LimitedSwap", "memoryReservationPolicy": "TieredReservation", "apiServer.podUpdates": "Kubernetes", "cpuManagerPolicy": "static", "authorization.mode": config.AuthorizeRules,
		"runtimeHandlers": map[string]string{"seven": filepath.Join(dir, "other")},
		"ociRuntime":      filepath.Join(dir, "other"), "shimPath": filepath.Join(dir, "other"), "logging.level": "error", "logging.format": "json",
		"sources":                          []config.RemoteSource{{Name: "another", URL: "http://another", Period: time.Second, Timeout: time.Second, MaxSize: "7Mi"}},
		"shutdownGracePeriodByPodPriority": []config.ShutdownGrace{{Priority: 7, Seconds: 7}}, "imagePolicy": []config.ImageRule{{Match: "r.io", Action: config.RuleDeny}},
		"sourceOrder": []string{config.SourceApplied}, "tracing.endpoint": "localhost:7",
	}
	field := fieldOf(reflect.ValueOf(cfg).Elem(), key)
	if v, ok := special[key]; ok {
		field.Set(reflect.ValueOf(v))
		return
	}
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(!field.Bool())
	case reflect.Int, reflect.Int64:
		step := int64(7)
		if field.Type() == reflect.TypeFor[time.Duration]() {
			step = int64(7 * time.Second)
		}
		field.SetInt(field.Int() + step)
	case reflect.Float64:
		field.SetFloat(field.Float() + 0.5)
	case reflect.String:
		field.SetString(field.String() + "7")
	case reflect.Slice:
		field.Set(reflect.ValueOf([]string{"seven"}))
	case reflect.Map:
		m := reflect.MakeMap(field.Type())
		if field.Type().Elem().Kind() == reflect.String {
			m.SetMapIndex(reflect.ValueOf("seven"), reflect.ValueOf("7"))
		} else {
			m.SetMapIndex(reflect.ValueOf("seven"), reflect.ValueOf([]string{"7"}))
		}
		field.Set(m)
	default:
		t.Fatalf("%s: nothing is known of %s", key, field.Type())
	}
}
