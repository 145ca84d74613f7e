package patch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/fuzztest"
)

// bombs are JSON patches that are small, and make much.
func bombs() map[string]string {
	doubling, front, deep := "", "", strings.Repeat("/a", 500)
	for i := range 200 {
		doubling += fmt.Sprintf(`{"op":"copy","from":"/metadata","path":"/metadata/x%d"},`, i)
	}
	for range 9_999 {
		front += `{"op":"add","path":"/list/0","value":{}},`
	}
	nest := `{"op":"add","path":"/a","value":` + strings.Repeat(`{"a":`, 90) + "1" + strings.Repeat("}", 90) + "},"
	tests := strings.Repeat(`{"op":"test","path":"`+deep+`","value":1},`, 2000)
	moves := strings.Repeat(`{"op":"move","from":"/metadata","path":"/b"},{"op":"move","from":"/b","path":"/metadata"},`, 4_900)
	end := func(text string) string { return "[" + strings.TrimSuffix(text, ",") + "]" }
	return map[string]string{
		"copies that double":     end(doubling),
		"copies into themselves": end(strings.Repeat(`{"op":"copy","from":"","path":"/metadata/all"},`, 100)),
		"inserts at the front":   end(`{"op":"add","path":"/list","value":[]},` + front),
		"tests of deep paths":    end(nest + tests),
		"tests of large values":  end(strings.Repeat(`{"op":"test","path":"","value":{}},`, 9_000)),
		"moves to and fro":       end(moves),
		"nesting by copies":      end(strings.Repeat(`{"op":"copy","from":"/metadata","path":"/metadata/labels"},`, 9_000)),
		"a path of slashes":      end(`{"op":"add","path":"` + strings.Repeat("/", 1_000_000) + `","value":1}`),
		"too many":               end(strings.Repeat(`{"op":"remove","path":"/x"},`, 20_000)),
	}
}

const bombed = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}},"list":[1,2,3],"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"B"}]}]}}`

// TestBombs: what a patch makes is bounded, in memory and time.
func TestBombs(t *testing.T) {
	for name, bomb := range bombs() {
		out, err := Apply(JSON, []byte(bombed), []byte(bomb), &corev1.Pod{})
		if len(out) > MaxBytes || err == nil && name == "copies that double" {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
		if err != nil && len(err.Error()) > 2_000 {
			t.Errorf("%s: %.300s", name, err)
		}
	}
}

// FuzzHostile: patches of all kinds are applied or refused, at once.
func FuzzHostile(f *testing.F) {
	for name, bomb := range bombs() {
		if name != "too many" && len(bomb) < 20_000 {
			f.Add(string(JSON), bomb)
		}
	}
	for _, kind := range []Kind{JSON, Merge, Strategic} {
		for _, patch := range []string{
			"", "null", "[]", "{}", `{"metadata":null}`, `{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`, `{"spec":{"containers":[{"$patch":"replace"}]}}`,
			`{"spec":{"$setElementOrder/containers":[{"name":"x"}],"containers":[{}]}}`, `{"spec":{"containers":[1]}}`, `{"spec":{"$retainKeys":[1],"containers":{}}}`,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":[{}]}}`, `{"$patch":"merge","$patch":1}`, `[{"op":"add","path":"/list/-1","value":null}]`,
			`[{"op":"replace","path":"","value":[]}]`, `[{"op":"remove","path":"/list/99999999999999999999"}]`, `[{"op":"add","path":"/spec~01~","value":1e999}]`, strings.Repeat(`{"a":`, 5000),
		} {
			f.Add(string(kind), patch)
		}
	}
	f.Fuzz(func(t *testing.T, kind, patch string) {
		began := time.Now()
		out, err := Apply(Kind(kind), []byte(bombed), []byte(patch), &corev1.Pod{})
		if len(out) > MaxBytes || err == nil && len(out) == 0 {
			t.Errorf("%d bytes, %v", len(out), err)
		}
		fuzztest.Soon(t, began, 20*time.Second)
	})
}
