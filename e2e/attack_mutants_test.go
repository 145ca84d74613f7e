package e2e

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"monopod/e2e/corpus"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/runner/plan"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
	"monopod/watcher"
)

// large is set for the large variant of attacks: `make attack`.
func large() bool { return os.Getenv("MONOPOD_ATTACK") != "" }

// Limits for one mutated manifest of a few kilobytes, far above normal usage.
const (
	mostAllocated = 512 << 20
	mostTime      = time.Minute
)

// TestAttackMutatedManifests: mutated manifests are refused or run; none makes the decoder, the validation, the merge, the plan or the spec
// panic, hang, or use too much memory.
func TestAttackMutatedManifests(t *testing.T) {
	seeds := seedManifests(t)
	n := 300
	if large() {
		n = 10_000
	}
	expander, err := workload.NewExpander(saved.NewStore(filepath.Join(t.TempDir(), "workloads.json")), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	accepted, built := 0, 0
	for i := range n {
		m := mutator{rand.New(rand.NewPCG(uint64(i), 11)), seeds}
		seed := seeds[i%len(seeds)]
		data := m.mutate(seed)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		pods, specs := swallow(t, expander, fmt.Sprintf("seed %d", i), data)
		runtime.ReadMemStats(&after)
		if took, cost := time.Since(began), after.TotalAlloc-before.TotalAlloc; took > mostTime || cost > mostAllocated {
			t.Errorf("seed %d, %d bytes: %v, %d MiB", i, len(data), took, cost>>20)
		}
		accepted, built = accepted+pods, built+specs
	}
	t.Logf("%d manifests: %d pods accepted, %d specs built", n, accepted, built)
	if accepted < n/20 || built < n/20 {
		t.Error("the mutations leave too little to look at")
	}
}

// swallow processes an input as the agent does, as far as that is pure. It returns the number of resulting pods and specs.
func swallow(t *testing.T, expander *workload.Expander, name string, data []byte) (pods, specs int) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			path := filepath.Join(os.TempDir(), "monopod-"+strings.ReplaceAll(name, " ", "-")+".yaml")
			_ = os.WriteFile(path, data, 0o600)
			t.Errorf("%s: panic: %v; the input is in %s", name, p, path)
		}
	}()
	policy := policy.Policy{PodSecurity: []string{"privileged", "privileged", "privileged", "baseline", "restricted"}[len(data)%5], RefuseCritical: len(data)%5 > 2}
	content, err := decode.Parts(name, data, decode.Options{Source: "attack", Policy: policy})
	if err != nil && len(manifests.Errors(err)) == 0 {
		t.Errorf("%s: an error without a place: %v", name, err)
	}
	_, _ = decode.Split(name, data)
	if content == nil {
		return 0, 0
	}
	sets := map[string]watcher.Set{"attack": {Pods: content.Pods, Objects: content.Objects, Workloads: content.Workloads}}
	d := watcher.Merge([]string{"attack"}, sets)
	r := expander.Expand(time.Unix(1_900_000_000, 0), d, nil)
	objects := manifests.NewObjects(slices.Concat(d.Objects, r.Claims))
	for _, p := range r.Pods {
		p = manifests.WithRefs(p, nil, objects)
		if actions, _ := plan.Plan(time.Unix(1, 0), p, plan.Observed{NewUID: "uid"}); len(actions) == 0 {
			t.Errorf("%s: pod %s has an empty plan", name, p.Key())
		}
		for _, c := range containersOf(p.Object) {
			if _, err := specOf(p, c.Name); err == nil {
				specs++
			}
		}
	}
	return len(r.Pods), specs
}

// seedManifests are the documents of the examples and, if it exists, of the corpus.
func seedManifests(t *testing.T) [][]byte {
	t.Helper()
	var seeds [][]byte
	examples, err := filepath.Glob("../examples/*/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal("there are no examples", err)
	}
	for _, file := range examples {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	for _, f := range corpus.Open(t) {
		if len(f.Data) < 64<<10 {
			seeds = append(seeds, f.Data)
		}
	}
	return seeds
}

// mutator makes random mistakes, reproducible by the seed.
type mutator struct {
	*rand.Rand
	seeds [][]byte
}

// mutate changes the structure of one document, or the bytes of all.
func (m *mutator) mutate(data []byte) []byte {
	if m.IntN(4) == 0 {
		return m.bytes(slices.Clone(data))
	}
	documents := strings.Split(string(data), "\n---")
	i := m.IntN(len(documents))
	var tree any
	if yaml.Unmarshal([]byte(documents[i]), &tree) != nil || tree == nil {
		return m.bytes(slices.Clone(data))
	}
	for range m.IntN(3) { // some stay as they are
		tree = m.node(tree, 0)
	}
	text, err := yaml.Marshal(tree)
	if err != nil {
		return data
	}
	documents[i] = "\n" + string(text)
	return []byte(strings.Join(documents, "\n---"))
}

// bytes flips, cuts and repeats parts of a text.
func (m *mutator) bytes(b []byte) []byte {
	for range 1 + m.IntN(8) {
		if len(b) < 2 {
			return b
		}
		at, n := m.IntN(len(b)), 1+m.IntN(64)
		end := min(at+n, len(b))
		switch m.IntN(5) {
		case 0:
			b[at] ^= byte(1 << m.IntN(8))
		case 1:
			b = slices.Delete(b, at, end)
		case 2:
			b = slices.Insert(b, at, slices.Repeat(b[at:end], 1+m.IntN(50))...)
		case 3:
			b = b[:at]
		case 4:
			b = slices.Insert(b, at, []byte(m.word())...)
		}
	}
	return b
}

// node changes one value somewhere below v.
func (m *mutator) node(v any, depth int) any {
	if depth < 12 && m.IntN(5) > 0 {
		switch v := v.(type) {
		case map[string]any:
			if len(v) > 0 {
				keys := make([]string, 0, len(v))
				for k := range v {
					keys = append(keys, k)
				}
				slices.Sort(keys)
				k := keys[m.IntN(len(keys))]
				switch m.IntN(12) {
				case 0:
					delete(v, k)
				case 1:
					v[m.word()] = v[k]
				default:
					v[k] = m.node(v[k], depth+1)
				}
				return v
			}
		case []any:
			if len(v) > 0 {
				i := m.IntN(len(v))
				switch m.IntN(8) {
				case 0:
					return slices.Repeat(v, 1+m.IntN(300))
				case 1:
					return slices.Delete(v, i, i+1)
				default:
					v[i] = m.node(v[i], depth+1)
				}
				return v
			}
		}
	}
	return m.value(v)
}

// value returns something other than v.
func (m *mutator) value(v any) any {
	switch m.IntN(10) {
	case 0:
		return nil
	case 1:
		return []any{v}
	case 2:
		return map[string]any{m.word(): v}
	case 3:
		return []int64{0, -1, 1, 65536, 1 << 31, 1<<31 - 1, 1 << 53, -1 << 62, 1_000_000_000}[m.IntN(9)]
	case 4:
		return fmt.Sprint(v) + m.word()
	case 5:
		return m.Float64() * 1e300
	case 6:
		return m.IntN(2) == 0
	case 7:
		deep := v
		for range m.IntN(200) {
			deep = map[string]any{"a": []any{deep}}
		}
		return deep
	default:
		return m.word()
	}
}

// word returns a text that has a meaning in some field.
func (m *mutator) word() string {
	words := []string{
		"", " ", "..", "../../etc", "/", "/proc/self/fd/0", "$(A)", strings.Repeat("$(HOME)", 1000), strings.Repeat("x", 5000), "\x00", "\n", "\u2028", "\u001b[31m", "é",
		"name", "containers", "env", "volumes", "initContainers", "securityContext", "system-node-critical", "1e999999999", "999999999Ei", "-1", "0x7fffffffffffffff", "1Ki",
		"{{ .Values.x }}", "*a", "&a", "!!binary", "<<", "? ", "- ", "|", ">", "[", "{", "\t", "yes", "null", "~", "Always", "hostPath", "status",
	}
	return words[m.IntN(len(words))]
}
