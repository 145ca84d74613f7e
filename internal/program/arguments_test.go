package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod/manifests"
)

// wantUsage wants an error about the command line; text is part of it.
func wantUsage(t *testing.T, err error, text string) {
	t.Helper()
	if _, is := errors.AsType[UsageError](err); !is || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one about the command line with %q", err, text)
	}
}

func TestNamesOfPods(t *testing.T) {
	for _, tt := range []struct{ flag, arg, want, wrong string }{
		{"", "web", "default/web", ""},
		{"prod", "web", "prod/web", ""},
		{"", "prod/web", "prod/web", ""},
		{"prod", "prod/web", "prod/web", ""},
		{"prod", "test/web", "", `"test/web" is not in namespace prod`},
		{"", "", "", "write NAME or NAMESPACE/NAME"},
		{"", "/web", "", "write NAME or NAMESPACE/NAME"},
		{"prod", "/web", "", "write NAME or NAMESPACE/NAME"},
		{"", "prod/", "", "write NAME or NAMESPACE/NAME"},
		{"", "a/b/c", "", "write NAME or NAMESPACE/NAME"},
	} {
		c := ClientFlags{Namespace: tt.flag}
		key, err := c.PodKey(tt.arg)
		if tt.wrong != "" {
			wantUsage(t, err, tt.wrong)
		} else if err != nil || key.String() != tt.want {
			t.Errorf("-n %q %q: %v, %v", tt.flag, tt.arg, key, err)
		}
	}
}

func TestArgumentsForAPod(t *testing.T) {
	for _, tt := range []struct{ args, want, wrong string }{
		{"web", "default/web", ""},
		{"prod/web", "prod/web", ""},
		{"pod web", "default/web", ""},
		{"po prod/web", "prod/web", ""},
		{"pods/web", "default/web", ""},
		{"pod/prod/web", "prod/web", ""},
		{"pod", "", "expected pod NAME"},
		{"deployment web", "", `unknown kind "deployment"; expected pod NAME`},
		{"pod/", "", "write NAME or NAMESPACE/NAME"},
		{"deploy/x", "", "a Deployment is not a pod; write pod NAME, with a name of `monopod get pods`"},
		{"pod jobs/x", "jobs/x", ""},
	} {
		key, err := (&ClientFlags{}).PodArg(strings.Fields(tt.args))
		if tt.wrong != "" {
			wantUsage(t, err, tt.wrong)
		} else if err != nil || key.String() != tt.want {
			t.Errorf("%q: %v, %v", tt.args, key, err)
		}
	}
}

func TestArgumentsForAnObject(t *testing.T) {
	for _, tt := range []struct{ args, want, wrong string }{
		{"web", "pod default/web", ""},
		{"prod/web", "pod prod/web", ""},
		{"deployment web", "deployment default/web", ""},
		{"deploy/web", "deployment default/web", ""},
		{"deployments.apps/prod/web", "deployment prod/web", ""},
		{"pod/prod/web", "pod prod/web", ""},
		{"cj/tick", "cronjob default/tick", ""},
		{"node/here", "node here", ""},
		{"nodes here", "node here", ""},
		{"pv/data", "persistentvolume data", ""},
		{"pod", "", "expected pod NAME"},
		{"deploymnet web", "", `unknown kind "deploymnet"; did you mean deployments?`},
		{"zzzzzzzz web", "", `unknown kind "zzzzzzzz"`},
		{"deploy/a/b/c", "", `"a/b/c" is not the name of a Deployment; write NAME or NAMESPACE/NAME`},
		{"node/", "", `"" is not the name of a Node`},
		{"pod/a/b/c", "", `"a/b/c" is not the name of a pod`},
	} {
		o, err := (&ClientFlags{}).ObjectArg(strings.Fields(tt.args))
		if tt.wrong != "" {
			wantUsage(t, err, tt.wrong)
		} else if err != nil || o.String() != tt.want {
			t.Errorf("%q: %v, %v", tt.args, o, err)
		}
	}
}

func TestArgumentsOfSeveralObjects(t *testing.T) {
	for args, want := range map[string]string{
		"a b":               "pod default/a, pod default/b",
		"deploy/a sts/b":    "deployment default/a, statefulset default/b",
		"deploy a b":        "deployment default/a, deployment default/b",
		"job prod/a test/b": "job prod/a, job test/b",
		"pod":               "expected pod NAME",
		"a b/c/d":           `"b/c/d" is not the name of a pod; write NAME or NAMESPACE/NAME`,
	} {
		all, err := (&ClientFlags{}).WaitArgs(strings.Fields(args))
		var names []string
		for _, o := range all {
			names = append(names, o.String())
		}
		if err != nil {
			names = []string{err.Error()}
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

func TestKindsAreNamedAsKubectlDoes(t *testing.T) {
	words := KindWords()
	for _, w := range []string{"all", "sources", "nodes", "events", "pods", "deployments", "storageclasses", "priorityclasses"} {
		if !slices.Contains(words, w) {
			t.Errorf("%s is missing: %v", w, words)
		}
	}
	c := ClientFlags{}
	for _, w := range Plurals() { // each of them is understood
		if o, err := c.ObjectArg([]string{w, "x"}); err != nil || Plural(o.Kind) != w {
			t.Errorf("%s: %v, %v", w, o, err)
		}
	}
}

func TestObjectsThatAreNotFound(t *testing.T) {
	for want, key := range map[string]manifests.Key{
		`deployment "web" not found in namespace "prod"`: {Namespace: "prod", Name: "web"},
		`deployment "web" not found`:                     {Name: "web"},
	} {
		if got := (NotFoundError{Object{Kind: "Deployment", Key: key}}).Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	all := []manifests.Key{{Namespace: "a", Name: "x"}, {Namespace: "b", Name: "web"}}
	for name, want := range map[string]string{"web": "; there is b/web: use -n b", "none": ""} {
		if got := NotFoundHint(all, manifests.Key{Namespace: "default", Name: name}); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNumberOfArguments(t *testing.T) {
	cmd := &cobra.Command{Use: "top [NAME]"}
	for n := range 4 {
		err := RangeArgs(1, 2)(cmd, make([]string, n))
		if n >= 1 && n <= 2 {
			if err != nil {
				t.Errorf("%d: %v", n, err)
			}
			continue
		}
		wantUsage(t, err, "usage: top [NAME]")
	}
	if err := NoArgs(cmd, nil); err != nil {
		t.Error(err)
	}
	wantUsage(t, NoArgs(cmd, []string{"now"}), `unexpected argument "now"`)
}

func TestOutputFormats(t *testing.T) {
	for _, known := range []string{"", "json", "yaml"} {
		if err := OneOfOutputs(known, "json", "yaml"); err != nil {
			t.Error(err)
		}
	}
	wantUsage(t, OneOfOutputs("xml", "json", "yaml"), `unknown output format "xml"; one of json, yaml`)
}

func TestHintsFollowAMessage(t *testing.T) {
	if got := fmt.Sprint("no", AppendHint(""), AppendHint("try this")); got != "no; try this" {
		t.Error(got)
	}
}
