package explain_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"monopod/manifests/document"
	"monopod/manifests/explain"
)

func TestAdviceForErrorsOfValidation(t *testing.T) {
	spec := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data"}, {Name: "cache"}}}
	containers := field.NewPath("spec", "containers").Index(0)
	for _, tt := range []struct {
		name string
		err  *field.Error
		want string
	}{
		{
			"no name",
			field.Required(field.NewPath("metadata", "name"), ""), "give it a name, as in metadata: {name: web}",
		},
		{
			"no containers",
			field.Required(field.NewPath("spec", "containers"), ""), "add at least one, with a name and an image",
		},
		{
			"no image",
			field.Required(containers.Child("image"), ""), "set the image that it runs, as in image: docker.io/library/busybox:1.37",
		},
		{
			"no name of an init container",
			field.Required(field.NewPath("spec", "initContainers").Index(2).Child("name"), ""), "give the container a name, as in name: web",
		},
		{
			"an empty probe",
			field.Required(containers.Child("livenessProbe"), "must specify a handler type"), "write one of exec, httpGet, tcpSocket and grpc",
		},
		{
			"a field that has no advice",
			field.Required(containers.Child("ports").Index(0).Child("containerPort"), ""), "",
		},
		{
			"a value in lower case",
			field.NotSupported(containers.Child("imagePullPolicy"), "always", []string{"Always", "Never"}), `did you mean "Always"?`,
		},
		{
			"podman's policy",
			field.NotSupported(containers.Child("imagePullPolicy"), "ifnewer", []string{"Always", "Never"}),
			"newer is a policy of podman: use Always, or IfNotPresent to start without network",
		},
		{
			"a value like none",
			field.NotSupported(containers.Child("imagePullPolicy"), "xyz", []string{"Always", "Never"}), "",
		},
		{
			"a name in capitals with a space",
			field.Invalid(containers.Child("name"), "My App", "a lowercase RFC 1123 label must consist of"), `did you mean "my-app"?`,
		},
		{
			"a name that cannot become one",
			field.Invalid(containers.Child("name"), "___", "a lowercase RFC 1123 label must consist of"), "",
		},
		{
			"a schedule",
			field.Invalid(field.NewPath("spec", "schedule"), "daily", "x"), `write minute, hour, day, month and weekday, as in "*/5 * * * *"`,
		},
		{
			"a selector",
			field.Invalid(field.NewPath("spec", "template", "metadata", "labels"), "x", "`selector` does not match template `labels`"), "add its labels to spec.template.metadata.labels",
		},
		{
			"a misspelled volume",
			field.NotFound(containers.Child("volumeMounts").Index(1).Child("name"), "dta"), `did you mean "data"?`,
		},
		{
			"a volume that does not exist",
			field.NotFound(containers.Child("volumeMounts").Index(1).Child("name"), "something-else"), "spec.volumes has no volume of that name",
		},
	} {
		if got := explain.Advice(tt.err, spec); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	mount := containers.Child("volumeMounts").Index(1)
	if !explain.Follows(field.NotFound(mount.Child("name"), "data"), spec) {
		t.Error("a volume that has an error of its own is said to be missing")
	}
	if explain.Follows(field.NotFound(mount.Child("name"), "dta"), spec) || explain.Follows(field.Invalid(mount.Child("name"), "data", ""), spec) {
		t.Error("a mistake of the mount is dropped")
	}
}

func TestAMissingFieldIsNotReportedBesideItsMisspelling(t *testing.T) {
	missing := field.Required(field.NewPath("spec", "containers"), "")
	for _, tt := range []struct {
		name  string
		found []document.Problem
		want  bool
	}{
		{"nothing was found", nil, false},
		{"a misspelling beside it", []document.Problem{{Path: "spec.container", Hint: `did you mean "containers"?`}}, true},
		{"a misspelling elsewhere", []document.Problem{{Path: "metadata.container", Hint: `did you mean "containers"?`}}, false},
		{"the field at another place", []document.Problem{{Path: "containers", Hint: "there is a field of this name at spec.containers"}}, true},
		{"another problem beside it", []document.Problem{{Path: "spec.nodeNme", Hint: `did you mean "nodeName"?`}}, false},
	} {
		if got := explain.AlreadyReported(missing, "spec.containers", tt.found); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{"text", `the string "text"`},
		{int64(5), "the number 5"},
		{true, "true"},
		{nil, "nothing"},
		{[]any{1}, "a list"},
		{map[string]any{}, "a mapping"},
	} {
		if got := explain.Describe(tt.value); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.value, got, tt.want)
		}
	}
}

// distance is the definition of the optimal string alignment distance, without any table.
func distance(a, b string) int {
	switch {
	case a == "":
		return len(b)
	case b == "":
		return len(a)
	}
	cost := 1
	if a[len(a)-1] == b[len(b)-1] {
		cost = 0
	}
	x, y := a[:len(a)-1], b[:len(b)-1]
	best := min(distance(x, b)+1, distance(a, y)+1, distance(x, y)+cost)
	if len(x) > 0 && len(y) > 0 && a[len(a)-1] == y[len(y)-1] && x[len(x)-1] == b[len(b)-1] {
		best = min(best, distance(x[:len(x)-1], y[:len(y)-1])+1)
	}
	return best
}

func TestEditDistanceIsThatOfItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[abc]{0,5}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := explain.EditDistance(a, b), distance(a, b); got != want {
			t.Fatalf("%q and %q: %d, want %d", a, b, got, want)
		}
	})
	if got := explain.EditDistance(strings.Repeat("a", 65), "a"); got != 65 {
		t.Errorf("a long name has distance %d", got)
	}
}

func TestSyntaxErrorNamesLineAndCause(t *testing.T) {
	for _, tt := range []struct {
		name string
		doc  document.Document
		err  error
		want string
	}{
		{
			"a line of YAML",
			document.Document{Data: []byte("a: 1\nb: c: d\n"), Line: 10},
			fmt.Errorf("yaml: line 2: mapping values are not allowed in this context"),
			"f:11: mapping values are not allowed in this context; put the value in quotes: it contains a colon and a space",
		},
		{
			"a tab in the indentation",
			document.Document{Data: []byte("a:\n\tb: 1\n"), Line: 10},
			fmt.Errorf("yaml: line 2: found character that cannot start any token"),
			"f:11:1: found character that cannot start any token; YAML does not allow tabs for indentation, use spaces",
		},
		{
			"a template",
			document.Document{Data: []byte("a: 1\nb: {{ .x }}\n"), Line: 10},
			fmt.Errorf("invalid map key: map[interface {}]interface {}{}"),
			"f:11:4: a mapping cannot be a key; this looks like a template that has not been rendered",
		},
		{
			"a line beyond the end",
			document.Document{Data: []byte("a: 1\n"), Line: 10},
			fmt.Errorf("yaml: line 99: did not find expected key"),
			"f:11: did not find expected key; check the indentation, here and in the next line: entries of one level start in the same column. Multi-line text follows key: |",
		},
	} {
		if got := explain.SyntaxError(&document.Source{File: "f", Doc: tt.doc}, tt.err).Error(); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestInspectReportsAndCutsWhatCannotBeDecoded(t *testing.T) {
	m := map[string]any{
		"kind": "Pod", "specs": map[string]any{},
		"spec": map[string]any{"hostNetwork": "yes", "nodeName": "n", "containers": []any{map[string]any{"name": "a", "image": int64(1), "ports": []any{int64(80)}}}},
	}
	s := &document.Source{Doc: document.Document{Data: []byte("{}"), Line: 1}}
	var got []string
	for _, p := range explain.Inspect(m, document.Item{Source: s}) {
		got = append(got, p.Path+": "+p.Msg)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"specs: unknown field", `spec.hostNetwork: expected`, "spec.containers[0].image: expected a string, found the number 1", "spec.containers[0].ports[0]: expected a mapping, found the number 80",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if _, left := m["specs"]; left || m["spec"].(map[string]any)["nodeName"] != "n" {
		t.Errorf("what is left is %v", m)
	}
}
