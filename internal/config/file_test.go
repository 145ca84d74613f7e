package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monopod/internal/testfiles"
)

// TestAFileIsReadStrictly maps the text of a file to all problems reported for it, with their lines.
func TestAFileIsReadStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                      {"/x: the file is empty (0 bytes); restore it, or remove it to run with the defaults"},
		"# nothing\n":           {},
		"---\n":                 {},
		"null\n":                {},
		"{}\n":                  {},
		`{"maxPods": 3}`:        {},
		"maxPods\n":             {"/x:1: not a map of keys and values"},
		"maxPods: 3\n\tx: 4\n":  {"/x:2: yaml: found a tab character that violates indentation"},
		"a: 1\n---\n{":          {"/x:3: yaml: did not find expected node content"},
		"maxPods: &n 3\n":       {},
		"maxPods: {}\n":         {"/x:1: maxPods: expected an integer, not a map"},
		"maxPods: 0x10\n":       {`/x:1: maxPods: "0x10" is not an integer`},
		"maxPods: true\n":       {"/x:1: maxPods: expected an integer, not the boolean true"},
		"helmHooks: 'true'\n":   {`/x:1: helmHooks: expected a boolean, not the string "true"`},
		"helmHooks: [true]\n":   {"/x:1: helmHooks: expected a boolean, not a list"},
		"nodeName: 1e3\n":       {`/x:1: nodeName: expected a string, not the number 1e3; quote it: "1e3"`},
		"nodeName: 2026-01-01":  {`/x:1: nodeName: expected a string, not the number 2026-01-01; quote it: "2026-01-01"`},
		"socket: {a: b}\n":      {"/x:1: socket: expected a path, not a map"},
		"clusterDNS: [null]\n":  {"/x:1: clusterDNS: item 1: expected a string, not nothing"},
		"clusterDNS: {a: b}\n":  {"/x:1: clusterDNS: expected a list of strings, not a map"},
		"tracing: [endpoint]\n": {"/x:1: tracing: expected a map, not a list; its keys: tracing.endpoint, tracing.samplingRatePerMillion"},
		"tracing:\n  endpoint: h:1\n  endpoint: h:2\n":                  {"/x:3: tracing.endpoint: given twice, first in line 2"},
		"memoryThrottlingFactor: much\n":                                {`/x:1: memoryThrottlingFactor: expected a number, not the string "much"`},
		"nodeLabels:\n  a: b\n  c: [d]\n":                               {"/x:2: nodeLabels: c: expected a string, not a list"},
		"imagePolicy:\n- {match: a.io, match: b.io}\n- {mtach: c.io}\n": {"/x:2: imagePolicy[0].match: given twice", "/x:3: imagePolicy[1].mtach: unknown key; did you mean match?"},
		"shutdownGracePeriodByPodPriority:\n- {priority: low}\n- 5\n":   {`/x:2: shutdownGracePeriodByPodPriority[0].priority: expected an integer, not the string "low"`, "/x:3: shutdownGracePeriodByPodPriority[1]: expected a map, not a number"},
		"sources: {name: a}\n":                                          {"/x:1: sources: expected a list of maps, not a map"},
		"sources:\n- name: a\n  signature: {kid: x}\n":                  {"/x:3: sources[0].signature.kid: unknown key; did you mean kind?"},
		"sources:\n- name: a\n  signature: {}\n":                        {"/x:3: sources[0].signature: is empty; its keys: kind, keys, keyFiles"},
		"sources:\n- name: a\n  headers:\n  - {name: B, value: 5}\n":    {"/x:4: sources[0].headers[0].value: expected a string, not a number; quote it"},
		"sources:\n- name: a\n  headers:\n  - {name: B, value: true}":   {"/x:4: sources[0].headers[0].value: expected a string, not a boolean; quote it"},
		"sources:\n- name: a\n  caFile:\n  atomic: no\n  timeout: 0\n":  {`/x:4: sources[0].atomic: expected a boolean, not the string "no"`, "/x:5: sources[0].timeout: 0s is less than 1s"},
		"maxPods: many\nmaxConcurrentStarts: many\nxyz: 1\n": {
			`/x:1: maxPods: expected an integer, not the string "many"`, `/x:2: maxConcurrentStarts: expected an integer, not the string "many"`, "/x:3: xyz: unknown key",
		},
	} {
		_, problems := parseConfigFile("/x", []byte(text), Keys())
		if diff := cmp.Diff(want, problems.Lines()); diff != "" {
			t.Errorf("%q: -want +got:\n%s", text, diff)
		}
	}
}

func TestAKeyIsNamedOnceInFilesTheEnvironmentAndOnCommandLines(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, k := range Keys() {
		bare := Key{Path: k.Path, Kind: k.Kind} // its names are computed, not cached
		for _, name := range []string{k.Path, k.Env(), k.Flag()} {
			if other := seen[name]; other != "" && name != "" && other != k.Path {
				t.Errorf("%s is the name of %s and of %s", name, other, k.Path)
			}
			seen[name] = k.Path
		}
		if bare.Env() != k.Env() || bare.Flag() != k.Flag() {
			t.Errorf("%s: %s and %s, or %s and %s", k.Path, k.Env(), k.Flag(), bare.Env(), bare.Flag())
		}
		if k.Doc() == "" || k.Default() == "" || strings.Trim(k.Env(), "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" || strings.ToLower(k.Flag()) != k.Flag() {
			t.Errorf("%s: variable %s, flag %s, default %q", k.Path, k.Env(), k.Flag(), k.Default())
		}
	}
	for _, own := range []string{envConfigFile, envBundleDir, EnvRequestTimeout} {
		if seen[own] != "" {
			t.Errorf("%s is that of %s, too", own, seen[own])
		}
	}
}

// TestTheLastLayerThatSetsAKeyWins, whichever layers do, and it is named as the source.
func TestTheLastLayerThatSetsAKeyWins(t *testing.T) {
	t.Parallel()
	const file, null, variable, flag = 1, 2, 4, 8
	for given := range 2 * flag {
		dir := t.TempDir()
		testfiles.Write(t, filepath.Join(dir, "config.yaml"), "# nothing\n")
		var environ, args []string
		want, source := 110, "default"
		if given&file != 0 {
			testfiles.Write(t, filepath.Join(dir, "config.yaml"), "maxPods: 1\n")
			want, source = 1, filepath.Join(dir, "config.yaml:1")
		}
		if given&null != 0 {
			testfiles.Write(t, filepath.Join(dir, "config.d", "10.yaml"), "maxPods:\n")
			want, source = 110, filepath.Join(dir, "config.d", "10.yaml:1")
		}
		if given&variable != 0 {
			environ, want, source = []string{"MONOPOD_MAX_PODS=4"}, 4, "MONOPOD_MAX_PODS"
		}
		if given&flag != 0 {
			args, want, source = []string{"--max-pods=5"}, 5, "--max-pods"
		}
		cfg, err := loadIn(dir, environ, args)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.MaxPods != want || cfg.Sources["maxPods"] != source {
			t.Errorf("%04b: %d of %s, want %d of %s", given, cfg.MaxPods, cfg.Sources["maxPods"], want, source)
		}
	}
}

// TestTwoConfigurationsShareNothing: a daemon of `monopod up` changes its own one.
func TestTwoConfigurationsShareNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "config.yaml"), "nodeLabels: {a: b}\nclusterDNS: [10.0.0.1]\nstaticPodURL: http://h/\nstaticPodURLHeader: {A: [b]}\n")
	load := func() *Loaded {
		cfg, err := loadIn(dir, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	first, second := load(), load()
	first.NodeLabels["a"], first.ClusterDNS[0], first.RegisterWithTaints[0], first.EnforceNodeAllocatable[0], first.StaticPodURLHeader["A"][0] = "x", "x", "x", "x", "x"
	first.RegistryHostsDirs[0], first.Sources["nodeLabels"], first.Files[0] = "x", "x", "x"
	first.ClusterDNS, first.RegisterWithTaints = append(first.ClusterDNS, "y"), slices.Delete(first.RegisterWithTaints, 0, 1)
	for what, later := range map[string]*Loaded{"one from before": second, "one from after": load()} {
		if later.NodeLabels["a"] != "b" || later.ClusterDNS[0] != "10.0.0.1" || later.RegisterWithTaints[0] != ownPodsOnly || later.EnforceNodeAllocatable[0] != enforcePods ||
			later.StaticPodURLHeader["A"][0] != "b" || later.RegistryHostsDirs[0] == "x" || later.Sources["nodeLabels"] == "x" || later.Files[0] == "x" {
			t.Errorf("%s has changed: %+v", what, later)
		}
	}
}
