package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/internal/bundle"
	"monopod/internal/testfiles"
)

// lines returns the problems of a configuration without the directory they are in.
func lines(t *testing.T, dir string, err error) []string {
	t.Helper()
	all, ok := errors.AsType[Problems](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	out := []string{}
	for _, l := range all.Lines() {
		out = append(out, strings.ReplaceAll(l, dir, "$DIR"))
	}
	return out
}

func TestVariablesOfOtherProgramsAreOnlyNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "maxPods: 3\n")
	cfg, err := loadIn(dir, []string{
		"MONOPOD_OF_ANOTHER_PROGRAM=1", "MONOPODS=5", "MONOPOD_MAX_PODS=", "MONOPOD_CONFIG=/other", "MONOPOD_BUNDLE_DIR=/b", EnvRequestTimeout + "=5s", bundle.LauncherVariable + "=/l", "MAX_PODS=7",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"environment: MONOPOD_OF_ANOTHER_PROGRAM: unknown variable, not used"}; !slices.Equal(cfg.Warnings, want) {
		t.Errorf("%q, want %q", cfg.Warnings, want)
	}
	if cfg.MaxPods != 3 || cfg.Sources["maxPods"] != filepath.Join(dir, "config.yaml:1") {
		t.Errorf("maxPods is %d, of %s", cfg.MaxPods, cfg.Sources["maxPods"])
	}
	_, err = loadIn(dir, []string{"MONOPOD_MAX_POD=5", "MONOPOD_CONFIGS=/x"}, nil)
	want := []string{"environment: MONOPOD_CONFIGS: unknown variable; did you mean MONOPOD_CONFIG?", "environment: MONOPOD_MAX_POD: unknown variable; did you mean MONOPOD_MAX_PODS?"}
	if got := lines(t, dir, err); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAMistakeInAnEntryOfAVariableIsNamedByItsEntry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "maxPods: 3\n")
	_, err := loadIn(dir, []string{"MONOPOD_IMAGE_POLICY=[{match: r.io}, {mtach: s.io}]"}, []string{"--shutdown-grace-period-by-pod-priority=[{priority: low}]"})
	want := []string{
		"MONOPOD_IMAGE_POLICY: imagePolicy[1].mtach: unknown key; did you mean match?",
		`--shutdown-grace-period-by-pod-priority: shutdownGracePeriodByPodPriority[0].priority: expected an integer, not the string "low"`,
	}
	if got := lines(t, dir, err); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestADropInThatCannotBeReadIsReportedAndTheOthersAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "maxPods: 0\n")
	testfiles.Write(t, filepath.Join(dir, "config.d", "40.yaml"), "maxConcurrentStarts: 0\n")
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "config.d", "10.yaml"), 0o600), os.Mkdir(filepath.Join(dir, "config.d", "20.yaml"), 0o755), os.Symlink("nowhere", filepath.Join(dir, "config.d", "30.yaml"))); err != nil {
		t.Fatal(err)
	}
	_, err := loadIn(dir, nil, nil)
	got := lines(t, dir, err)
	for i, want := range []string{
		"$DIR/config.d/10.yaml: ", "$DIR/config.d/20.yaml: ", "$DIR/config.d/30.yaml: ", "$DIR/config.yaml:1: maxPods: ", "$DIR/config.d/40.yaml:1: maxConcurrentStarts: ",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("line %d is not about %s:\n%s", i+1, want, strings.Join(got, "\n"))
		}
	}
	if len(got) > 0 && !strings.Contains(got[0], "not a regular file") {
		t.Errorf("a FIFO: %s", got[0])
	}
}

func TestARelativeFileIsThatOfTheWorkingDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "sub", "mine.yaml"), "maxPods: 5\npodLogsDir: logs\n")
	testfiles.Write(t, filepath.Join(dir, "sub", "config.d", "a.yaml"), "maxConcurrentStarts: 6\n")
	env := Environment{WorkDir: dir, Hostname: func() (string, error) { return "h", nil }}
	byFlag, err := Load(&Flags{File: "sub/mine.yaml"}, env)
	if err != nil {
		t.Fatal(err)
	}
	env.Environ = []string{"MONOPOD_CONFIG=sub/mine.yaml"}
	byVariable, err := Load(&Flags{}, env)
	if err != nil {
		t.Fatal(err)
	}
	for how, cfg := range map[string]*Loaded{"--config": byFlag, "MONOPOD_CONFIG": byVariable} {
		if cfg.MaxPods != 5 || cfg.MaxConcurrentStarts != 6 || cfg.PodLogsDir != filepath.Join(dir, "sub", "logs") || len(cfg.Files) != 2 {
			t.Errorf("%s: %d, %d, %s, of %v", how, cfg.MaxPods, cfg.MaxConcurrentStarts, cfg.PodLogsDir, cfg.Files)
		}
	}
}

func TestAMachineWithoutANameNeedsOneInTheConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	testfiles.Write(t, file, "maxPods: 5\n")
	env := Environment{WorkDir: dir, Hostname: func() (string, error) { return "", errors.New("no name") }}
	_, err := Load(&Flags{File: file}, env)
	if got := lines(t, dir, err); len(got) == 0 || got[0] != "nodeName: host name: no name; set nodeName" {
		t.Errorf("%q", got)
	}
	testfiles.Write(t, file, "nodeName: edge\n")
	if cfg, err := Load(&Flags{File: file}, env); err != nil || cfg.NodeName != "edge" {
		t.Errorf("%v", err)
	}
}

// TestTheSourceOfAMapNamesAllItsLayers: each layer sets some keys of the map, and null removes those of earlier layers.
func TestTheSourceOfAMapNamesAllItsLayers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := filepath.Join(dir, "config.yaml")
	testfiles.Write(t, base, "systemReserved: {cpu: 1, memory: 1Gi}\n")
	if _, err := loadIn(dir, nil, nil); err == nil {
		t.Error("a number is taken for a string")
	}
	testfiles.Write(t, base, "systemReserved: {cpu: '1', memory: 1Gi}\n")
	cfg, err := loadIn(dir, []string{"MONOPOD_SYSTEM_RESERVED={cpu: 500m}"}, []string{"--system-reserved", "{pid: '100'}"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Sources["systemReserved"], base+":1, MONOPOD_SYSTEM_RESERVED, --system-reserved"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if r := cfg.SystemReserved; r["cpu"] != "500m" || r["memory"] != "1Gi" || r["pid"] != "100" {
		t.Errorf("%v", r)
	}
	testfiles.Write(t, filepath.Join(dir, "config.d", "a.yaml"), "systemReserved:\n")
	cfg, err = loadIn(dir, []string{"MONOPOD_SYSTEM_RESERVED={cpu: 500m}"}, nil)
	if err != nil || len(cfg.SystemReserved) != 1 || cfg.SystemReserved["cpu"] != "500m" {
		t.Errorf("%v: %v", err, cfg.SystemReserved)
	}
}

func TestASourceOfARegistryHasNothingOfHTTP(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source RemoteSource
		want   []string // keys with a problem
	}{
		"a tag":                  {RemoteSource{URL: "oci://registry.example/fleet/pods:stable"}, nil},
		"no registry":            {RemoteSource{URL: "oci://pods"}, []string{"url"}},
		"a password":             {RemoteSource{URL: "oci://me:hunter2@registry.example/pods:1"}, []string{"url"}},
		"headers":                {RemoteSource{URL: "oci://r.example/pods:1", Headers: []SourceHeader{{Name: "A", Value: "b"}}}, []string{"headers"}},
		"certificates":           {RemoteSource{URL: "oci://r.example/pods:1", CAFile: "/ca", CertFile: "/c", KeyFile: "/k"}, []string{"caFile", "certFile", "keyFile"}},
		"the same over https":    {RemoteSource{URL: "https://r.example/pods", CAFile: "/ca", CertFile: "/c", KeyFile: "/k", Headers: []SourceHeader{{Name: "A", ValueFile: "/b"}}}, nil},
		"a header with two rows": {RemoteSource{URL: "https://h/", Headers: []SourceHeader{{Name: "A", Value: "b\nC: d"}}}, []string{"headers"}},
		"too often":              {RemoteSource{URL: "https://h/", Period: 1}, []string{"period"}},
		"no size":                {RemoteSource{URL: "https://h/", MaxSize: "many"}, []string{"maxSize"}},
		"keys without a kind":    {RemoteSource{URL: "https://h/", Signature: SourceSignature{Keys: []string{"k"}}}, []string{"signature.kind"}},
		"another kind":           {RemoteSource{URL: "https://h/", Signature: SourceSignature{Kind: "minisgn", Keys: []string{"k"}}}, []string{"signature.kind"}},
		"a kind without keys":    {RemoteSource{URL: "https://h/", Signature: SourceSignature{Kind: "dsse"}}, []string{"signature.keys"}},
		"a file among keys":      {RemoteSource{URL: "https://h/", Signature: SourceSignature{Kind: "dsse", Keys: []string{"/etc/key.pub"}}}, []string{"signature.keys"}},
		"a file of keys":         {RemoteSource{URL: "https://h/", Signature: SourceSignature{Kind: "minisign", KeyFiles: []string{"/etc/key.pub"}}}, nil},
	} {
		c.source.Name = "fleet"
		cfg := defaults(t)
		cfg.RemoteSources = []RemoteSource{c.source}
		cfg.deriveSources()
		var got []string
		for _, p := range checkConfig(&cfg, map[string]string{"sources": "config.yaml:1"}) {
			got = append(got, strings.TrimPrefix(p.Key, "sources[0]."))
			if p.Where != "config.yaml:1" || strings.Contains(p.Error(), "hunter2") {
				t.Errorf("%s: %v", name, p)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFilesThatAreReadLaterAreReported: what may still come is only a warning.
func TestFilesThatAreReadLaterAreReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		testfiles.Write(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	providers := "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- {name: p, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n"
	for name, c := range map[string]struct {
		change       func(*Config)
		wrong, later string // the beginning of the only line
	}{
		"nothing is named":  {func(*Config) {}, "", ""},
		"tokens":            {func(c *Config) { c.Authentication.TokenFile = file("good", "0123456789abcdef,me\n") }, "", ""},
		"a short token":     {func(c *Config) { c.Authentication.TokenFile = file("short", "hunter2,me\n") }, "here: authentication.tokenFile: ", ""},
		"tokens to come":    {func(c *Config) { c.Authentication.TokenFile = filepath.Join(dir, "none") }, "", "authentication.tokenFile: open "},
		"no authority":      {func(c *Config) { c.Authentication.X509.ClientCAFile = file("ca", "nothing\n") }, "here: authentication.x509.clientCAFile: ", ""},
		"a plug-in to come": {func(c *Config) { c.ImageCredentialProviderConfig = file("providers", providers) }, "", "credential provider p: "},
		"no plug-ins":       {func(c *Config) { c.ImageCredentialProviderConfig = file("broken", "{") }, "here: imageCredentialProviderConfig: ", ""},
	} {
		cfg := &Loaded{Sources: map[string]string{"authentication.tokenFile": "here", "authentication.x509.clientCAFile": "here", "imageCredentialProviderConfig": "here"}}
		c.change(&cfg.Config)
		cfg.ImageCredentialProviderBinDir = dir
		wrong, later := cfg.ProviderFaults()
		for what, l := range map[string]struct {
			got  []string
			want string
		}{"wrong": {wrong.Lines(), c.wrong}, "later": {later, c.later}, "of the daemon": {cfg.ProviderWarnings(), c.wrong + c.later}} {
			text := strings.Join(l.got, "\n")
			if (l.want == "") != (len(l.got) == 0) || len(l.got) > 1 || !strings.HasPrefix(text, l.want) || strings.Contains(text, "hunter2") {
				t.Errorf("%s: %s: %q, want %q", name, what, l.got, l.want)
			}
		}
	}
}
