package describe

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/e2e/corpus"
	"monopod/internal/daemontest"
	"monopod/internal/program"
)

// remedy is the fix that a message contains: where, and what to write there.
type remedy struct {
	says *regexp.Regexp
	// do edits the lines; at counts from 0, column from 1, groups are those of says.
	do func(lines []string, at, column int, groups []string) []string
}

func replaceFrom(lines []string, at, column int, end *regexp.Regexp, with string) []string {
	head, rest := lines[at][:column-1], lines[at][column-1:]
	lines[at] = head + with + rest[len(end.FindString(rest)):]
	return lines
}

func remedies() []remedy {
	says := regexp.MustCompile
	word, value := says(`^\w+`), says(`^("[^"]*"|[^,\]}#]*)`)
	valueIs := func(lines []string, at, column int, g []string) []string {
		return replaceFrom(lines, at, column, value, g[1])
	}
	under := func(key, field string) func([]string, int, int, []string) []string {
		return func(lines []string, _, _ int, g []string) []string {
			i := slices.Index(lines, key+":")
			indent := lines[i+1][:len(lines[i+1])-len(strings.TrimLeft(lines[i+1], " "))]
			return slices.Insert(lines, i+1, indent+field+": "+g[1])
		}
	}
	return []remedy{
		{says(`unknown field.*did you mean "(\w+)"\?`), func(lines []string, at, column int, g []string) []string {
			return replaceFrom(lines, at, column, word, g[1])
		}},
		{says(`did you mean "([^"]+)"\?`), valueIs},
		{says(`put it in quotes: ("[^"]*")`), valueIs},
		{says(`write apiVersion: (\S+)`), valueIs},
		{says(`unit, like (\w+)`), valueIs},
		{says(`is not an image name.*; write it as in (\S+)`), valueIs},
		{says(`Unsupported value.* supported values: .*"(SIGTERM|TCP)"`), valueIs},
		{says(`unknown field; there is a field of this name at spec\.\w+$`), func(lines []string, at, _ int, _ []string) []string {
			for i := at; i < len(lines); i++ {
				lines[i] = "  " + lines[i]
			}
			return lines
		}},
		{says(`unknown field$|this line is not "key: value"`), func(lines []string, at, _ int, _ []string) []string { return slices.Delete(lines, at, at+1) }},
		{says(`as in metadata: (\{.*\})`), func(lines []string, at, _ int, g []string) []string {
			return slices.Insert(lines, at, "metadata: "+g[1])
		}},
		{says(`as in selector: (\{.*\})`), under("spec", "selector")},
		{says(`write os: (\{.*\}) into the spec`), under("spec", "os")},
		{says(`add its labels to (spec\.template\.metadata\.labels)`), func(lines []string, at, column int, _ []string) []string {
			labels := regexp.MustCompile(`selector: \{matchLabels: (\{.*\})\}`).FindStringSubmatch(strings.Join(lines, "\n"))[1]
			return under("  template", "metadata")(lines, at, column, []string{"", "{labels: " + labels + "}"})
		}},
		{says(`duplicate field, already set at line \d+; remove one of them`), func(lines []string, at, column int, _ []string) []string {
			end := at + 1
			for end < len(lines) && strings.HasPrefix(strings.TrimPrefix(lines[end], strings.Repeat(" ", column-1)), " ") || end < len(lines) && strings.HasPrefix(lines[end], strings.Repeat(" ", column-1)+"-") {
				end++
			}
			return slices.Delete(lines, at, end)
		}},
		{says(`put a line --- before it`), func(lines []string, _, _ int, _ []string) []string { return slices.Insert(lines, 0, "---") }},
	}
}

// place is where an input has a mistake, at the beginning of a message.
var mistakePlace = regexp.MustCompile(`^\s*\S+/pod\.(?:yaml|json):(\d+)(?::(\d+))?: `)

// mend applies the first message that it understands.
func mend(t *testing.T, text, said string) string {
	t.Helper()
	for line := range strings.Lines(said) {
		place := mistakePlace.FindStringSubmatch(line)
		if place == nil {
			continue
		}
		at, _ := strconv.Atoi(place[1])
		column, _ := strconv.Atoi(place[2])
		for _, r := range remedies() {
			if g := r.says.FindStringSubmatch(strings.TrimSpace(line)); g != nil {
				return strings.Join(r.do(strings.Split(text, "\n"), at-1, column, g), "\n")
			}
		}
	}
	t.Fatalf("who has never seen monopod does not know what to do about\n%s\n%s", text, said)
	return ""
}

// Broken manifests of other projects are fixed with nothing but the advice of `monopod why`, until all are accepted.
func TestWhatWhySaysOfRefusedManifestsIsEnoughToMendThem(t *testing.T) {
	t.Parallel()
	files := corpus.Open(t)
	for name, rounds := range map[string]int{
		"pod-busybox-broken.yaml":                   1, // kind without its k
		"chatbot-quadlet-chatbot.yaml":              3, // three images that are placeholders
		"error_indentation.yaml":                    2, // spec without its fields, and true as an amount
		"error_multiple_fields.yaml":                1, // containers twice
		"fixtures-extra_property.yaml":              4, // a DaemonSet of 2016
		"stopSignalNosuchSignal-L1495.yaml":         3, // a name and a signal that do not exist
		"play_test--str-L51.yaml":                   1, // no YAML
		"play_kube_test--podWithoutAName-L275.yaml": 2,
		"invalidPod3.json":                          1, // YAML that looks like JSON
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(files, func(f corpus.File) bool { return strings.HasSuffix(f.Name, name) })
			if i < 0 {
				t.Fatal("it is not in the corpus")
			}
			if files[i].Kubelet == "ok" && !strings.Contains(name, "multiple") {
				t.Fatalf("a kubelet takes it: %s", files[i].Kubelet)
			}
			d := newDaemon(t)
			text := string(files[i].Data)
			said := ""
			for round := range rounds + 1 {
				d.Put("pod"+name[strings.LastIndexByte(name, '.'):], text)
				r := d.Program()
				r.Env.Environ = []string{"MONOPOD_CONFIG=" + d.Path("config.yaml")}
				var out, errs daemontest.SyncBuffer
				r.Stdout, r.Stderr = &out, &errs
				if code := commands(t.Context(), r, []string{"why"}); code != program.ExitOK {
					t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
				}
				if said = out.String(); !strings.Contains(said, "is refused") {
					return
				}
				if round < rounds {
					text = mend(t, text, said)
				}
			}
			t.Errorf("it is refused after %s:\n%s\n%s", fmt.Sprint(rounds, " rounds"), text, said)
		})
	}
}
