package check_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

func TestChecks(t *testing.T) {
	at, negative := field.NewPath("f"), int64(-1)
	for _, tt := range []struct {
		name  string
		check func(c *check.Checker)
		want  int
	}{
		{"a label", func(c *check.Checker) { c.Label(at, "a-b") }, 0},
		{"no label", func(c *check.Checker) { c.Label(at, "a.b") }, 1},
		{"a subdomain", func(c *check.Checker) { c.Subdomain(at, "a.b") }, 0},
		{"no subdomain", func(c *check.Checker) { c.Subdomain(at, "a_b") }, 1},
		{"a qualified name", func(c *check.Checker) { c.QualifiedName(at, "example.com/Name") }, 0},
		{"no qualified name", func(c *check.Checker) { c.QualifiedName(at, "a/b/c") }, 1},
		{"one of three", func(c *check.Checker) { check.OneOf(c, at, "b", "a", "b", "c") }, 0},
		{"none of three", func(c *check.Checker) { check.OneOf(c, at, "", "a", "b", "c") }, 1},
		{"a required value that is missing", func(c *check.Checker) { check.RequiredOneOf(c, at, "", "a") }, 1},
		{"no user", func(c *check.Checker) { c.UserID(at, nil) }, 0},
		{"a negative user", func(c *check.Checker) { c.UserID(at, &negative) }, 1},
		{"a path below", func(c *check.Checker) { c.DescendingPath(at, "a/..b/c..") }, 0},
		{"a path above", func(c *check.Checker) { c.DescendingPath(at, "a/../b") }, 1},
		{"an absolute path above", func(c *check.Checker) { c.DescendingPath(at, "/..") }, 2},
		{"no messages", func(c *check.Checker) { c.Invalid(at, "x") }, 0},
		{"two messages", func(c *check.Checker) { c.Invalid(at, "x", "one", "two") }, 2},
	} {
		var c check.Checker
		if tt.check(&c); len(c.Errs) != tt.want {
			t.Errorf("%s: %v, want %d errors", tt.name, c.Errs, tt.want)
		}
	}
}

func TestContainersOfAllKindsInTheOrderOfTheAPIServer(t *testing.T) {
	c := check.Checker{Pod: &corev1.Pod{Spec: corev1.PodSpec{
		Containers:          []corev1.Container{{Name: "a"}, {Name: "b"}},
		InitContainers:      []corev1.Container{{Name: "i"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}},
	}}}
	var got []string
	for _, p := range c.AllContainers(field.NewPath("spec")) {
		got = append(got, p.Name+" "+p.Path.String())
	}
	want := []string{"i spec.initContainers[0]", "a spec.containers[0]", "b spec.containers[1]", "e spec.ephemeralContainers[0]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
