package verdict_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monopod/internal/model"
	"monopod/internal/verdict"
	"monopod/manifests/decode"
	"monopod/manifests/warn"
)

const (
	web        = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b, ports: [{containerPort: 80, hostPort: 8080}]}]}\n"
	api        = "apiVersion: v1\nkind: Pod\nmetadata: {name: api}\nspec: {containers: [{name: a, image: b, ports: [{containerPort: 80, hostPort: 8080}]}]}\n"
	reader     = "apiVersion: v1\nkind: Pod\nmetadata: {name: reader}\nspec: {containers: [{name: a, image: b, envFrom: [{configMapRef: {name: app}}]}]}\n"
	configMap  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n"
	replicaSet = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: r, uid: u}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: b}]}}}\n"
	replica    = "apiVersion: v1\nkind: Pod\nmetadata: {name: r-x, labels: {a: b}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]}\nspec: {containers: [{name: a, image: b}]}\n"
)

// judged returns the verdict on each file, by its name.
func judged(files ...string) (all []*verdict.Verdict) {
	for i := 0; i < len(files); i += 2 {
		all = append(all, verdict.Judge(files[i], []byte(files[i+1]), nil, decode.Options{Source: "file"}))
	}
	return all
}

// errorsOf returns the errors of all files as text.
func errorsOf(all []*verdict.Verdict) (text []string) {
	for _, v := range all {
		for _, e := range v.Errors {
			text = append(text, e.Error())
		}
	}
	return text
}

func TestJudgeListsWhatAFileHolds(t *testing.T) {
	v := judged("a.yaml", web+"---\n"+configMap+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n")[0]
	if diff := cmp.Diff([]verdict.ValidPod{{Namespace: "default", Name: "web", Line: 1}}, v.Pods); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ConfigMap default/app"}, v.Objects); diff != "" {
		t.Error(diff)
	}
	if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "kind Namespace is ignored") || len(v.Errors) != 0 {
		t.Errorf("notes %q, errors %v", v.Notes, v.Errors)
	}
	r := v.Report("file")
	if r.Source != "file" || r.Input != "a.yaml" || r.State != model.InputAccepted || !cmp.Equal(r.Pods, []string{"default/web"}) || !cmp.Equal(r.Objects, v.Objects) {
		t.Errorf("reported as %+v", r)
	}
}

func TestJudgeOfWhatCannotBeReadOrDecoded(t *testing.T) {
	unreadable := verdict.Judge("a.yaml", nil, &fs.PathError{Op: "open", Path: "a.yaml", Err: errors.New("permission denied")}, decode.Options{})
	wrong := judged("b.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: A}\nspec: {}\n")[0]
	if got := errorsOf([]*verdict.Verdict{unreadable}); !cmp.Equal(got, []string{"a.yaml: permission denied"}) {
		t.Errorf("unreadable: %q", got)
	}
	if len(wrong.Errors) != 2 || wrong.Errors[0].Line == 0 || len(wrong.Pods) != 0 {
		t.Errorf("wrong: %q, pods %v", errorsOf([]*verdict.Verdict{wrong}), wrong.Pods)
	}
}

func TestConflictsBetweenFiles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"none", []string{"a.yaml", web, "b.yaml", reader}, nil},
		{
			"one name twice",
			[]string{"a.yaml", web, "b.yaml", web},
			[]string{"b.yaml:1: pod default/web: metadata.name: is already defined at a.yaml:1; rename or remove one of them"},
		},
		{"one host port twice", []string{"a.yaml", web, "b.yaml", api}, []string{"pod default/"}},
	} {
		all := judged(tt.files...)
		verdict.Conflicts(all)
		got := errorsOf(all)
		if len(got) != len(tt.want) {
			t.Fatalf("%s: %q", tt.name, got)
		}
		for i := range got {
			if !strings.Contains(got[i], tt.want[i]) {
				t.Errorf("%s: %s, want %s", tt.name, got[i], tt.want[i])
			}
		}
	}
}

// TestAPriorityClassIsNoErrorOfAPod: it may be in any file, and on the machine.
func TestAPriorityClassIsNoErrorOfAPod(t *testing.T) {
	const class = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 7\n"
	classed := strings.Replace(web, "spec: {", "spec: {priorityClassName: high, ", 1)
	all := judged("web.yaml", classed, "api.yaml", api)
	verdict.Conflicts(all)
	if got := errorsOf(all); len(got) != 1 || !strings.Contains(got[0], "host port 8080/TCP is taken by pod default/web") {
		t.Errorf("errors %q", got)
	}
	for _, files := range [][]string{{"web.yaml", classed, "class.yaml", class}, {"web.yaml", class + "---\n" + classed}, {"web.yaml", classed}} {
		all := judged(files...)
		verdict.Conflicts(all)
		verdict.Outlook(all, warn.Input{})
		missing := len(files) == 2 && !strings.Contains(files[1], class)
		if got := errorsOf(all); len(got) != 0 || len(all[0].Warnings) == 1 != missing {
			t.Errorf("errors %q, warnings %v of %q", got, all[0].Warnings, files)
		}
	}
}

func TestAPodThatAControllerOfAnotherFileMakesDoesNotCount(t *testing.T) {
	all := judged("a.yaml", replicaSet, "b.yaml", replica)
	verdict.Conflicts(all)
	if len(all[1].Pods) != 0 || len(all[1].Owned) != 1 || len(all[1].Notes) != 1 || len(all[0].Objects) != 1 {
		t.Errorf("pods %v, owned %v, notes %q", all[1].Pods, all[1].Owned, all[1].Notes)
	}
}

func TestOutlookWarnsWhatPodsWillWaitFor(t *testing.T) {
	alone := judged("a.yaml", reader)
	if verdict.Outlook(alone, warn.Input{}); len(alone[0].Warnings) != 1 {
		t.Errorf("warnings %v", alone[0].Warnings)
	}
	both := judged("a.yaml", reader, "b.yaml", configMap)
	if verdict.Outlook(both, warn.Input{}); len(both[0].Warnings)+len(both[1].Warnings) != 0 {
		t.Errorf("warnings %v", both[0].Warnings)
	}
}

func TestNamesOfManifests(t *testing.T) {
	for name, want := range map[string]bool{"a.yaml": true, "a.yml": true, "dir/a.json": true, "a.txt": false, "yaml": false, "a.yaml~": false} {
		if got := verdict.IsManifestName(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
