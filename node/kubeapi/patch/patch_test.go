package patch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestApply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind             Kind
		doc, patch, want string
		// code and text are of the error.
		code int
		text string
	}{
		"add":                             {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":"/a","value":1}]`, want: `{"a":1}`},
		"add into a list":                 {kind: JSON, doc: `{"a":[1,3]}`, patch: `[{"op":"add","path":"/a/1","value":2}]`, want: `{"a":[1,2,3]}`},
		"add at the end":                  {kind: JSON, doc: `{"a":[1]}`, patch: `[{"op":"add","path":"/a/-","value":2}]`, want: `{"a":[1,2]}`},
		"add null":                        {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":"/a","value":null}]`, want: `{"a":null}`},
		"add replaces":                    {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"add","path":"/a","value":2}]`, want: `{"a":2}`},
		"add the whole":                   {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"add","path":"","value":{"b":2}}]`, want: `{"b":2}`},
		"escapes":                         {kind: JSON, doc: `{"a/b":1,"c~d":2}`, patch: `[{"op":"remove","path":"/a~1b"},{"op":"replace","path":"/c~0d","value":3}]`, want: `{"c~d":3}`},
		"remove from a list":              {kind: JSON, doc: `{"a":[1,2,3]}`, patch: `[{"op":"remove","path":"/a/1"}]`, want: `{"a":[1,3]}`},
		"remove the last":                 {kind: JSON, doc: `{"a":[1,2,3]}`, patch: `[{"op":"remove","path":"/a/-1"}]`, want: `{"a":[1,2]}`},
		"replace in a list":               {kind: JSON, doc: `{"a":[{"b":1}]}`, patch: `[{"op":"replace","path":"/a/0/b","value":2}]`, want: `{"a":[{"b":2}]}`},
		"move":                            {kind: JSON, doc: `{"a":{"b":1}}`, patch: `[{"op":"move","from":"/a/b","path":"/c"}]`, want: `{"a":{},"c":1}`},
		"copies are apart":                {kind: JSON, doc: `{"a":{"b":1}}`, patch: `[{"op":"copy","from":"/a","path":"/c"},{"op":"replace","path":"/c/b","value":2}]`, want: `{"a":{"b":1},"c":{"b":2}}`},
		"test":                            {kind: JSON, doc: `{"a":[1,{"b":"c"}]}`, patch: `[{"op":"test","path":"/a","value":[1.0,{"b":"c"}]}]`, want: `{"a":[1,{"b":"c"}]}`},
		"test of what is absent":          {kind: JSON, doc: `{}`, patch: `[{"op":"test","path":"/a","value":null}]`, want: `{}`},
		"large numbers stay":              {kind: JSON, doc: `{"a":9007199254740993}`, patch: `[]`, want: `{"a":9007199254740993}`},
		"test that fails":                 {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"test","path":"/a","value":2}]`, code: 422, text: "testing value /a failed"},
		"no list of operations":           {kind: JSON, doc: `{}`, patch: `{"a":1}`, code: 400, text: "error decoding patch"},
		"no operation":                    {kind: JSON, doc: `{}`, patch: `[1]`, code: 400, text: "element 0 is not an operation"},
		"path is no string":               {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":1}]`, code: 400, text: "path of operation 0 is not a string"},
		"unknown operation":               {kind: JSON, doc: `{}`, patch: `[{"op":"fly","path":"/a"}]`, code: 422, text: "unknown operation"},
		"no value":                        {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":"/a"}]`, want: `{"a":null}`},
		"no slash":                        {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":"a","value":1}]`, code: 422, text: "does not start with /"},
		"remove what is absent":           {kind: JSON, doc: `{}`, patch: `[{"op":"remove","path":"/a"}]`, code: 422, text: "/a does not exist"},
		"replace what is absent":          {kind: JSON, doc: `{}`, patch: `[{"op":"replace","path":"/a","value":1}]`, want: `{"a":1}`},
		"add below what is absent":        {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":"/a/b","value":1}]`, code: 422, text: "/a does not exist"},
		"add below a number":              {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"add","path":"/a/b","value":1}]`, code: 422, text: "/a/b does not exist"},
		"get below a number":              {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"remove","path":"/a/b"}]`, code: 422, text: "/a/b does not exist"},
		"remove the whole":                {kind: JSON, doc: `{}`, patch: `[{"op":"remove","path":""}]`, code: 422, text: "cannot be removed"},
		"the whole becomes a list":        {kind: JSON, doc: `{}`, patch: `[{"op":"add","path":"","value":[]}]`, code: 422, text: "something else"},
		"index out of range":              {kind: JSON, doc: `{"a":[]}`, patch: `[{"op":"add","path":"/a/1","value":1}]`, code: 422, text: "no index 1"},
		"index is no number":              {kind: JSON, doc: `{"a":[1]}`, patch: `[{"op":"replace","path":"/a/x","value":1}]`, code: 422, text: `"x" is not a list index`},
		"remove with no number":           {kind: JSON, doc: `{"a":[1]}`, patch: `[{"op":"remove","path":"/a/x"}]`, code: 422, text: `"x" is not a list index`},
		"move into itself":                {kind: JSON, doc: `{"a":{}}`, patch: `[{"op":"move","from":"/a","path":"/a/b"}]`, code: 422, text: "into itself"},
		"move what is absent":             {kind: JSON, doc: `{}`, patch: `[{"op":"move","from":"/a","path":"/b"}]`, code: 422, text: "/a does not exist"},
		"copy what is absent":             {kind: JSON, doc: `{}`, patch: `[{"op":"copy","from":"/a","path":"/b"}]`, want: `{"b":null}`},
		"replace below what is absent":    {kind: JSON, doc: `{}`, patch: `[{"op":"replace","path":"/a/b","value":1}]`, code: 422, text: "/a does not exist"},
		"replace an absent item":          {kind: JSON, doc: `{"a":[1]}`, patch: `[{"op":"replace","path":"/a/1","value":1}]`, code: 422, text: "no index 1"},
		"replace below a number":          {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"replace","path":"/a/b","value":1}]`, code: 422, text: "/a/b does not exist"},
		"replace the whole":               {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"replace","path":"","value":{"b":2}}]`, want: `{"b":2}`},
		"copy below what is absent":       {kind: JSON, doc: `{}`, patch: `[{"op":"copy","from":"/a/b","path":"/b"}]`, code: 422, text: "/a does not exist"},
		"test without a value":            {kind: JSON, doc: `{"a":1}`, patch: `[{"op":"test","path":"/b"}]`, want: `{"a":1}`},
		"copy without from":               {kind: JSON, doc: `{}`, patch: `[{"op":"copy","from":"a","path":"/b"}]`, code: 422, text: "does not start with /"},
		"merge":                           {kind: Merge, doc: `{"a":{"b":1,"c":2},"d":[1]}`, patch: `{"a":{"b":null,"e":3},"d":[2]}`, want: `{"a":{"c":2,"e":3},"d":[2]}`},
		"merge an object over a number":   {kind: Merge, doc: `{"a":1}`, patch: `{"a":{"b":1,"c":null}}`, want: `{"a":{"b":1}}`},
		"merge a list":                    {kind: Merge, doc: `{}`, patch: `[]`, code: 400, text: "error decoding patch"},
		"merge null":                      {kind: Merge, doc: `{}`, patch: `null`, code: 400, text: "error decoding patch"},
		"strategic merges containers":     {kind: Strategic, doc: `{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}`, patch: `{"spec":{"containers":[{"name":"a","image":"2"}]}}`, want: `{"spec":{"containers":[{"image":"2","name":"a"},{"name":"b"}]}}`},
		"strategic deletes":               {kind: Strategic, doc: `{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`, patch: `{"spec":{"containers":[{"name":"a","$patch":"delete"}]}}`, want: `{"spec":{"containers":[{"name":"b"}]}}`},
		"strategic without the merge key": {kind: Strategic, doc: `{"spec":{"containers":[{"name":"a"}]}}`, patch: `{"spec":{"containers":[{"image":"2"}]}}`, code: 422, text: "name"},
		"strategic with a wrong type":     {kind: Strategic, doc: `{"spec":{"containers":[{"name":"a"}]}}`, patch: `{"spec":{"containers":[1]}}`, code: 422, text: ""},
		"strategic list":                  {kind: Strategic, doc: `{}`, patch: `[]`, code: 400, text: "error decoding patch"},
		"strategic null":                  {kind: Strategic, doc: `{}`, patch: `null`, want: `{}`},
		"strategic with a bad directive":  {kind: Strategic, doc: `{"a":{}}`, patch: `{"a":{"$patch":"fly"}}`, code: 422, text: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have, err := Apply(c.kind, []byte(c.doc), []byte(c.patch), &corev1.Pod{})
			if c.code != 0 {
				wantError(t, err, c.code, c.text)
				return
			}
			if err != nil || string(have) != c.want {
				t.Errorf("have %s, %v, want %s", have, err, c.want)
			}
		})
	}
}

func wantError(t *testing.T, err error, code int, text string) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("%v is no status", err)
	}
	s := status.Status()
	all := s.Message
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			all += " " + c.Message
		}
	}
	if int(s.Code) != code || !strings.Contains(all, text) {
		t.Errorf("have %d %s, want %d %s", s.Code, all, code, text)
	}
}

func TestUnknownKindsAndDocuments(t *testing.T) {
	t.Parallel()
	if _, err := Apply("text/plain", []byte(`{}`), []byte(`{}`), nil); err == nil {
		t.Error("an unknown kind")
	}
	if _, err := Apply(JSON, []byte(`[]`), []byte(`[]`), nil); err == nil {
		t.Error("a list is no document")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	ops := func(n int, op string) string { return "[" + strings.TrimSuffix(strings.Repeat(op+",", n), ",") + "]" }
	list := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	named := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"name":"%d"},`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	doubling := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"op":"copy","from":"","path":"/k%d"}`, i)
		}
		return "[" + b.String()[1:] + "]"
	}
	for name, c := range map[string]struct {
		kind       Kind
		doc, patch string
	}{
		"operations":           {JSON, `{}`, ops(MaxOperations+1, `{"op":"add","path":"/a","value":1}`)},
		"copies that explode":  {JSON, `{"a":["` + strings.Repeat("x", 1000) + `"]}`, ops(40, `{"op":"copy","from":"/a","path":"/a/-"}`)},
		"copies of the whole":  {JSON, `{"a":{"b":1}}`, doubling(60)},
		"copies of long lists": {JSON, `{"a":[` + list(1_000_000, "1") + `]}`, ops(9, `{"op":"copy","from":"/a","path":"/b"}`)},
		"inserts in front":     {JSON, `{"a":[` + list(100_000, "1") + `]}`, ops(9_000, `{"op":"add","path":"/a/0","value":1}`)},
		"removes in front":     {JSON, `{"a":[` + list(100_000, "1") + `]}`, ops(9_000, `{"op":"remove","path":"/a/0"}`)},
		"tests of long lists":  {JSON, `{"a":[` + list(100_000, "1") + `]}`, ops(9_000, `{"op":"test","path":"/a","value":[]}`) + " "},
		"strategic lists":      {Strategic, `{}`, `{"spec":{"containers":[` + named(9_000) + `]}}`},
		"the patch":            {Merge, `{}`, `{"a":"` + strings.Repeat("x", MaxBytes) + `"}`},
		"the result":           {Merge, `{"b":"` + strings.Repeat("x", MaxBytes/2) + `"}`, `{"a":"` + strings.Repeat("x", MaxBytes/2) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Apply(c.kind, []byte(c.doc), []byte(c.patch), &corev1.Pod{})
			if name == "tests of long lists" {
				wantError(t, err, http.StatusUnprocessableEntity, "testing value /a failed")
			} else {
				wantError(t, err, http.StatusRequestEntityTooLarge, "")
			}
		})
	}
}

func TestComparisonsAreBounded(t *testing.T) {
	t.Parallel()
	list := `[` + strings.TrimSuffix(strings.Repeat("1,", 3_000), ",") + `]`
	copies := strings.Repeat(`,{"op":"test","path":"/a","value":[]}`, 9_000)
	_, err := Apply(JSON, []byte(`{"a":`+list+`}`), []byte(`[`+copies[1:]+`]`), nil)
	wantError(t, err, http.StatusUnprocessableEntity, "testing value /a failed")
	d := &document{root: map[string]any{"a": make([]any, 3_000)}}
	for range 9_000 {
		if err = d.apply(operation{op: "test", path: "/a", value: make([]any, 3_000)}); err != nil {
			break
		}
	}
	if err != errWork { //nolint:errorlint // it is the sentinel itself
		t.Errorf("27 million comparisons: %v", err)
	}
}

// FuzzApply checks that patches neither panic nor make more than they may.
func FuzzApply(f *testing.F) {
	for i, patch := range []string{
		`[{"op":"copy","from":"/spec","path":"/metadata"}]`, `[{"op":"move","from":"/spec/template","path":"/spec"}]`,
		`[{"op":"test","path":"/spec/replicas","value":1},{"op":"remove","path":"/spec/template/spec/containers/0"}]`,
		`{"spec":null}`, `{"metadata":{"$patch":"replace"}}`,
		`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"b","$patch":"delete"},{"$patch":"replace"}]}}}}`,
		`{"spec":{"template":{"spec":{"volumes":[{"$retainKeys":["name","emptyDir"],"name":"v","emptyDir":{}}]}}}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["b"]}}`,
	} {
		f.Add(uint8(i), patch)
	}
	doc := []byte(`{"metadata":{"name":"x","finalizers":["a"]},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"a","env":[{"name":"A","value":"1"}]}],"volumes":[{"name":"v","hostPath":{"path":"/"}}]}}}}`)
	f.Fuzz(func(t *testing.T, n uint8, patch string) {
		if len(patch) > 100_000 {
			t.Skip()
		}
		kind := []Kind{JSON, Merge, Strategic}[n%3]
		have, err := Apply(kind, doc, []byte(patch), &appsv1.Deployment{})
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Errorf("%v is no status", err)
			}
			return
		}
		var o map[string]any
		if len(have) > MaxBytes || json.Unmarshal(have, &o) != nil || o == nil {
			t.Errorf("made %.200s", have)
		}
	})
}
