package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"monopod/internal/config/suggest"
	"monopod/internal/testfiles"
)

// TestValuesOfVariablesAndFlags has the text of a value for each kind of key.
func TestValuesOfVariablesAndFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind Kind
		text string
		want any
	}{
		{kindString, "a b", "a b"},
		{kindPath, "a/b", "a/b"},
		{kindInt, "-5", int64(-5)},
		{kindBool, "TRUE", true},
		{kindBool, "False", false},
		{kindNumber, "0.25", 0.25},
		{kindNumber, "3", float64(3)},
		{kindDuration, "1h30m", 90 * time.Minute},
		{KindStrings, " a, b ,,c", []string{"a", "b", "c"}},
		{KindStrings, ",", []string{}},
		{kindPaths, "/a,b", []string{"/a", "b"}},
		{kindTexts, "{memory: 1Gi}", map[string]any{"memory": "1Gi"}},
		{kindPrograms, "crun: bin/crun", map[string]any{"crun": "bin/crun"}},
		{kindHeaders, `{A: ["b", "c"]}`, map[string]any{"A": []string{"b", "c"}}},
		{kindLists, "'group:ops': [metrics]", map[string]any{"group:ops": []string{"metrics"}}},
		{kindGraces, "[{priority: 1, shutdownGracePeriodSeconds: 2}]", []any{map[string]any{"priority": int64(1), "shutdownGracePeriodSeconds": int64(2)}}},
		{kindRules, "[{match: r.io}]", []any{map[string]any{"match": "r.io"}}},
		{kindSources, "[{name: a, atomic: true}]", []any{map[string]any{"name": "a", "atomic": true}}},
	} {
		got, problem := parseText(Key{Path: "key", Kind: c.kind}, c.text)
		if diff := cmp.Diff(c.want, got); diff != "" || problem != nil {
			t.Errorf("%s %q: %v, -want +got:\n%s", c.kind, c.text, problem, diff)
		}
	}
}

func TestTextThatIsNoValueIsRefusedWithTheFormThatIsMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       Kind
		text, want string
	}{
		{kindInt, "5s", `"5s" is not an integer`},
		{kindInt, "99999999999999999999", `"99999999999999999999" is not an integer`},
		{kindBool, "yes", `"yes" is neither true nor false`},
		{kindNumber, "NaN", `"NaN" is not a number`},
		{kindNumber, "+Inf", `"+Inf" is not a number`},
		{kindNumber, "half", `"half" is not a number`},
		{kindDuration, "20", `"20" is not a duration; write the unit too, such as 20s`},
		{kindDuration, "soon", `"soon" is not a duration; write a number and a unit, such as 20s or 5m`},
		{kindHeaders, "{", `not a map of lists of strings; write it as in YAML: {Authorization: ["Bearer ..."]}`},
		{kindLists, "{", "not a map of lists; write it as in YAML: {'group:ops': [metrics]}"},
		{kindPrograms, "{", "not a map of programs; write it as in YAML: {crun: /usr/bin/crun}"},
		{kindTexts, "{", "not a map of strings; write it as in YAML: {memory: 1Gi}"},
		{kindRules, "[", "not a list of rules; write it as in YAML: [{match: registry.example}]"},
		{kindGraces, "[", "not a list of times by priority; write it as in YAML: [{priority: 0, shutdownGracePeriodSeconds: 20}]"},
		{kindSources, "", `not a list of sources; write it as in YAML: [{name: fleet, url: "https://..."}]`},
		{kindTexts, "[a]", "expected a map of strings, not a list"},
		{kindTexts, "{memory: 1}", `memory: expected a string, not the number 1; quote it: "1"`},
		{kindPrograms, "{crun: [a]}", "crun: expected a string, not a list"},
		{kindGraces, "[5]", "expected a map, not a number"},
		{kindRules, "[{mtach: r.io}]", "unknown key; did you mean match?"},
		{kindGraces, "[{priority: low}]", `expected an integer, not the string "low"`},
	} {
		value, problem := parseText(Key{Path: "key", Kind: c.kind}, c.text)
		if problem == nil {
			t.Errorf("%s %q is %v", c.kind, c.text, value)
			continue
		}
		problem.Where, problem.Key = "", ""
		if got := problem.Error(); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.kind, c.text, got, c.want)
		}
	}
}

func TestRelativePathsBeginAtTheirBase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key         Key
		value, want any
	}{
		"a path":                     {Key{Kind: kindPath}, "a/../b", "/base/b"},
		"an absolute path":           {Key{Kind: kindPath}, "/a/", "/a"},
		"no path":                    {Key{Kind: kindPath}, "", ""},
		"a list":                     {Key{Kind: kindPaths}, []string{"a", "/b"}, []string{"/base/a", "/b"}},
		"words":                      {Key{Kind: KindStrings}, []string{"a/b"}, []string{"a/b"}},
		"a runtime that is named":    {Key{Path: "ociRuntime", Kind: kindString}, "crun", "crun"},
		"a runtime with its path":    {Key{Path: "ociRuntime", Kind: kindString}, "bin/crun", "/base/bin/crun"},
		"programs":                   {Key{Kind: kindPrograms}, map[string]any{"a": "crun", "b": "bin/crun"}, map[string]any{"a": "crun", "b": "/base/bin/crun"}},
		"texts with a slash":         {Key{Kind: kindTexts}, map[string]any{"a": "b/c"}, map[string]any{"a": "b/c"}},
		"files of a source":          {Key{Kind: kindSources}, []any{map[string]any{"url": "a/b", "caFile": "ca.pem"}}, []any{map[string]any{"url": "a/b", "caFile": "/base/ca.pem"}}},
		"files of its headers":       {Key{Kind: kindSources}, []any{map[string]any{"headers": []any{map[string]any{"valueFile": "token"}}}}, []any{map[string]any{"headers": []any{map[string]any{"valueFile": "/base/token"}}}}},
		"keys of a rule":             {Key{Kind: kindRules}, []any{map[string]any{"signature": map[string]any{"keyFiles": []string{"k"}}}}, []any{map[string]any{"signature": map[string]any{"keyFiles": []string{"/base/k"}}}}},
		"numbers have nothing to do": {Key{Kind: kindInt}, int64(5), int64(5)},
	} {
		if diff := cmp.Diff(c.want, resolvePaths(c.key, c.value, "/base")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestKeysOfAKubeletThatMonopodLacksAreNotTakenForMisspelledOnes: the error does not suggest an unrelated key.
func TestKeysOfAKubeletThatMonopodLacksAreNotTakenForMisspelledOnes(t *testing.T) {
	t.Parallel()
	keys := map[string]Key{}
	for _, k := range Keys() {
		keys[k.Path] = k
	}
	for path, want := range map[string]string{
		"featureGates":       "monopod has no featureGates, it is a setting of the kubelet only; remove it",
		"featuregates":       "monopod has no featuregates, it is a setting of the kubelet only; remove it",
		"kubeAPIQPS":         "monopod has no kubeAPIQPS, it is a setting of the kubelet only; remove it",
		"defaultPodSysctls":  "monopod has no defaultPodSysctls, it is a setting of the kubelet only; remove it",
		"podManifestPath":    "unknown key; monopod calls it staticPodPath",
		"hostnameOverride":   "unknown key; monopod calls it nodeName",
		"logging.verbosity":  "unknown key; monopod calls it logging.level",
		"MaxPods":            "unknown key; did you mean maxPods?",
		"level":              "unknown key; did you mean logging.level?",
		"evictionhard":       "unknown key; did you mean evictionHard?",
		"apiVersion":         "a monopod configuration has no apiVersion; remove the line",
		"nothing.of.a.kind":  "unknown key",
		"tracing.samplerate": "unknown key",
	} {
		msg, hint := unknownKey(path, keys)
		if got := (Problem{Msg: msg, Hint: hint}).Error(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for former, own := range suggest.FormerNames() {
		if _, ok := keys[own]; !ok {
			t.Errorf("%s leads to %s, which is no key", former, own)
		}
	}
}

func TestTheNearestNameIsMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, known, want string }{
		{"sttaic", "none static", "static"},
		{"STATIC", "none static", "static"},
		{"x", "none static", ""},
		{"lvl", "logging.level port", "logging.level"},
		{"a.lvl", "logging.level port", ""},
		{"", "aaaa", ""},
		{"ps", "cp top", ""},
	} {
		if got := suggest.Nearest(c.name, strings.Fields(c.known)); got != c.want {
			t.Errorf("%q among %s: %q, want %q", c.name, c.known, got, c.want)
		}
	}
	if got := DidYouMean("zzzzzz", []string{"static"}); got != "" {
		t.Error(got)
	}
}

func TestFlagsTellTheirKindAndTheirDefault(t *testing.T) {
	t.Parallel()
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	AddFlags(set)
	for name, want := range map[string][2]string{
		"max-pods": {"integer", "`110`"}, "cni-bin-dirs": {"list", "the plugins that came with monopod, `/opt/cni/bin`, `/usr/lib/cni`"}, "serialize-image-pulls": {"boolean", "`false`"}, "static-pod-url": {"string", "empty"},
		"file-check-frequency": {"duration", "`20s`"}, "enforce-node-allocatable": {"list", "`[pods]`"},
	} {
		f := set.Lookup(name)
		if f == nil {
			t.Errorf("no flag %s", name)
			continue
		}
		if got := [2]string{f.Value.Type(), f.DefValue}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, secret := range []string{"static-pod-url-header", "sources"} {
		if set.Lookup(secret) != nil {
			t.Errorf("--%s would show secrets to every user", secret)
		}
	}
}

func TestDurationsArePrintedAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 20 * time.Second: "20s", 5 * time.Minute: "5m", 90 * time.Second: "1m30s", 24 * time.Hour: "24h", 10 * time.Hour: "10h", time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m",
		time.Hour + 30*time.Minute: "1h30m", 300 * time.Millisecond: "300ms",
	} {
		if got := DurationText(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if again, problem := parseDuration(want); problem != nil || again != d {
			t.Errorf("%s is read as %v, %v", want, again, problem)
		}
	}
}

// TestPrintedJSONIsNestedAsAFile: with the source of each value by its full key.
func TestPrintedJSONIsNestedAsAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	testfiles.Write(t, file, "logging: {level: debug}\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 5}]\n")
	cfg, err := loadIn(dir, []string{"MONOPOD_IMAGE_POLICY=[{match: r.io, action: deny}]"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cfg.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"level": "debug"`, `"logging.level": "` + file + `:1"`, `"imagePolicy": "MONOPOD_IMAGE_POLICY"`, `"maxPods": 110`, `"maxPods": "default"`, `"files": [` + "\n    \"" + file + `"`, `"shutdownGracePeriodSeconds": 5`, `"match": "r.io"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
	nested := cfg.Nested()
	if logging, ok := nested["logging"].(map[string]any); !ok || logging["level"] != "debug" || logging["format"] != "text" || nested["fileCheckFrequency"] != "20s" {
		t.Errorf("%v", nested["logging"])
	}
}
