package decode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/document"
)

// Inputs that are made to fill the memory: all of each is refused with few words, and it costs not much more than its size.
func TestWhatIsMadeToFillTheMemoryIsRefused(t *testing.T) {
	const much = 1 << 17
	pod := func(spec string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{` + spec + `}}`
	}
	many := func(text string, bytes int) string { return strings.Repeat(text, bytes/len(text)) }
	nested := strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 500) + many(pod("")+",", much/8) + pod("") + strings.Repeat("]}", 500)
	texts := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: i\n    args: [&a " + many("x", much/2)
	aliases := "a0: &a0 [x, x, x, x]\n"
	for i := range 14 {
		aliases += fmt.Sprintf("a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i, i)
	}
	for name, tt := range map[string]struct {
		text, want string
		apart      bool // its objects can be told apart
	}{
		"documents of a letter":      {many("--- x\n", much/4), "more than 1000 problems", false},
		"documents that are no YAML": {many("--- [\n", much/4), "more than 1000 problems", false},
		"pods of one name":           {many(pod(`"containers":[{"name":"c","image":"i"}]`)+"\n", much), "more than 1000 problems", true},
		"objects without end":        {many(`{"kind":"Namespace","apiVersion":"v1"}`, 6*much), "more than 20000 objects", false},
		"values without end":         {many("{}", much/8), "more than 1000 problems", false},
		"elements without end":       {`{"apiVersion":"v1","kind":"PodList","items":[` + many("{},", much/8) + "{}]}", "more than 1000 problems", false},
		"lists in lists":             {nested, "nested more than 4 deep", false},
		"aliases of a long text":     {texts + many(", *a", much/2) + "]\n", "aliases expand to more than 10 MiB", false},
		"aliases of aliases":         {aliases, "aliases expand to more than 10 MiB", false},
		"many documents of aliases":  {many("--- {a: &a "+many("x", 5000)+", b: ["+many("*a, ", 800)+"]}\n", much/2), "aliases expand to more than 10 MiB", false},
		"containers of nothing":      {pod(`"containers":[` + many("{},", much/2) + "{}]"), "more than 20000 mappings", true},
		"keys that stand twice":      {"a: {" + many("b: 1, ", much/8) + "}\n", "more than 1000 problems", false},
		"lines without end":          {"a: " + strings.Repeat("\n", document.MaxSigns) + "1\n", "more than 750000 lines", false},
		"lists in a line":            {strings.Repeat("- ", document.MaxSigns+1) + "a\n", "more than 750000 lines", false},
		"lines that end otherwise":   {"a:\r" + many("- b\r", much/8), "the kind is missing", false},
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(tt.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c, err := Parts("f", data, Options{})
			runtime.ReadMemStats(&after)
			all := manifests.Errors(err)
			if len(all) == 0 || len(all) > document.MaxProblems+1 || c != nil && len(c.Pods)+len(c.Objects)+len(c.Workloads) > 0 {
				t.Fatalf("%d problems, content %+v", len(all), c)
			}
			if got := err.Error(); !strings.Contains(got, tt.want) || len(got) > 2*much {
				t.Errorf("it says %.300q", got)
			}
			if cost := after.TotalAlloc - before.TotalAlloc; cost > 1<<28 {
				t.Errorf("%d MiB were allocated for %d KiB", cost>>20, len(data)>>10)
			}
			if _, err := Split("f", data); tt.apart != (err == nil) {
				t.Errorf("taken apart: %v", err)
			}
		})
	}
}

func TestAliasesAreUsedAsTheyAreMeant(t *testing.T) {
	text := "# &not-one and *not-one either\napiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: &l {a: b}, annotations: *l}\nspec:\n  containers:\n" +
		"  - {name: c, <<: &m {image: i}, command: [sh, -c, \"a && b & ls *\"]}\n  - {<<: *m, name: d}\n"
	pods, err := Pods("f", []byte(text), Options{})
	if err != nil || len(pods) != 1 || pods[0].Object.Annotations["a"] != "b" || pods[0].Object.Spec.Containers[1].Image != "i" {
		t.Errorf("%+v, %v", pods, err)
	}
}

func TestWhatMeansNothingHereMayBeLarge(t *testing.T) {
	text := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x"},"spec":{"versions":[` +
		strings.Repeat("{},", maxOwnParts) + "{}]}}"
	c, err := All("f", []byte(text), Options{})
	if err != nil || len(c.Ignored) != 1 || !strings.Contains(c.Ignored[0], "kind CustomResourceDefinition is ignored") {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestQuantitiesOfManyDigitsAreRefused: they take hours to parse. Each is refused at its line, and other values may look like that.
func TestQuantitiesOfManyDigitsAreRefused(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":%s}}}]}}`
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":%s}}}]}}}}`
	const claim = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":%s}}}}`
	long := `"` + strings.Repeat("1", 20_000) + `"`
	for _, number := range []string{`"1e-2147483648"`, `1e2147483647`, `"\u0031e-2147483648"`, `"1\u0065-2147483648"`, long} {
		for _, text := range []string{pod, deployment, claim, `{"apiVersion":"v1","kind":"List","items":[` + pod + `]}`} {
			for how, text := range map[string]string{"JSON": text, "YAML": "---\n# a comment\n" + text, "lenient": strings.ReplaceAll(text, `"limits"`, `"Limits"`)} {
				content, err := Parts("f.yaml", []byte(fmt.Sprintf(text, number)), Options{})
				if err == nil && how != "YAML" { // which has numbers of 64 bits
					t.Errorf("%s: %.100s with %.50s: %v", how, text, number, content)
				}
				if err != nil && len(err.Error()) > 4000 {
					t.Errorf("%s: %.100s with %.50s: %d bytes: %.300s", how, text, number, len(err.Error()), err)
				}
			}
		}
	}
	annotated := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"kubernetes.io/ingress-bandwidth":"1e-2147483648"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	if _, err := Parts("f.yaml", []byte(annotated), Options{}); err == nil {
		t.Error("a bandwidth is a quantity")
	}
	pages := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":1,"hugepages-1e2147483647":"1Mi"}}}]}}`
	if _, err := Parts("f.yaml", []byte(pages), Options{}); err == nil {
		t.Error("a size of pages is a quantity")
	}
	data := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"cpu":"1e-2147483648"}}`
	if _, err := Parts("f.yaml", []byte(data), Options{}); err != nil {
		t.Error(err)
	}
}
