package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/manifests/manifesttest"
	"monopod/manifests/podhash"
)

func TestValidManifestsAreAccepted(t *testing.T) {
	want := map[string]string{
		"minimal.yaml":    "default/web:1",
		"enforced.yaml":   "apps/all:2",
		"harmless.yaml":   "default/exported:2",
		"documents.yaml":  "default/first:6 default/second:19 default/third:25",
		"lists.yaml":      "default/one:5 default/two:12 default/three:14",
		"anchors.yaml":    "default/anchors:1",
		"empty-list.yaml": "",
		"comments.yaml":   "",
		"crlf-bom.yaml":   "default/windows-editor:1",
		"stream.json":     "default/one:1 default/two:8",
	}
	for name, data := range manifesttest.Files(t, "testdata/valid") {
		pods, err := Pods(name, data, Options{Source: "file"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, p := range pods {
			got = append(got, fmt.Sprintf("%s:%d", p.Key(), p.Origin.Line))
			if p.Origin.Source != "file" || p.Origin.File != name || p.Object.Kind != "Pod" || p.Object.APIVersion != "v1" {
				t.Errorf("%s: %+v %+v", name, p.Origin, p.Object.TypeMeta)
			}
		}
		if w, known := want[name]; !known || w != strings.Join(got, " ") {
			t.Errorf("%s: got pods %q, want %q", name, strings.Join(got, " "), w)
		}
	}
}

func TestInvalidManifestsAreRefusedWithAllProblems(t *testing.T) {
	for name, data := range manifesttest.Files(t, "testdata/invalid") {
		if strings.HasSuffix(name, ".err") {
			continue
		}
		pods, err := Pods(name, data, Options{})
		if err == nil || pods != nil {
			t.Errorf("%s: accepted with %d pods", name, len(pods))
			continue
		}
		testfiles.Compare(t, filepath.Join("testdata", "invalid", name+".err"), err.Error()+"\n")
		checkErrors(t, name, data, err)
	}
}

// checkErrors checks what holds for all errors of Pods.
func checkErrors(t *testing.T, name string, data []byte, err error) {
	t.Helper()
	lines, _ := document.LineColumn(data, len(data))
	for _, e := range manifests.Errors(err) {
		if e.File != name || e.Msg == "" || e.Line < 0 || e.Line > lines {
			t.Errorf("%s: %#v", name, e)
		}
	}
	if len(manifests.Errors(err)) == 0 {
		t.Errorf("%s: %v holds no *Error", name, err)
	}
}

func TestOneBadDocumentMeansNoPods(t *testing.T) {
	data := "apiVersion: v1\nkind: Pod\nmetadata: {name: good}\nspec: {containers: [{name: c, image: app}]}\n---\nkind: Nonsense\n"
	pods, err := Pods("f", []byte(data), Options{})
	if pods != nil || len(manifests.Errors(err)) != 1 {
		t.Errorf("got %d pods and %v", len(pods), err)
	}
}

func TestInputsOfMoreThan10MiBAreRefused(t *testing.T) {
	comment := bytes.Repeat([]byte("# x\n"), document.MaxSize/4)
	if _, err := Pods("f", comment, Options{}); err != nil {
		t.Errorf("10 MiB: %v", err)
	}
	if _, err := Pods("f", append(comment, '#'), Options{}); err == nil {
		t.Error("10 MiB and a byte are accepted")
	}
}

func TestErrorsTakesApartWhatLoadJoined(t *testing.T) {
	a, b := &manifests.Error{Msg: "a"}, &manifests.Error{Msg: "b"}
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"a single error", a, 1},
		{"joined errors", joinErrors([]*manifests.Error{a, b}), 2},
		{"joined errors within a wrapped one", errors.Join(fmt.Errorf("x: %w", a), joinErrors([]*manifests.Error{a, b})), 3},
		{"an error of somebody else", errors.New("x"), 0},
	} {
		if got := manifests.Errors(c.err); len(got) != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestErrorPrintsLikeACompiler(t *testing.T) {
	e := &manifests.Error{File: "f.yaml", Line: 3, Column: 5, Pod: "ns/n", Field: "spec.x", Msg: "wrong", Hint: "fix it"}
	if got, want := e.Error(), "f.yaml:3:5: pod ns/n: spec.x: wrong; fix it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (&manifests.Error{File: "f", Msg: "m"}).Error(), "f: m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPodReloadsFromItsOwnJSON(t *testing.T) {
	for name, data := range manifesttest.Files(t, "testdata/valid") {
		pods, err := Pods(name, data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			text, err := json.Marshal(p.Object)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Pods(name, text, Options{})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if diff := cmp.Diff(p.Object, again[0].Object, cmpopts.EquateEmpty()); diff != "" || podhash.Pod(p.Object) != podhash.Pod(again[0].Object) {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// TestAPodIsOneHoweverItsKindIsWritten: JSON may escape each letter; the pod, and the messages about it, stay the same.
func TestAPodIsOneHoweverItsKindIsWritten(t *testing.T) {
	for _, rest := range []string{
		`"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		`"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]},"status":{"phase":"Pending"}}`,
		`"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","imge":"i"}]}}`,
		`"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}`,
		`"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":1}]}}`,
		`"metadata":{"name":"p"},"spec":{}}`,
	} {
		plain, errPlain := Pods("f", []byte(`{"apiVersion":"v1","kind":     "Pod",`+rest), Options{})
		escaped, errEscaped := Pods("f", []byte(`{"apiVersion":"v1","kind":"\u0050od",`+rest), Options{})
		if fmt.Sprint(errPlain) != fmt.Sprint(errEscaped) || len(plain) != len(escaped) || (errPlain == nil) != (len(plain) == 1) {
			t.Errorf("%s: %d, %v\nescaped: %d, %v", rest, len(plain), errPlain, len(escaped), errEscaped)
		}
		for i := range plain {
			if diff := cmp.Diff(plain[i].Object, escaped[i].Object); diff != "" {
				t.Errorf("%s: %s", rest, diff)
			}
		}
	}
}
