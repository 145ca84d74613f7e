package podhash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/decode"
)

// sameCanonical compares the canonical form of a value with that of a decoder. Reports whether the decoder was not needed.
func sameCanonical(t *testing.T, v any) (quick bool) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want := string(canonicalTree(data))
	got, ok := canonicalText(data)
	if ok && string(got) != want {
		t.Errorf("%s\nis %s\nnot %s", data, got, want)
	}
	return ok
}

func TestTheCanonicalFormNeedsNoDecoder(t *testing.T) {
	t.Parallel()
	quick, all := 0, 0
	for _, pattern := range []string{"../decode/testdata/valid/*", "../../examples/*/*.yaml", "../../examples/*.yaml", "../../testdata/corpus/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			pods, _ := decode.Pods(path, data, decode.Options{})
			for _, p := range pods {
				all++
				if sameCanonical(t, p.Object) {
					quick++
				}
			}
		}
	}
	if all == 0 || quick < all*9/10 {
		t.Errorf("%d of %d", quick, all)
	}
	for _, text := range []string{
		"", "plain", "a && b < c > d", "tab\t, line\n, \"quoted\", back\\slash", "ü 漢 😀", "\u2028\u2029", "\x7f", "\x01", "\ufffd", "bad \xff byte", "/", `\u0041`,
	} {
		sameCanonical(t, map[string]any{"value": text, text: "key", "b" + text: map[string]any{"x": text, "empty": ""}, "list": []any{text, nil, map[string]any{"no": nil}}})
	}
	for _, raw := range []string{
		`{"a":1,"a":""}`, `{"a":"","a":1}`, `{"b":1,"a":"\u0041","c":"\/"}`, `{"z":"\u003C"}`, `{"f:x":{}}`, `[]`, `null`, `-0`, `1e3`,
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(raw)}}}}
		sameCanonical(t, pod)
	}
}

// TestTheCanonicalFormOfAnything makes values by chance.
func TestTheCanonicalFormOfAnything(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		letters := []rune("ab.-/\"\\<&\n\t é\u2028\ufffd\x00")
		text := make([]rune, r.IntN(4))
		for i := range text {
			text[i] = letters[r.IntN(len(letters))]
		}
		return string(text)
	}
	var value func(depth int) any
	value = func(depth int) any {
		kinds := 8
		if depth == 0 {
			kinds = 5
		}
		switch r.IntN(kinds) {
		case 0:
			return nil
		case 1:
			return ""
		case 2:
			return r.IntN(2) == 0
		case 3:
			return r.IntN(3) - 1
		case 4:
			return word()
		case 5:
			list := make([]any, r.IntN(4))
			for i := range list {
				list[i] = value(depth - 1)
			}
			return list
		}
		object := map[string]any{}
		for range r.IntN(6) {
			object[fmt.Sprint(string(rune('a'+r.IntN(26))), word())] = value(depth - 1)
		}
		return object
	}
	quick := 0
	for range 3000 {
		if sameCanonical(t, value(4)) {
			quick++
		}
	}
	if quick < 1000 {
		t.Errorf("only %d were made without a decoder", quick)
	}
}
