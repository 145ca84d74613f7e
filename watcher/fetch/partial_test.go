package fetch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/watcher/watchertest"
)

// contentOf makes content of words: "a=v1" is a pod, "A=v1" a ConfigMap.
func contentOf(words string) *manifests.Content {
	c := &manifests.Content{}
	for word := range strings.FieldsSeq(words) {
		name, version, _ := strings.Cut(word, "=")
		if lower := strings.ToLower(name); lower != name {
			c.Objects = append(c.Objects, &manifests.Object{Kind: "ConfigMap", Object: &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: lower}, Data: map[string]string{"v": version},
			}})
			continue
		}
		c.Pods = append(c.Pods, watchertest.NewPod(name, version, manifests.Origin{}))
	}
	return c
}

func wordsOf(c *manifests.Content) string {
	var words []string
	for _, p := range c.Pods {
		words = append(words, p.Object.Name+"="+p.Object.Spec.Containers[0].Image)
	}
	for _, o := range c.Objects {
		cm, ok := o.Object.(*corev1.ConfigMap)
		if !ok {
			panic(o)
		}
		words = append(words, strings.ToUpper(cm.Name)+"="+cm.Data["v"])
	}
	return strings.Join(words, " ")
}

// A mistake may hide which object is meant. Then nothing goes that the answer does not have.
func TestAnObjectThatAMistakeMayHideStays(t *testing.T) {
	pod := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  containers:\n  - name: c\n    image: example.com/app:1\n"
	}
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: d\nspec:\n  selector: {matchLabels: {app: d}}\n" +
		"  template:\n    metadata: {labels: {app: d}}\n    spec: {containers: [{name: c, image: example.com/app:1}]}\n"
	join := func(docs ...string) string { return strings.Join(docs, "---\n") }
	bad := strings.Replace(pod("b"), "image:", "imge:", 1)
	tests := map[string]struct{ was, now, want string }{
		"a Deployment without its kind": {join(pod("a"), deployment), join(pod("a"), strings.Replace(deployment, "kind: Deployment\n", "", 1)), "a Deployment/d"},
		"a name that cannot be one":     {join(pod("a"), pod("b"), pod("c")), join(pod("B_"), pod("c")), "a b c"},
		"a name that stands twice":      {join(pod("a"), pod("b"), pod("c")), join(pod("c"), pod("c")), "a b c"},
		"a name given twice":            {join(pod("a"), pod("b"), pod("c")), join(strings.Replace(pod("b"), "  name: b\n", "  name: b\n  name: x\n", 1), pod("c")), "a b c"},
		"cut off behind a name":         {join(pod("a"), pod("b"), pod("c")), join(pod("a"), "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\n"), "a b c"},
		"cut off within a name":         {join(pod("a"), pod("bb"), pod("c")), join(pod("a"), "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b"), "a bb c"},
		"a mistake before others":       {join(pod("a"), pod("b"), pod("c")), join(bad, pod("c")), "b c"},
	}
	load := func(text string) (*manifests.Content, []*manifests.Error) {
		c, err := decode.Parts("f", []byte(text), decode.Options{})
		return c, manifests.Errors(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			was, none := load(tt.was)
			now, problems := load(tt.now)
			if len(none) > 0 || len(problems) == 0 {
				t.Fatalf("problems before %v, now %v", none, problems)
			}
			got := acceptPartly(was, now, problems)
			var names []string
			for _, p := range got.content.Pods {
				names = append(names, p.Object.Name)
			}
			for _, o := range got.content.Workloads {
				names = append(names, o.Kind+"/"+o.Object.GetName())
			}
			if all := strings.Join(names, " "); all != tt.want || !got.held {
				t.Errorf("%q counts, held %v; problems %v", all, got.held, problems)
			}
		})
	}
}

func TestAnObjectWithAProblemKeepsItsContentAndTheOthersChange(t *testing.T) {
	tests := []struct {
		name, was, now string
		// bad are the objects with problems; "?" is one whose name is not known.
		bad  string
		want string
		// held is set if an earlier object counts, uncertain if something may be missing.
		held, uncertain bool
	}{
		{name: "nothing is wrong", was: "a=1 b=1", now: "b=2 c=1", want: "b=2 c=1"},
		{name: "one is bad", was: "a=1 b=1 c=1", now: "a=2 c=2", bad: "b", want: "a=2 b=1 c=2", held: true},
		{name: "the first is bad", was: "a=1 b=1", now: "b=2", bad: "a", want: "a=1 b=2", held: true},
		{name: "a bad one is new", was: "a=1", now: "a=2", bad: "n", want: "a=2", uncertain: true},
		{name: "one is bad, another one gone", was: "a=1 b=1 c=1", now: "a=2", bad: "b", want: "a=2 b=1", held: true},
		{name: "one is there twice", was: "a=1 b=1", now: "a=2 b=2", bad: "a", want: "a=1 b=2", held: true},
		{name: "one has no name", was: "a=1 b=1 c=1", now: "c=2 d=1", bad: "?", want: "a=1 b=1 c=2 d=1", held: true, uncertain: true},
		{name: "a ConfigMap is bad", was: "a=1 A=1 B=1", now: "a=2 B=2", bad: "A", want: "a=2 A=1 B=2", held: true},
		{name: "the pod of a ConfigMap's name is bad", was: "a=1 A=1", now: "A=2", bad: "a", want: "a=1 A=2", held: true},
		{name: "a changed order", was: "a=1 b=1 c=1", now: "c=2 a=2", bad: "b", want: "c=2 a=2 b=1", held: true},
		{name: "nothing was known", was: "", now: "a=1", bad: "b", want: "a=1", uncertain: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var problems []*manifests.Error
			for name := range strings.FieldsSeq(tt.bad) {
				e := &manifests.Error{Pod: "default/" + strings.ToLower(name), Msg: "wrong"}
				if strings.ToLower(name) != name {
					e.Kind = "ConfigMap"
				}
				if name == "?" {
					e.Pod = ""
				}
				problems = append(problems, e)
			}
			got := acceptPartly(contentOf(tt.was), contentOf(tt.now), problems)
			if content := wordsOf(&got.content); content != tt.want || got.held != tt.held || got.whole == tt.uncertain {
				t.Errorf("content %q, held %v, whole %v", content, got.held, got.whole)
			}
		})
	}
}

// drawContent makes pods of a few names, each once, in any order.
func drawContent(t *rapid.T, what string) *manifests.Content {
	var words []string
	for _, name := range rapid.Permutation([]string{"a", "b", "c", "d", "e"}).Draw(t, what)[:rapid.IntRange(0, 5).Draw(t, "how many "+what)] {
		words = append(words, name+"="+what)
	}
	return contentOf(strings.Join(words, " "))
}

func TestSiftLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, now := drawContent(t, "was"), drawContent(t, "now")
		var problems []*manifests.Error
		blamed := map[string]bool{}
		nameless := rapid.Bool().Draw(t, "nameless")
		if nameless {
			problems = append(problems, &manifests.Error{Msg: "unreadable"})
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			if rapid.Bool().Draw(t, name+" is bad") {
				blamed[name] = true
				problems = append(problems, &manifests.Error{Pod: "default/" + name})
			}
		}
		before, said := versions(t, was), versions(t, now)
		got := acceptPartly(was, now, problems)
		after := versions(t, &got.content)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			want := said[name]
			if blamed[name] || nameless && said[name] == "" {
				want = before[name]
			}
			if after[name] != want {
				t.Errorf("%s was %q, the answer says %q, it is %q, want %q", name, before[name], said[name], after[name], want)
			}
		}
	})
}

// versions fails when a pod is there twice.
func versions(t *rapid.T, c *manifests.Content) map[string]string {
	all := map[string]string{}
	for _, p := range c.Pods {
		if all[p.Object.Name] != "" {
			t.Errorf("%s is there twice", p.Object.Name)
		}
		all[p.Object.Name] = p.Object.Spec.Containers[0].Image
	}
	return all
}
