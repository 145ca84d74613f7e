package validate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"monopod/internal/testfiles"
	"monopod/manifests/defaults"
	"monopod/manifests/explain"
	"monopod/manifests/podhash"
	"monopod/manifests/validate"
)

var oracle = flag.String("reference", "", "the program of testdata/reference/oracle, to compare with and to update from")

// mutant is a pod with one change.
type mutant struct {
	name string
	data []byte
}

// referenceMutants takes the pods of testdata/reference and breaks them in every place: fields removed, emptied,
// doubled, and set to values that are wrong almost anywhere.
// Only those that are wanted are made; nil wants all.
func referenceMutants(tb testing.TB, wanted map[string]bool) []mutant {
	tb.Helper()
	var all []mutant
	for _, base := range []string{"full", "host"} {
		data, err := os.ReadFile(filepath.Join("testdata", "reference", base+".yaml"))
		if err != nil {
			tb.Fatal(err)
		}
		var tree map[string]any
		if err := yaml.UnmarshalStrict(data, &tree); err != nil {
			tb.Fatal(err)
		}
		m := mutator{root: tree, base: base, wanted: wanted}
		m.emit("as it is")
		for _, part := range []string{"metadata", "spec"} {
			m.visit(part, tree[part], func(v any) { tree[part] = v })
		}
		all = append(all, m.all...)
	}
	return all
}

type mutator struct {
	root   map[string]any
	base   string
	wanted map[string]bool
	all    []mutant
}

func (m *mutator) emit(name string) {
	name = m.base + " " + name
	if m.wanted != nil && !m.wanted[name] {
		return
	}
	data, err := json.Marshal(m.root)
	if err != nil {
		panic(err)
	}
	m.all = append(m.all, mutant{name: name, data: data})
}

// visit breaks one value, then what is inside of it.
func (m *mutator) visit(path string, v any, set func(any)) {
	try := func(what string, value any) {
		set(value)
		m.emit(path + " " + what)
		set(v)
	}
	try("removed", nil)
	switch v := v.(type) {
	case map[string]any:
		m.object(path, v, try)
	case []any:
		try("empty", []any{})
		try("doubled", append(slices.Clone(v), v[0]))
		for i := range v {
			m.visit(fmt.Sprintf("%s[%d]", path, i), v[i], func(value any) { v[i] = value })
		}
	case string:
		for _, s := range nastyStrings() {
			try(fmt.Sprintf("%.20q", s), s)
		}
	case float64:
		for _, n := range []float64{0, -1, 70000, 101, 1000, 1 << 33} {
			try(fmt.Sprint(n), n)
		}
	case bool:
		try("flipped", !v)
	}
}

func (m *mutator) object(path string, v map[string]any, try func(string, any)) {
	try("empty", map[string]any{})
	for i, k := range explain.SortedKeys(v) {
		if i == 0 {
			odd := maps.Clone(v)
			odd["Bad Key!"] = v[k]
			try("with a bad key", odd)
		}
		m.visit(path+"."+k, v[k], func(value any) {
			if v[k] = value; value == nil {
				delete(v, k)
			}
		})
	}
}

func nastyStrings() []string {
	return []string{
		"", "Bad Value!", "..", "/abs/../x", "..a", "UPPER", strings.Repeat("x", 300), "x", "-1", "2.5", " pad ", "1Mi",
		"a_b", "a.b", "CAP_SYS_ADMIN", "Unmasked", "Localhost", "Bidirectional", "Always", "Exists", "unconfined",
		"metadata.annotations['a']", "spec.foo", "status.hostIP", "limits.hugepages-2Mi", "requests.cpu",
	}
}

// verdict is what the API server makes of a mutant.
type verdict struct {
	Name   string   `json:"name"`
	Errors []string `json:"errors,omitempty"`
	// Decode is set for what it could not even decode.
	Decode string `json:"decode,omitempty"`
	// Default is the hash of the defaulted pod, of pods without errors.
	Default string `json:"default,omitempty"`
}

// ourVerdict decodes, defaults and validates without looking at fates.
func ourVerdict(m mutant) verdict {
	v := verdict{Name: m.name}
	var pod corev1.Pod
	strict, err := kjson.UnmarshalStrict(m.data, &pod)
	if err != nil || len(strict) > 0 {
		v.Decode = "refused"
		return v
	}
	defaults.Pod(&pod)
	for _, e := range validate.Pod(&pod) {
		if !stricter.MatchString(e.Field+": "+e.Detail) || e.Type != field.ErrorTypeInvalid {
			v.Errors = append(v.Errors, e.Error())
		}
	}
	if len(v.Errors) == 0 {
		v.Default = podhash.Of(&pod)
	}
	v.normalize()
	return v
}

// stricter matches fields that become arguments of programs of the host, for which the API server accepts more.
var stricter = regexp.MustCompile(`\.nfs\.(server: |path: must not begin with '-')`)

// structValue matches values that the API server prints as a whole struct, where we name what is wrong in it.
var structValue = regexp.MustCompile(`Invalid value: (\{.*?\}|false|"[^ "]*"): `)

// normalize makes verdicts comparable: no order, no printed structs.
func (v *verdict) normalize() {
	for i := range v.Errors {
		v.Errors[i] = structValue.ReplaceAllString(v.Errors[i], "Invalid value: X: ")
	}
	slices.Sort(v.Errors)
	if v.Decode != "" {
		v.Decode = "refused"
	}
}

func (v *verdict) String() string {
	return fmt.Sprintf("decode=%q default=%s\n\t%s", v.Decode, v.Default, strings.Join(v.Errors, "\n\t"))
}

// askReference lets the API server's own code judge pods.
func askReference(t *testing.T, mutants []mutant) []verdict {
	t.Helper()
	dir := t.TempDir()
	var names bytes.Buffer
	for i, m := range mutants {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(path, m.data, 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&names, path)
	}
	cmd := exec.Command(*oracle)
	cmd.Stdin, cmd.Stderr = &names, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	all := make([]verdict, len(mutants))
	for i := range all {
		var answer struct {
			Decode  string
			Errors  []string
			Default any
		}
		if err := dec.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		all[i] = verdict{Name: mutants[i].name, Errors: answer.Errors, Decode: answer.Decode}
		if answer.Decode == "" && len(answer.Errors) == 0 {
			all[i].Default = podhash.Of(answer.Default)
		}
		all[i].normalize()
	}
	return all
}

// TestValidationAgreesWithTheAPIServer compares defaults and errors of thousands of broken pods with what
// k8s.io/kubernetes 1.37.2 made of them. The golden file holds a choice; with -reference all are compared.
func TestValidationAgreesWithTheAPIServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "reference", "verdicts.jsonl")
	if *oracle == "" {
		want := readVerdicts(t, path)
		wanted := map[string]bool{}
		for _, v := range want {
			wanted[v.Name] = true
		}
		compareVerdicts(t, referenceMutants(t, wanted), want)
		return
	}
	mutants := referenceMutants(t, nil)
	want := askReference(t, mutants)
	if testfiles.Update() {
		writeVerdicts(t, path, choose(slices.Clone(want)))
	}
	compareVerdicts(t, mutants, want)
}

func compareVerdicts(t *testing.T, mutants []mutant, want []verdict) {
	t.Helper()
	if len(mutants) != len(want) {
		t.Fatalf("there are %d verdicts about %d mutants", len(want), len(mutants))
	}
	for i, m := range mutants {
		if got := ourVerdict(m); got.String() != want[i].String() || got.Name != want[i].Name {
			t.Errorf("%s\n got %s\nwant %s", m.name, got.String(), want[i].String())
		}
	}
	t.Logf("%d mutants compared", len(want))
}

// choose keeps of each field one mutant for each different outcome.
func choose(all []verdict) []verdict {
	seen := map[string]bool{}
	values := regexp.MustCompile(`"[^"]*"|-?[0-9.e+]+`)
	return slices.DeleteFunc(all, func(v verdict) bool {
		path, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(v.Name, "full "), "host "), " ")
		key := v.Name[:4] + path + v.Decode + values.ReplaceAllString(strings.Join(v.Errors, ";"), "")
		twice := seen[key]
		seen[key] = true
		return twice
	})
}

func writeVerdicts(t *testing.T, path string, all []verdict) {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for _, v := range all {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readVerdicts(t *testing.T, path string) []verdict {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []verdict
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var v verdict
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}
