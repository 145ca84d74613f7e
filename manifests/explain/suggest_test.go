package explain

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSuggestField(t *testing.T) {
	spec, container, meta := reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.Container](), reflect.TypeFor[metav1.ObjectMeta]()
	for _, c := range []struct {
		name  string
		typ   reflect.Type
		path  string
		field string
		want  string
	}{
		{"a letter is missing", container, "spec.containers[0].imag", "imag", `did you mean "image"?`},
		{"two letters are swapped", spec, "spec.hostNetwrok", "hostNetwrok", `did you mean "hostNetwork"?`},
		{"the case is wrong", spec, "spec.restartpolicy", "restartpolicy", `did you mean "restartPolicy"?`},
		{"the field is one level up", meta, "metadata.restartPolicy", "restartPolicy", "there is a field of this name at spec.restartPolicy"},
		{"the field is a container's", spec, "spec.image", "image", "there is a field of this name at spec.containers[].image"},
		{"a misspelled field of a container", spec, "spec.comand", "comand", `did you mean "command"? That is a field of spec.containers[]`},
		{"nothing like it", spec, "spec.taste", "taste", ""},
	} {
		if got := suggestField(c.typ, c.path, c.field); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"abc", "abc", 0},
		{"abc", "ab", 1},
		{"abc", "axc", 1},
		{"abc", "acb", 1},
		{"", "abc", 3},
		{"kitten", "sitting", 3},
	} {
		if got := EditDistance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: got %d, want %d", c.a, c.b, got, c.want)
		}
		if EditDistance(c.a, c.b) != EditDistance(c.b, c.a) {
			t.Errorf("%q and %q: not symmetric", c.a, c.b)
		}
	}
}

func TestDistanceCountsASwapOfNeighboursAsOne(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"stiatc", "static", 2}, {"sttaic", "static", 1}, {"same", "same", 0}} {
		if got := EditDistance(c.a, c.b); got != c.want {
			t.Errorf("EditDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := EditDistance(c.b, c.a); got != c.want {
			t.Errorf("EditDistance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
