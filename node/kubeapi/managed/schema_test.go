package managed

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"monopod/node/kubeapi/kinds"
)

var update = flag.Bool("update", false, "write schema.json.gz")

func TestSchemaIsCurrent(t *testing.T) {
	t.Parallel()
	want := prune(t, source(t))
	if *update {
		if err := os.WriteFile("schema.json.gz", pack(t, want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(packedTypes(want), packedTypes(have.Schema.Types), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("schema.json.gz is not that of client-go: run go test ./node/kubeapi/managed -update\n%.2000s", diff)
	}
	if len(packed) > 16<<10 {
		t.Errorf("schema.json.gz has %d bytes: it is in the agent", len(packed))
	}
}

// source returns the schema in the apply configurations of client-go, which is a string in an internal package.
func source(t *testing.T) string {
	t.Helper()
	// Where a function of it was compiled from; asking the go command takes long.
	here, _ := runtime.FuncForPC(reflect.ValueOf(corev1.Pod).Pointer()).FileLine(0)
	if !filepath.IsAbs(here) { // built with -trimpath: below the cache of modules
		cache := os.Getenv("GOMODCACHE")
		if cache == "" {
			cache = filepath.Join(build.Default.GOPATH, "pkg/mod")
		}
		here = filepath.Join(cache, here)
	}
	file := filepath.Join(filepath.Dir(here), "../../internal/internal.go")
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && len(lit.Value) > len(found) {
			found = lit.Value
		}
		return true
	})
	text, err := strconv.Unquote(found)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// prune keeps what the kinds that can be written refer to. It works on text: reading all of the YAML takes a second.
func prune(t *testing.T, whole string) []smd.TypeDef {
	t.Helper()
	blocks := map[string]string{}
	for block := range strings.SplitSeq(strings.TrimPrefix(whole, "types:\n"), "\n- name: ") {
		block = strings.TrimPrefix(block, "- name: ")
		name, _, _ := strings.Cut(block, "\n")
		blocks[name] = block
	}
	text := "types:\n"
	need := []string{"__untyped_atomic_", "__untyped_deduced_"}
	for _, kind := range written() {
		name, err := kinds.Scheme().ToOpenAPIDefinitionName(kind)
		if err != nil {
			t.Fatal(err)
		}
		need = append(need, name)
	}
	for seen := map[string]bool{}; len(need) > 0; {
		name := need[0]
		if need = need[1:]; seen[name] {
			continue
		}
		block, ok := blocks[name]
		if !ok {
			t.Fatalf("client-go has no schema of %s", name)
		}
		seen[name] = true
		text += "- name: " + strings.TrimSuffix(block, "\n") + "\n"
		for _, to := range regexp.MustCompile(`namedType: (\S+)`).FindAllStringSubmatch(block, -1) {
			need = append(need, to[1])
		}
	}
	parsed, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		t.Fatal(err)
	}
	types := parsed.Schema.Types
	slices.SortFunc(types, func(a, b smd.TypeDef) int { return strings.Compare(a.Name, b.Name) })
	for _, def := range types {
		stringKeys(def.Map)
	}
	return types
}

// stringKeys makes the defaults of YAML those of JSON.
func stringKeys(m *smd.Map) {
	for i := 0; m != nil && i < len(m.Fields); i++ {
		if in, ok := m.Fields[i].Default.(map[any]any); ok {
			out := map[string]any{}
			for key, value := range in {
				out[key.(string)] = value
			}
			m.Fields[i].Default = out
		}
	}
}

func written() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, k := range kinds.All() {
		if k.Allows("update") {
			all = append(all, k.GroupVersionKind)
		}
	}
	return all
}

func pack(t *testing.T, types []smd.TypeDef) []byte {
	t.Helper()
	raw, err := json.Marshal(packedTypes(types))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func packedTypes(types []smd.TypeDef) []packedType {
	var all []packedType
	for _, def := range types {
		p := packedAtom(def.Atom)
		p.Name = def.Name
		all = append(all, p)
	}
	return all
}

func packedAtom(a smd.Atom) packedType {
	var p packedType
	if a.Scalar != nil {
		p.Scalar = string(*a.Scalar)
	}
	if a.List != nil {
		p.List = &packedList{Element: packedRef(a.List.ElementType), Rel: string(a.List.ElementRelationship), Keys: a.Keys}
	}
	if a.Map != nil {
		p.Map = &packedMap{Element: packedRef(a.Map.ElementType), Rel: string(a.Map.ElementRelationship)}
		for _, f := range a.Fields {
			p.Map.Fields = append(p.Map.Fields, packedField{Name: f.Name, Type: packedRef(f.Type), Default: f.Default})
		}
	}
	return p
}

func packedRef(r smd.TypeRef) packedType {
	p := packedAtom(r.Inlined)
	p.Null = r.Nullable
	if r.NamedType != nil {
		p.Name = *r.NamedType
	}
	if r.ElementRelationship != nil {
		p.Rel = string(*r.ElementRelationship)
	}
	return p
}

func TestBrokenSchemas(t *testing.T) {
	t.Parallel()
	zipped := func(text string) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	whole := zipped("[]")
	for _, data := range [][]byte{nil, []byte("no gzip"), zipped("{"), slices.Clip(whole[:len(whole)-3])} {
		if _, err := unpack(data); err == nil {
			t.Errorf("no error for %q", data)
		}
	}
}
