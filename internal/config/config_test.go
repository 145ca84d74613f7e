package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"golang.org/x/tools/txtar"

	"monopod/internal/testfiles"
)

// loadIn loads the configuration of a directory with the given environment and command line.
func loadIn(dir string, environ, args []string) (*Loaded, error) {
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags := &Flags{Set: set}
	if len(args) > 0 {
		flags = AddFlags(set)
	}
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if flags.File == "" {
		flags.File = filepath.Join(dir, "config.yaml")
	}
	return Load(flags, Environment{Environ: environ, WorkDir: dir, Hostname: func() (string, error) { return "Edge-1.Example", nil }})
}

// TestConfigStories runs testdata/*.txtar: files of a configuration directory, "env" and "flags" with one
// entry per line, and "want": the values that differ from the defaults with their sources, or all errors.
func TestConfigStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("stories: %v %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			story, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			var environ, args []string
			want := -1
			for i, f := range story.Files {
				lines := strings.FieldsFunc(string(f.Data), func(r rune) bool { return r == '\n' })
				switch f.Name {
				case "env":
					environ = lines
				case "flags":
					args = lines
				case "want":
					want = i
				default:
					testfiles.Write(t, filepath.Join(dir, f.Name), string(f.Data))
				}
			}
			got := strings.ReplaceAll(tell(loadIn(dir, environ, args)), dir, "$DIR")
			if testfiles.Update() {
				story.Files[want].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(story), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(story.Files[want].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// tell prints the values that differ from the defaults, or the problems.
func tell(cfg *Loaded, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	text, err := cfg.YAML()
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	section := ""
	for _, line := range strings.SplitAfter(text, "\n") {
		if strings.HasSuffix(line, ":\n") && !strings.HasPrefix(line, " ") {
			section = line
			continue
		}
		if !strings.HasPrefix(line, " ") {
			section = ""
		}
		if line != "" && !strings.Contains(line, "# default") {
			b.WriteString(section + line)
			section = ""
		}
	}
	for _, w := range cfg.Warnings {
		b.WriteString("warning: " + w + "\n")
	}
	return b.String()
}

func TestTheTableOfKeysAndTheStructHoldTheSameKeysAndTypes(t *testing.T) {
	sameKeysAndTypes(t, Keys(), reflect.TypeFor[Config]())
	sameKeysAndTypes(t, remoteSourceKeys(), reflect.TypeFor[RemoteSource]())
	sameKeysAndTypes(t, imageRuleKeys(), reflect.TypeFor[ImageRule]())
	sameKeysAndTypes(t, sourceHeaderKeys(), reflect.TypeFor[SourceHeader]())
}

func sameKeysAndTypes(t *testing.T, table []Key, config reflect.Type) {
	t.Helper()
	inTable := map[string]Key{}
	for _, k := range table {
		if _, twice := inTable[k.Path]; twice {
			t.Errorf("%s is in the table twice", k.Path)
		}
		inTable[k.Path] = k
	}
	kinds := map[string][]Kind{
		"string": {kindString, kindPath}, "int": {kindInt}, "int64": {kindInt}, "time.Duration": {kindDuration}, "bool": {kindBool}, "float64": {kindNumber},
		"[]string": {KindStrings, kindPaths}, "map[string][]string": {kindHeaders, kindLists}, "map[string]string": {kindPrograms, kindTexts}, "[]config.RemoteSource": {kindSources}, "[]config.SourceHeader": {kindSourceHeaders}, "[]config.ShutdownGrace": {kindGraces}, "[]config.ImageRule": {kindRules},
	}
	var walk func(typ reflect.Type, prefix string)
	walk = func(typ reflect.Type, prefix string) {
		for f := range typ.Fields() {
			if f.Anonymous {
				walk(f.Type, prefix)
				continue
			}
			path := prefix + f.Tag.Get("koanf")
			if f.Type.Kind() == reflect.Struct {
				walk(f.Type, path+".")
				continue
			}
			k, ok := inTable[path]
			if !ok || !slices.Contains(kinds[f.Type.String()], k.Kind) {
				t.Errorf("field %s (key %q, %s): the table says %q", f.Name, path, f.Type, k.Kind)
			}
			delete(inTable, path)
		}
	}
	walk(config, "")
	for path := range inTable {
		t.Errorf("%s is in the table only", path)
	}
}

func TestEachKeyHasADocLineThatIsASentence(t *testing.T) {
	for _, k := range slices.Concat(Keys(), remoteSourceKeys(), sourceHeaderKeys(), shutdownGraceKeys(), imageRuleKeys()) {
		if len(k.doc) < 20 || !strings.HasSuffix(k.doc, ".") || strings.Contains(k.doc, "\n") {
			t.Errorf("%s: %q", k.Path, k.doc)
		}
	}
}

func TestDocsConfigIsWhatTheProgramPrints(t *testing.T) {
	testfiles.Compare(t, "../../docs/config.md", Docs())
}

func TestNamesOfVariablesAndFlags(t *testing.T) {
	for path, want := range map[string][2]string{
		"staticPodURLHeader": {"MONOPOD_STATIC_POD_URL_HEADER", "static-pod-url-header"},
		"podCIDR":            {"MONOPOD_POD_CIDR", "pod-cidr"},
		"runPodCIDR":         {"MONOPOD_RUN_POD_CIDR", "run-pod-cidr"},
		"clusterDNS":         {"MONOPOD_CLUSTER_DNS", "cluster-dns"},
		"reservedSystemCPUs": {"MONOPOD_RESERVED_SYSTEM_CPUS", "reserved-system-cpus"},
		"cniBinDirs":         {"MONOPOD_CNI_BIN_DIRS", "cni-bin-dirs"},
		"crashLoopBackOff.maxContainerRestartPeriod": {
			"MONOPOD_CRASH_LOOP_BACK_OFF__MAX_CONTAINER_RESTART_PERIOD", "crash-loop-back-off-max-container-restart-period",
		},
		"socket": {"MONOPOD_SOCKET", "socket"},
	} {
		k := Key{Path: path}
		if got := [2]string{k.Env(), k.Flag()}; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestEachKeyCanBeSetByFileVariableAndFlagAndEachLaterOneWins(t *testing.T) {
	t.Parallel()
	type values struct{ file, env, flag, bad string }
	byKind := map[Kind]values{
		kindString:   {file: "f1", env: "e1", flag: "g1", bad: "[1]"},
		kindPath:     {file: "/f1", env: "/e1", flag: "/g1", bad: "{a: b}"},
		kindInt:      {file: "5", env: "6", flag: "7", bad: "many"},
		kindDuration: {file: "5s", env: "6s", flag: "7s", bad: "20"},
		kindBool:     {file: "true", env: "false", flag: "true", bad: "yes please"},
		kindNumber:   {file: "0.5", env: "0.25", flag: "1", bad: "half"},
		KindStrings:  {file: "[f1]", env: "e1", flag: "g1,g2", bad: "[1]"},
		kindPaths:    {file: "[/f1]", env: "/e1", flag: "/g1,/g2", bad: "/x"},
		kindHeaders:  {file: "{A: [f1]}", env: "{B: [e1]}", bad: "[x]"},
		kindLists:    {file: "{'user:f': [metrics]}", env: "{'user:e': [stats]}", flag: "{'user:g': [proxy]}", bad: "[x]"},
		kindSources:  {file: "[{name: f, url: 'http://f'}]", env: "[{name: e, url: 'http://e'}]", bad: "[x]"},
		kindTexts:    {file: "{memory: 1Mi}", env: "{memory: 2Mi}", flag: "{memory: 3Mi, cpu: 5m}", bad: "{memory: 1}"},
		kindRules:    {file: "[{match: r.io}]", env: "[{match: s.io, action: deny}]", bad: "[x]"},
		kindGraces:   {file: "[{priority: 1, shutdownGracePeriodSeconds: 5}]", env: "[{priority: 2, shutdownGracePeriodSeconds: 6}]", flag: "[{priority: 3}]", bad: "[x]"},
		kindPrograms: {file: "{a: /f1}", env: "{a: /e1}", flag: "{a: g1, b: g2}", bad: "{a: 1}"},
	}
	special := map[string]values{
		"staticPodURL":             {"http://f", "http://e", "http://g", "1"},
		"containerLogMaxSize":      {"1Mi", "2Mi", "3Mi", "1"},
		"podLogsMaxSize":           {"1Mi", "2Mi", "3Mi", "1"},
		"objectFilesMemory":        {"1Mi", "2Mi", "3Mi", "[1]"},
		"agentMemoryBudget":        {"64Mi", "65Mi", "66Mi", "[1]"},
		"agentCPUBudget":           {"50m", "1100m", "1.5", "[1]"},
		"kubeletCgroups":           {"/f", "/e", "/g", "[1]"},
		"lockContentionPods":       {"Keep", "Stop", "Keep", "[1]"},
		"runPodCIDR":               {"10.4.0.0/16", "10.5.0.0/16", "10.6.0.0/16", "1"},
		"serviceSubnet":            {"10.4.0.0/16", "10.5.0.0/16", "off", "1"},
		"podCIDR":                  {"10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "1"},
		"podDNS":                   {"off", "auto", "off", "1"},
		"clusterDNS":               {"[10.0.0.1]", "10.0.0.2", "10.0.0.3,10.0.0.4", "[1]"},
		"containerRuntimeEndpoint": {"unix:///f", "unix:///e", "unix:///g", "1"},
		"cgroupRoot":               {"/f", "/e", "/g", "1"},
		"allowedUnsafeSysctls":     {"[net.f]", "net.e", "net.g,net.*", "[1]"},
		"helmHooks":                {"true", "false", "true", "[1]"},
		"podSecurity":              {"baseline", "restricted", "privileged", "[1]"},
		"staticPodPathSecurity":    {"baseline", "restricted", "privileged", "[1]"},
		"staticPodURLSecurity":     {"baseline", "restricted", "privileged", "[1]"},
		"staticPodURLCriticalPods": {"true", "false", "true", "x"},
		"appliedSecurity":          {"baseline", "restricted", "privileged", "[1]"},
		"sourceOrder":              {"[http]", "applied", "http,file", "[1]"},
		"namespaces":               {"{file: [a]}", "{http: [a, b]}", "{applied: [c]}", "[x]"},
		"sharing":                  {"{file: [applied]}", "{http: [file/a]}", "{applied: [file]}", "[x]"},
		"snapshotter":              {"native", "overlayfs", "native", "1"},
		"evictionHard":             {"{memory.available: 1Mi}", "{memory.available: 2Mi}", "{memory.available: 3%}", "{memory.available: 1}"},
		"evictionSoft":             {"{memory.available: '0'}", "{memory.available: 0%}", "{memory.available: 0Mi}", "{memory.available: 1}"},
		"evictionSoftGracePeriod":  {"{memory.available: 1m}", "{memory.available: 2m}", "{memory.available: 3m}", "{memory.available: 1}"},
		"evictionMinimumReclaim":   {"{memory.available: 1Mi}", "{memory.available: 2Mi}", "{memory.available: 3%}", "{memory.available: 1}"},
		"enforceNodeAllocatable":   {"[none]", "pods", "none", "[1]"},
		"cgroupDriver":             {"systemd", "cgroupfs", "systemd", "[1]"},
		"cpuManagerPolicy":         {"none", "none", "none", "[1]"},
		"reservedSystemCPUs":       {"'0'", "0-1", "1,3", "[1]"},
		"cpuCFSQuotaPeriod":        {"5ms", "6ms", "7ms", "20"},
		"memorySwap.swapBehavior":  {"LimitedSwap", "NoSwap", "LimitedSwap", "[1]"},
		"memoryReservationPolicy":  {"TieredReservation", "None", "TieredReservation", "[1]"},
		"registerWithTaints":       {"['f:NoSchedule']", "a=e:NoExecute", "a=g:NoSchedule,b:NoExecute", "[1]"},
		"logging.format":           {"json", "text", "json", "1"},
		"logging.level":            {"warn", "error", "debug", "1"},

		"authorization.mode":        {"Rules", "AlwaysAllow", "Webhook", "1"},
		"healthzBindAddress":        {"127.0.0.2", "::1", "192.0.2.1", "1"},
		"address":                   {"127.0.0.2", "::1", "192.0.2.1", "1"},
		"apiServer.address":         {"'127.0.0.1:6443'", "192.0.2.1:6443", "[::]:6443", "1"},
		"apiServer.inertKinds":      {"[Role]", "Ingress", "NetworkPolicy,Role", "[Pod]"},
		"apiServer.namespaceAccess": {"{f: view}", "{e: edit}", "{g: admin, h: rules}", "{i: 1}"},
		"apiServer.podUpdates":      {"Kubernetes", "InPlace", "Kubernetes", "[1]"},
		"apiServer.rules":           {"{'user:f': [view]}", "{'user:e': [edit@a]}", "{'user:g': ['get:/x']}", "[x]"},
		"tracing.endpoint":          {"'localhost:4317'", "192.0.2.1:4317", "[::1]:4317", "x"},
		"tlsMinVersion":             {"VersionTLS12", "VersionTLS13", "VersionTLS12", "[1]"},
		"tlsCipherSuites":           {"[TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "[1]"},

		"imageGCHighThresholdPercent": {"90", "95", "99", "many"},
		"imageMaximumGCAge":           {"1h", "2h", "3h", "20"},
		"imagePullBandwidth":          {"1Mi", "2Mi", "3Mi", "[1]"},
	}
	needs := map[string]string{
		"port": "authentication: {tokenFile: /tokens}\n", "tlsCertFile": "tlsPrivateKeyFile: /key\n", "tlsPrivateKeyFile": "tlsCertFile: /crt\n",
		"authentication.anonymous.enabled": "authorization: {mode: Rules}\n",
		"authentication.webhook.enabled":   "kubeconfig: /x\n",
		"authorization.mode":               "kubeconfig: /x\n",
	}
	for _, k := range Keys() {
		t.Run(k.Path, func(t *testing.T) {
			v, ok := special[k.Path]
			if !ok {
				v = byKind[k.Kind]
			}
			dir := t.TempDir()
			url := ""
			switch {
			case k.Kind == kindHeaders:
				url = "staticPodURL: http://x\n"
			case k.Path == "bootstrapKubeconfig", k.Path == "apiServerPods":
				url = "kubeconfig: /x\n"
			case k.Path == "apiServerServices":
				url = "kubeconfig: /x\napiServerPods: true\n"
			}
			if k.Path == "exitOnLockContention" {
				url = "lockFile: /x\n"
			}
			if k.Path == "shutdownGracePeriodCriticalPods" { // it is a part of the other
				url = "shutdownGracePeriod: 1m\n"
			}
			url += needs[k.Path]
			nested := func(value string) string {
				levels := strings.Split(k.Path, ".")
				return strings.Join(levels, ": {") + ": " + value + strings.Repeat("}", len(levels)-1) + "\n"
			}
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), url+nested(v.file))
			layers := []struct {
				environ, args []string
				source        string
			}{
				{nil, nil, filepath.Join(dir, "config.yaml:")},
				{[]string{k.Env() + "=" + v.env}, nil, k.Env()},
			}
			if k.Flag() != "" {
				layers = append(layers, struct {
					environ, args []string
					source        string
				}{[]string{k.Env() + "=" + v.env}, []string{"--" + k.Flag() + "=" + v.flag}, "--" + k.Flag()})
			}
			seen := map[string]bool{}
			for _, l := range layers {
				cfg, err := loadIn(dir, l.environ, l.args)
				if err != nil {
					t.Fatal(err)
				}
				if s := cfg.Sources[k.Path]; !strings.HasPrefix(s, l.source) && !strings.HasSuffix(s, l.source) {
					t.Errorf("source is %q, want %q", s, l.source)
				}
				b, err := cfg.JSON()
				if err != nil {
					t.Fatal(err)
				}
				if k.Kind != kindHeaders && seen[string(b)] {
					t.Errorf("%s does not change the value", l.source)
				}
				seen[string(b)] = true
			}
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), url+nested(v.bad))
			_, err := loadIn(dir, nil, nil)
			if all, ok := errors.AsType[Problems](err); !ok || !strings.HasPrefix(all[0].Key, k.Path) || !strings.HasPrefix(all[0].Where, dir) {
				t.Errorf("%s: %s is not refused with its place: %v", k.Path, v.bad, err)
			}
		})
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), `staticPodURL: https://me:hunter2@example.com/pods
staticPodURLHeader: {Authorization: ["Bearer hunter2"]}
sources:
- {name: fleet, url: "https://me:hunter2@example.com/", headers: [{name: X-Token, value: hunter2}]}
`)
	cfg, err := loadIn(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.StaticPodURLHeader["Authorization"][0] != "Bearer hunter2" {
		t.Errorf("header is %v", cfg.StaticPodURLHeader)
	}
	if cfg.RemoteSources[0].Headers[0].Value != "hunter2" {
		t.Errorf("source is %+v", cfg.RemoteSources[0])
	}
	text, err1 := cfg.YAML()
	b, err2 := cfg.JSON()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if all := text + string(b); strings.Contains(all, "hunter2") || !strings.Contains(all, "Authorization") || !strings.Contains(all, "X-Token") {
		t.Errorf("printed:\n%s", all)
	}
}

func TestAZeroPeriodIsRefused(t *testing.T) {
	for _, key := range []string{"period", "timeout"} {
		dir := t.TempDir()
		testfiles.Write(t, filepath.Join(dir, "config.yaml"), `sources: [{name: fleet, url: "https://h/", `+key+": 0s}]\n")
		_, err := loadIn(dir, nil, nil)
		if all, ok := errors.AsType[Problems](err); !ok || len(all) != 1 || all[0].Key != "sources[0]."+key || all[0].Msg != "0s is less than 1s" {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestMistakesInSecretsDoNotShowThem(t *testing.T) {
	for name, text := range map[string]string{
		"a header as a string":             `sources: [{name: fleet, url: "https://h/", headers: ["Authorization: Bearer hunter2"]}]`,
		"headers as a string":              `sources: [{name: fleet, url: "https://h/", headers: "Authorization: Bearer hunter2"}]`,
		"a value that is a number":         `sources: [{name: fleet, url: "https://h/", headers: [{name: A, value: 0x40712}]}]`,
		"a value in the name":              `sources: [{name: fleet, url: "https://h/", headers: [{name: "Authorization: Bearer hunter2"}]}]`,
		"a source as a string":             `sources: ["https://me:hunter2@h/"]`,
		"a URL of a source with a mistake": `sources: [{name: fleet, url: "https://me:hunter2@h:port/"}]`,
		"a URL without its scheme":         `staticPodURL: "me:hunter2@h/"`,
		"a URL with a mistake":             `staticPodURL: "https://me:hunter2@h:port/"`,
		"another scheme":                   `staticPodURL: "ftp://me:hunter2@h/"`,
		"a header that is no list":         "staticPodURL: https://h/\nstaticPodURLHeader: {Authorization: Bearer hunter2}",
		"a header that is a number":        "staticPodURL: https://h/\nstaticPodURLHeader: {Authorization: [0x40712]}",
		"all headers as a string":          "staticPodURL: https://h/\nstaticPodURLHeader: 'Authorization: Bearer hunter2'",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), text+"\n")
			_, err := loadIn(dir, nil, nil)
			if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "40712") {
				t.Errorf("it says: %v", err)
			}
		})
	}
}

func TestPrintedConfigurationHasTheSameValues(t *testing.T) {
	first, second := printedAndRead(t, "preloadDirectories: [images, /more]\nclusterDNS: [10.0.0.1]\nlogging: {level: debug}\nmaxPods: 3\nsources: [{name: a, url: 'http://a', caFile: ca.pem, period: 90s, headers: [{name: B, valueFile: b}], signature: {kind: minisign, keyFiles: [fleet.pub]}}]\ncrashLoopBackOff: {maxContainerRestartPeriod: 10s}\n")
	if diff := cmp.Diff(first.values(), second.values()); diff != "" {
		t.Errorf("-first +second:\n%s", diff)
	}
}

func TestAMissingConfigFileMattersOnlyWhenItIsNamed(t *testing.T) {
	env := Environment{WorkDir: "/", Hostname: func() (string, error) { return "h", nil }}
	if _, err := Load(&Flags{File: "/no/such/config.yaml"}, env); err == nil || !strings.Contains(err.Error(), "--config: ") {
		t.Errorf("named by flag: %v", err)
	}
	env.Environ = []string{"MONOPOD_CONFIG=/no/such/config.yaml"}
	if _, err := Load(&Flags{}, env); err == nil || !strings.Contains(err.Error(), "MONOPOD_CONFIG: ") {
		t.Errorf("named by variable: %v", err)
	}
	if _, err := os.Stat(DefaultFile); err == nil {
		t.Skip("this machine has a " + DefaultFile)
	}
	env.Environ = nil
	if _, err := Load(&Flags{}, env); err != nil {
		t.Errorf("not named: %v", err)
	}
}

func FuzzConfigFileNeverPanicsAndRefusesWhatItDoesNotTake(f *testing.F) {
	for _, seed := range []string{"", "a: b", "maxPods: 3\nlogging: {level: x}", "- 1", "a: &x [1]\nb: *x", "staticPodURLHeader: {A: [b]}", "? [a]\n: b", "logging:\n", "<<: {maxPods: 1}", "---\n---\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		lay, problems := parseConfigFile("/x/config.yaml", b, Keys())
		for _, p := range problems {
			if p.Msg == "" || p.Where == "" {
				t.Errorf("a problem that says nothing: %+v", p)
			}
		}
		for path, s := range lay {
			if s.where == "" || !s.reset && s.value == nil {
				t.Errorf("%s: %+v", path, s)
			}
		}
	})
}
