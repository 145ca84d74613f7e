package config

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monopod/internal/testfiles"
)

// printedAndRead loads a configuration, and then the same as it is printed.
func printedAndRead(t *testing.T, text string) (first, second *Loaded) {
	t.Helper()
	load := func(text string) *Loaded {
		dir := t.TempDir()
		testfiles.Write(t, filepath.Join(dir, "config.yaml"), text)
		loaded, err := loadIn(dir, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return loaded
	}
	first = load(text)
	printed, err := first.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return first, load(printed)
}

// TestWhatIsPrintedIsReadAgain has a value of each kind, so that `monopod config > config.yaml` can be used.
func TestWhatIsPrintedIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := printedAndRead(t, `
nodeName: "1e3"
clusterDNS: [10.0.0.1, "::1"]
preloadDirectories: [images, "/with: colon"]
fileCheckFrequency: 1h30m
memoryThrottlingFactor: 0.9
podPidsLimit: -1
helmHooks: true
nodeLabels: {disktype: ssd, empty: "", number: "5", "no": "no"}
runtimeHandlers: {crun: bin/crun}
authorization: {mode: Rules, rules: {"user:p": [metrics, "create:proxy"], "group:g": ["*"]}}
evictionHard: {memory.available: 5%, nodefs.available: 1Gi}
shutdownGracePeriodByPodPriority: [{priority: -5, shutdownGracePeriodSeconds: 1}, {priority: 2000000000, shutdownGracePeriodSeconds: 0}]
imagePolicy: [{match: r.io, action: deny}, {match: "*", signature: {keyFiles: [key.pub], trustPreloaded: true}}]
sources:
- {name: a, url: "oci://r.io/pods:1", atomic: true, criticalPods: true}
- {name: b, url: "https://h/a%20b#d", period: 90s, headers: [{name: X, valueFile: x}], signature: {kind: minisign, keyFiles: [fleet.pub]}}
registerWithTaints: ["a=b:NoSchedule"]
tracing: {endpoint: "[::1]:4317", samplingRatePerMillion: 1000000}
`)
	if diff := cmp.Diff(first.Config, second.Config); diff != "" {
		t.Errorf("-first +second:\n%s", diff)
	}
}

func TestAProblemIsPrintedLikeThatOfACompiler(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Problem{
		"f.yaml:3: a.b: is wrong; write 5": {Where: "f.yaml:3", Key: "a.b", Msg: "is wrong", Hint: "write 5"},
		"f.yaml: is wrong":                 {Where: "f.yaml", Msg: "is wrong"},
		"a.b: is wrong":                    {Key: "a.b", Msg: "is wrong"},
	} {
		if got := p.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := (Problems{p, p}).Error(); got != want+"\n"+want {
			t.Errorf("two: %q", got)
		}
	}
	check := &configCheck{sources: map[string]string{"a": "default", "b": "default: `x`", "c": "MONOPOD_C"}}
	for _, key := range []string{"a", "b", "c"} {
		check.add(key, "is wrong", "")
	}
	if got, want := check.problems.Error(), "a: is wrong\nb: is wrong\nMONOPOD_C: c: is wrong"; got != want {
		t.Errorf("%q, want %q: a default stands nowhere", got, want)
	}
}
