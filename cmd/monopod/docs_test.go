package main

import (
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"monopod/internal/config"
	"monopod/internal/reference"
	"monopod/internal/testfiles"
)

const docsMarker = "<!-- The rest is made from the program"

func TestDocsCLIDescribesEachCommandAndFlag(t *testing.T) {
	const file = "../../docs/cli.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), docsMarker)
	if !ok {
		t.Fatalf("%s has no %q", file, docsMarker)
	}
	line, _, _ := strings.Cut(rest, "\n")
	testfiles.Compare(t, file, head+docsMarker+line+"\n"+reference.Markdown(newCommands().root()))
}

func TestManualPagesAreUpToDate(t *testing.T) {
	testfiles.Compare(t, "../../docs/man/monopod.1", reference.ManCommands(newCommands().root(), groups()))
	testfiles.Compare(t, "../../docs/man/monopod.yaml.5", reference.ManConfig())
}

func TestEachCommandAndFlagHasAText(t *testing.T) {
	for _, cmd := range newCommands().root().Commands() {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: %q", cmd.Name(), cmd.Short)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no text", cmd.Name(), f.Name)
			}
		})
	}
}

// TestACommandIsMadeByItsName: the first word of a command line selects the command that is created, and advice refers to existing
// commands.
func TestACommandIsMadeByItsName(t *testing.T) {
	t.Parallel()
	all := newCommands().commands()
	for name, one := range all {
		p := newCommands()
		p.Words = []string{name, "--help"}
		if made := p.root().Commands(); one().Name() != name || len(made) != 1 || made[0].Name() != name {
			t.Errorf("%s is called %s, and alone there are %v", name, one().Name(), made)
		}
	}
	for _, words := range [][]string{nil, {}, {"help", "get"}, {"--help"}, {"uncordon", "x"}, {"gte"}} {
		p := newCommands()
		p.Words = words
		if n := len(p.root().Commands()); n != len(all) {
			t.Errorf("%q: %d commands, want %d", words, n, len(all))
		}
	}
}

// TestEachKeyOfAKubeletIsExplained: users of a kubelet find the equivalent of each of its settings.
func TestEachKeyOfAKubeletIsExplained(t *testing.T) {
	ours, kinds := map[string]bool{}, map[string]config.Kind{}
	for _, k := range config.Keys() {
		top, _, _ := strings.Cut(k.Path, ".")
		ours[top], kinds[k.Path] = true, k.Kind
	}
	text, err := os.ReadFile("../../docs/from-kubelet.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.HasPrefix(cells[1], " `") {
			told[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	for field := range reflect.TypeFor[kubeletconfig.KubeletConfiguration]().Fields() {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if key == "" {
			continue
		}
		switch what := told[key]; {
		case what == "":
			t.Errorf("docs/from-kubelet.md: nothing about %s", key)
		case strings.HasPrefix(what, "same") != ours[key]:
			t.Errorf("docs/from-kubelet.md: %s: %q, but monopod has such a key: %t", key, what, ours[key])
		case ours[key]:
			for path, isList := range parts(key, field.Type) {
				kind, there := kinds[path]
				told := path == key && what != "same" || slices.ContainsFunc(strings.Split(path, ".")[1:], func(name string) bool { return strings.Contains(what, "`"+name+"`") })
				if (!there || isList && kind == config.KindStrings) && !told {
					t.Errorf("docs/from-kubelet.md: %s: %q, but %s is not the same", key, what, path)
				}
			}
		}
	}
}

// parts returns the keys within a key of a kubelet, with their paths; isList means that it is a list of objects.
func parts(path string, t reflect.Type) iter.Seq2[string, bool] {
	return func(yield func(path string, isList bool) bool) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || strings.HasSuffix(t.Name(), "Duration") || t == reflect.TypeFor[resource.QuantityValue]() {
			yield(path, t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct)
			return
		}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			for p, isList := range parts(strings.TrimSuffix(path+"."+name, "."), f.Type) {
				if !yield(p, isList) {
					return
				}
			}
		}
	}
}
